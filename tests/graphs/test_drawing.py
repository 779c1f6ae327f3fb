import struct

import torch
import torchvision
from torch import nn
from torch.fx.experimental.optimization import fuse

from helpers.graphs.drawing import STYLES, draw, draw_before_after
from helpers.graphs.outline import CHANGED, MADE, REMOVED, outline
from helpers.graphs.tracing import trace

BLOCK = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
X = (torch.randn(2, 3, 9, 9),)


def colour(status):
    return tuple(bytes.fromhex(STYLES[status][0][1:]))


def test_before_and_after_are_coloured_by_what_the_pass_did():
    before, after = outline(trace(BLOCK, X)), outline(trace(fuse(BLOCK), X))
    figure = draw_before_after(before, after)
    left, right = ({patch.get_facecolor()[:3] for patch in ax.patches} for ax in figure.axes)
    as_floats = {status: tuple(part / 255 for part in colour(status)) for status in (MADE, CHANGED, REMOVED)}
    assert as_floats[REMOVED] in left
    assert as_floats[REMOVED] not in right
    assert as_floats[CHANGED] in right
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["changed by the pass", "removed by the pass"]


def test_the_titles_count_what_is_drawn():
    before = outline(trace(BLOCK, X, route="export"))
    assert any(box.op == "get_attr" for box in before)
    for ax in draw_before_after(before, before).axes:
        drawn = {text.get_text() for text in ax.texts} & {box.what for box in before}
        assert "get_attr" not in drawn
        assert ax.get_title().endswith(f": {len(ax.patches)} nodes")


def test_every_node_is_written_in_the_picture(tmp_path):
    boxes = outline(trace(BLOCK, X))
    figure = draw(boxes, tmp_path / "block.svg")
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert texts >= {box.what for box in boxes} | {box.shape for box in boxes}
    svg = (tmp_path / "block.svg").read_text()
    assert svg.startswith("<?xml")
    assert all(f">{box.what}</text>" in svg for box in boxes)


def test_the_whole_network_fits_a_screen_shape(tmp_path):
    boxes = outline(trace(torchvision.models.mobilenet_v2().eval(), (torch.randn(1, 3, 32, 32),)))
    path = tmp_path / "network.png"
    width, height = draw(boxes, path).get_size_inches()
    assert 1 < width / height < 3
    assert max(width, height) < 40
    assert struct.unpack(">II", path.read_bytes()[16:24]) == (int(width * 120), int(height * 120))


def test_constants_are_told_in_the_box_that_reads_them():
    graph_module = trace(BLOCK, X, route="export")
    texts = [text.get_text() for text in draw(outline(graph_module)).axes[0].texts]
    assert any(text.endswith(" 8x3x3x3") for text in texts)
    assert not any(text.startswith("constant") for text in texts)
