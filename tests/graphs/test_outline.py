import torch
from torch import nn
from torch.fx.experimental.optimization import fuse

from helpers.graphs.outline import CHANGED, MADE, REMOVED, SAME, compare, outline, table
from helpers.graphs.tracing import trace
from tests.passes.graphs import network

BLOCK = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8)
)
X = (torch.randn(2, 3, 9, 9),)


def test_an_outline_tells_what_each_node_does():
    boxes = outline(trace(BLOCK.eval(), X))
    assert [(box.what, box.shape) for box in boxes] == [
        ("input", "2x3x9x9"),
        ("Conv2d 3x3 /2 3→8", "2x8x4x4"),
        ("BatchNorm2d 8", "2x8x4x4"),
        ("ReLU", "2x8x4x4"),
        ("Conv2d 3x3 8→8 depthwise +bias", "2x8x2x2"),
        ("output", "2x8x2x2"),
    ]
    assert {box.dtype for box in boxes} == {"float32"}
    assert boxes[2].inputs == ("_0",)


def test_functions_show_their_numbers_and_constants_their_place():
    net = network(
        lambda net, x: torch.clamp(net.linear(x), 0, max=6.5) * net.z, linear=nn.Linear(4, 2), z=torch.ones(2)
    )
    whats = [box.what for box in outline(trace(net, (torch.randn(3, 4),)))]
    assert whats == ["input", "Linear 4→2 +bias", "clamp 0 max=6.5", "constant z", "mul", "output"]


def test_compare_tells_made_changed_and_removed():
    before = outline(trace(BLOCK.eval(), X))
    after = outline(trace(fuse(BLOCK), X))
    went, came = compare(before, after)
    assert went == {"input_1": SAME, "_0": SAME, "_1": REMOVED, "_2": SAME, "_3": SAME, "output": SAME}
    assert came == {"input_1": SAME, "_0": CHANGED, "_2": SAME, "_3": SAME, "output": SAME}
    _, came = compare(before[:3], before)
    assert came["_3"] == MADE
    assert compare(before, before) == (dict.fromkeys(went, SAME), dict.fromkeys(went, SAME))


def test_the_table_has_a_line_for_each_node():
    frame = table(outline(trace(BLOCK.eval(), X)))
    assert list(frame["node"]) == ["input_1", "_0", "_1", "_2", "_3", "output"] and frame["inputs"][3] == "_1"
