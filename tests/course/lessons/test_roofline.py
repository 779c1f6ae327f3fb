import pytest
import torch
from torch import nn

from course.lessons import roofline
from helpers import passes


def test_operations_and_bytes_of_each_convolution_and_of_relu6():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))
    found = roofline.measure_layers(model.eval(), torch.zeros(2, 3, 6, 6), repeats=3)
    assert [one.kind for one in found] == ["ordinary 3x3", "depthwise 3x3", "pointwise 1x1", "ReLU6 alone"]
    assert [one.operations for one in found[:3]] == [
        2 * 2 * 8 * 36 * 27,
        2 * 2 * 8 * 16 * 9,
        2 * 2 * 4 * 16 * 8,
    ]
    assert found[0].bytes == 4 * (2 * 3 * 36 + 8 * 27 + 2 * 8 * 36)
    assert found[3].intensity == 0.25
    assert all(one.seconds > 0 and one.rate == pytest.approx(one.operations / one.seconds) for one in found)
    assert not any(module._forward_hooks for module in model)


def test_bytes_moved_fall_when_an_activation_moves_into_its_convolution():
    model, x = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU6()).eval(), torch.zeros(2, 3, 5, 5)
    graph, _ = passes.optimize(model, x)
    assert roofline.bytes_moved(graph) == 4 * 2 * 25 * (3 + 8 + 8 + 8)
    passes.Passer(["fusion"]).run(graph)
    assert roofline.bytes_moved(graph) == 4 * 2 * 25 * (3 + 8)
