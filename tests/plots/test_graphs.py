"""What an outline tells of a graph and of what a pass did to it, and how it is drawn."""

import itertools

import pytest
import torch
import torchvision
from torch import nn
from torch.fx.experimental.optimization import fuse

from helpers.graphs.tracing import trace
from helpers.plots.graphs import (
    CHANGED,
    HALF,
    MADE,
    REMOVED,
    SAME,
    STYLES,
    arrange,
    compare,
    draw,
    draw_before_after,
    outline,
    table,
)
from tests.passes.graphs import network

BLOCK = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8)
).eval()
X = (torch.randn(2, 3, 9, 9),)


def test_an_outline_tells_what_each_node_does():
    boxes = outline(trace(BLOCK, X))
    assert [(box.what, box.shape) for box in boxes] == [
        ("input", "2x3x9x9"),
        ("Conv2d 3x3 /2 3→8", "2x8x4x4"),
        ("BatchNorm2d 8", "2x8x4x4"),
        ("ReLU", "2x8x4x4"),
        ("Conv2d 3x3 8→8 depthwise +bias", "2x8x2x2"),
        ("output", "2x8x2x2"),
    ]
    frame = table(boxes)
    assert list(frame["node"]) == ["input_1", "_0", "_1", "_2", "_3", "output"] and frame["inputs"][3] == "_1"
    net = network(
        lambda net, x: torch.clamp(net.linear(x), 0, max=6.5) * net.z, linear=nn.Linear(4, 2), z=torch.ones(2)
    )
    whats = [box.what for box in outline(trace(net, (torch.randn(3, 4),)))]
    assert whats == ["input", "Linear 4→2 +bias", "clamp 0 max=6.5", "constant z", "mul", "output"]


def test_before_and_after_are_compared_and_coloured_by_what_the_pass_did():
    before, after = outline(trace(BLOCK, X)), outline(trace(fuse(BLOCK), X))
    went, came = compare(before, after)
    assert went == {"input_1": SAME, "_0": SAME, "_1": REMOVED, "_2": SAME, "_3": SAME, "output": SAME}
    assert came == {"input_1": SAME, "_0": CHANGED, "_2": SAME, "_3": SAME, "output": SAME}
    assert compare(before[:3], before)[1]["_3"] == MADE
    assert compare(before, before) == (dict.fromkeys(went, SAME), dict.fromkeys(went, SAME))
    figure = draw_before_after(before, after)
    left, right = ({patch.get_facecolor()[:3] for patch in ax.patches} for ax in figure.axes)
    colours = {what: tuple(part / 255 for part in bytes.fromhex(STYLES[what]["facecolor"][1:])) for what in STYLES}
    assert colours[REMOVED] in left and colours[REMOVED] not in right and colours[CHANGED] in right
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["changed by the pass", "removed by the pass"]


def test_constants_are_told_in_the_box_that_reads_them_and_not_counted():
    before = outline(trace(BLOCK, X, route="export"))
    assert any(box.op == "get_attr" for box in before)
    for ax in draw_before_after(before, before).axes:
        texts = [text.get_text() for text in ax.texts]
        assert any(text.endswith(" 8x3x3x3") for text in texts)
        assert not any(text.startswith("constant") for text in texts)
        assert ax.get_title().endswith(f": {len(ax.patches)} nodes")


def test_every_node_is_written_in_the_picture_and_a_whole_network_fits_a_screen(tmp_path):
    boxes = outline(trace(BLOCK, X))
    draw(boxes, tmp_path / "block.svg")
    svg = (tmp_path / "block.svg").read_text()
    assert all(f">{text}</text>" in svg for box in boxes for text in (box.what, box.shape))
    boxes = outline(trace(torchvision.models.mobilenet_v2().eval(), (torch.randn(1, 3, 32, 32),)))
    width, height = draw(boxes).get_size_inches()
    assert 1 < width / height < 3 and max(width, height) < 40


def random_dag(seed, size=40):
    generator = torch.Generator().manual_seed(seed)
    edges = {"n0": ()}
    for i in range(1, size):
        count = int(torch.randint(0 if i % 7 == 0 else 1, 4, (), generator=generator))
        picks = torch.randint(max(0, i - 9), i, (count,), generator=generator).tolist()
        edges[f"n{i}"] = tuple(dict.fromkeys(f"n{pick}" for pick in picks))
    return edges


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows", [8, 100])
def test_boxes_do_not_overlap_and_lines_join_them_without_running_through_others(seed, rows):
    edges = random_dag(seed)
    layout = arrange(edges, rows)
    assert layout.places.keys() == edges.keys()
    assert layout.paths.keys() == {(operand, name) for name, operands in edges.items() for operand in operands}
    for (x1, y1), (x2, y2) in itertools.combinations(layout.places.values(), 2):
        assert abs(x1 - x2) >= 0.99 or abs(y1 - y2) >= 2 * HALF
    assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in layout.places.values())
    for (source, user), corners in layout.paths.items():
        (x1, y1), (x2, y2) = layout.places[source], layout.places[user]
        assert (corners[0], corners[-1]) == ((x1, y1 + HALF), (x2, y2 - HALF))
        for (x1, y1), (x2, y2) in itertools.pairwise(corners):
            for name, (x, y) in layout.places.items():
                if name not in (source, user) and min(y1, y2) < y < max(y1, y2):
                    crossing = x1 + (x2 - x1) * (y - y1) / (y2 - y1)
                    assert abs(crossing - x) > 0.46, (source, user, name)
