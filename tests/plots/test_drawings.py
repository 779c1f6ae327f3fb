"""Figures show the numbers they were given, and can be read in grey and aloud; graphs and what a
pass did to them.
"""

import copy
import itertools
import re

import pytest
import torch
import torchvision
from matplotlib.colors import to_rgb
from torch import nn
from torch.fx.experimental.optimization import fuse

from helpers import plots
from helpers.graphs.tracing import trace
from helpers.plots import graphs, style
from helpers.plots.graphs import (
    CHANGED,
    MADE,
    REMOVED,
    SAME,
    STYLES,
    compare,
    outline,
    table,
)
from helpers.plots.layout import HALF, arrange
from helpers.training import Evaluation
from tests.passes.graphs import network


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts if text.get_text()]


def test_grids_and_bars_carry_their_numbers_and_a_waterfall_what_is_left():
    figure = plots.number_grids(
        {"x": torch.tensor([[1.5, -2.0]]), "y": torch.tensor([[3.0]])}, signs="="
    )
    assert {"1.5", "-2", "3", "=", "x", "y"} == set(texts(figure))
    figure = plots.bars({"before": [1.0, 2.0], "after": [0.5, 0.25]}, ["size", "time"], "share")
    assert {"1", "2", "0.5", "0.25"} == set(texts(figure))
    figure = plots.waterfall({"float32": 8.0, "int8": 2.0}, "MB")
    assert {"8.00  (100%)", "2.00  (25%)"} == set(texts(figure))


def test_accuracies_are_drawn_in_percent_with_their_intervals():
    found = {
        "dense": Evaluation(0.9, 100, (0.8, 0.95)),
        "cut": Evaluation(0.5, 100, (0.4, 0.6)),
    }
    (ax,) = plots.accuracies(
        {"per layer": list(found.values())}, (8, 4), "bits", found["dense"]
    ).axes
    whiskers = next(c for c in ax.collections).get_segments()
    assert whiskers[0][:, 1] == pytest.approx([80, 95])
    assert [text.get_text() for text in ax.get_legend().texts] == ["float32", "per layer"]


def test_lines_show_what_they_are_given():
    (ax,) = plots.lines(
        {"a": ([0, 1], [2, 3]), "b": ([0, 1], [4, 5])}, "step", "loss", ylim=(0, 9)
    ).axes
    assert [list(line.get_ydata()) for line in ax.lines] == [[2, 3], [4, 5]]
    assert ax.get_ylim() == (0, 9)


def lightness(colour: str) -> float:
    """Relative luminance as the eye sees it (CIE L*), 0 to 100."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * luminance ** (1 / 3) - 16


def test_colours_differ_in_greyscale_and_what_they_tell_line_and_marker_tell_too():
    shades = sorted(lightness(colour) for colour in plots.COLOURS.values())
    assert min(b - a for a, b in itertools.pairwise(shades)) > 8
    looks = [plots.line(n) for n in range(5)]
    for what in ("color", "linestyle", "marker"):
        assert len({str(look[what]) for look in looks}) == 5
    assert len({plots.bar(n)["hatch"] for n in range(5)}) == 5
    boxes = [(str(look.get("linestyle", "-")), look["linewidth"]) for look in STYLES.values()]
    assert len({*boxes}) == len(STYLES)


def test_show_needs_and_displays_alternative_text_and_keeps_png_and_svg(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "FIGURES", tmp_path)
    shown = []
    monkeypatch.setattr(style, "display", lambda data, **options: shown.append((data, options)))
    figure, ax = plots.subplots()
    ax.plot([1, 2], [3, 4])
    plots.show(figure, "99-line", 'rises from "3" to 4')
    data, options = shown[0]
    assert re.search(r'alt="rises from &quot;3&quot; to 4"', data["text/html"])
    assert options["metadata"] == {"figure": "99-line"}
    assert (tmp_path / "99-line.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "99-line.svg").read_text()
    monkeypatch.setattr(style, "FIGURES", tmp_path / "99-line.png" / "no folder")
    plots.show(figure, "99-line", "shown where no file can be written, too")
    assert len(shown) == 2
    with pytest.raises(ValueError, match="99-line"):
        plots.show(figure, "99-line", " ")


BLOCK = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8)
)
X = (torch.randn(2, 3, 9, 9),)
BLOCK.eval()


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
    uneven = trace(nn.Sequential(nn.Conv2d(3, 8, 3, (1, 2))).eval(), X)
    assert outline(uneven)[1].what == "Conv2d 3x3 /1x2 3→8 +bias"
    frame = table(boxes)
    assert (
        list(frame["node"]) == ["input_1", "_0", "_1", "_2", "_3", "output"]
        and frame["inputs"][3] == "_1"
    )
    net = network(
        lambda n, x: torch.clamp(n.linear(x), 0, max=6.5) * n.z,
        linear=nn.Linear(4, 2),
        z=torch.ones(2),
    )
    whats = [box.what for box in outline(trace(net, (torch.randn(3, 4),)))]
    assert whats == ["input", "Linear 4→2 +bias", "clamp 0 max=6.5", "constant z", "mul", "output"]


def test_before_and_after_are_compared_and_coloured_by_what_the_pass_did():
    before, after = outline(trace(BLOCK, X)), outline(trace(fuse(BLOCK), X))
    went, came = compare(before, after)
    assert went == {
        "input_1": SAME,
        "_0": SAME,
        "_1": REMOVED,
        "_2": SAME,
        "_3": SAME,
        "output": SAME,
    }
    assert came == {"input_1": SAME, "_0": CHANGED, "_2": SAME, "_3": SAME, "output": SAME}
    assert compare(before[:3], before)[1]["_3"] == MADE
    pools = [outline(trace(nn.Sequential(nn.MaxPool2d(n, 1)).eval(), X)) for n in (3, 2)]
    assert compare(*pools)[1]["_0"] == CHANGED  # its settings alone
    padded = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    padded[0].padding = 2  # of which torch makes no text
    assert outline(trace(padded, X))[1].what.startswith("Conv2d")
    flipped = copy.deepcopy(BLOCK)
    flipped[0].weight.data.neg_()
    assert compare(before, outline(trace(flipped, X)))[1]["_0"] == CHANGED
    assert compare(before, before) == (dict.fromkeys(went, SAME), dict.fromkeys(went, SAME))
    means = (
        outline(trace(network(lambda n, x, axes=axes: x.mean(axes)), X)) for axes in ((2, 3), (1,))
    )
    assert compare(*means)[1]["mean"] == CHANGED
    figure = graphs.draw_before_after(before, after)
    left, right = ({patch.get_facecolor()[:3] for patch in ax.patches} for ax in figure.axes)
    colours = {
        what: tuple(part / 255 for part in bytes.fromhex(STYLES[what]["facecolor"][1:]))
        for what in STYLES
    }
    assert colours[REMOVED] in left and colours[REMOVED] not in right and colours[CHANGED] in right
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "changed by the pass",
        "removed by the pass",
    ]


def test_constants_are_told_in_the_box_that_reads_them_and_not_counted():
    before = outline(trace(BLOCK, X, route="export"))
    assert any(box.op == "get_attr" for box in before)
    for ax in graphs.draw_before_after(before, before).axes:
        texts = [text.get_text() for text in ax.texts]
        assert any(text.endswith(" 8x3x3x3") for text in texts)
        assert not any(text.startswith("constant") for text in texts)
        assert ax.get_title().endswith(f": {len(ax.patches)} nodes")


def test_every_node_is_written_in_the_picture_and_a_whole_network_fits_a_screen(tmp_path):
    boxes = outline(trace(BLOCK, X))
    graphs.draw(boxes).savefig(tmp_path / "block.svg")
    svg = (tmp_path / "block.svg").read_text()
    assert all(f">{text}</text>" in svg for box in boxes for text in (box.what, box.shape))
    boxes = outline(trace(torchvision.models.mobilenet_v2().eval(), (torch.randn(1, 3, 32, 32),)))
    width, height = graphs.draw(boxes).get_size_inches()
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
    assert layout.paths.keys() == {
        (operand, name) for name, operands in edges.items() for operand in operands
    }
    for (x1, y1), (x2, y2) in itertools.combinations(layout.places.values(), 2):
        assert abs(x1 - x2) >= 0.99 or abs(y1 - y2) >= 2 * HALF
    assert all(
        0 <= x <= layout.width and 0 <= y <= layout.height for x, y in layout.places.values()
    )
    for (source, user), corners in layout.paths.items():
        (x1, y1), (x2, y2) = layout.places[source], layout.places[user]
        assert (corners[0], corners[-1]) == ((x1, y1 + HALF), (x2, y2 - HALF))
        for (x1, y1), (x2, y2) in itertools.pairwise(corners):
            for name, (x, y) in layout.places.items():
                if name not in (source, user) and min(y1, y2) < y < max(y1, y2):
                    crossing = x1 + (x2 - x1) * (y - y1) / (y2 - y1)
                    assert abs(crossing - x) > 0.46, (source, user, name)
