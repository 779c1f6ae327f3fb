"""Which operations have an integer form, whatever their spelling, and what happens to those that have none."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import passes
from helpers.quantization.plan import Recipe
from helpers.quantization.reader import read


class One(nn.Module):
    """A network of one call, with constants at hand."""

    def __init__(self, call, layer=None):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(6, 4, 3, 3)), nn.Parameter(torch.randn(6))
        self.rows, self.call, self.layer = nn.Parameter(torch.randn(5, 4)), call, layer

    def forward(self, x):
        return self.call(self, x)


def kind_of(call, x, layer=None):
    """The kind of a call; computed by the plan it must be what the network computes."""
    model = One(call, layer).eval()
    plan = read(passes.optimize(model, (x,))[0], x, Recipe())
    assert torch.allclose(plan.run(x), model(x), atol=1e-5)
    return plan.ops[-1].kind


IMAGE, FLAT = torch.randn(2, 4, 6, 6), torch.randn(2, 4)


@pytest.mark.parametrize(
    "kind,call,layer",
    [
        ("conv", lambda m, x: m.layer(x), nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0), dilation=2)),
        ("conv", lambda m, x: m.layer(x), nn.Conv2d(4, 8, 3, groups=4, bias=False)),
        ("conv", lambda m, x: F.conv2d(x, m.weight, m.bias, 2, (1, 0)), None),
        ("conv", lambda m, x: F.conv2d(x, m.weight, padding=1), None),
        ("conv", lambda m, x: F.conv2d(input=x, weight=m.weight, bias=m.bias, stride=(2, 1)), None),
        ("clamp", lambda m, x: m.layer(x), nn.ReLU6()),
        ("clamp", lambda m, x: m.layer(x), nn.Hardtanh(-0.5, 2.0)),
        ("clamp", lambda m, x: F.relu6(x), None),
        ("clamp", lambda m, x: x.clamp(min=-1), None),
        ("clamp", lambda m, x: torch.clamp(x, 0.1, 0.6), None),
        ("clamp", lambda m, x: F.hardtanh(x), None),
        ("add", lambda m, x: x + x, None),
        ("add", lambda m, x: torch.add(x, x), None),
        ("average_pool", lambda m, x: m.layer(x), nn.AvgPool2d(2)),
        ("average_pool", lambda m, x: m.layer(x), nn.AdaptiveAvgPool2d((3, 2))),
        ("average_pool", lambda m, x: F.adaptive_avg_pool2d(x, 1), None),
        ("average_pool", lambda m, x: x.mean([2, 3]), None),
        ("average_pool", lambda m, x: torch.mean(x, dim=(-1, -2), keepdim=True), None),
        ("max_pool", lambda m, x: m.layer(x), nn.MaxPool2d(3, 2, 1)),
        ("max_pool", lambda m, x: F.max_pool2d(x, 2), None),
        ("reshape", lambda m, x: torch.flatten(x, 1), None),
        ("reshape", lambda m, x: x.view(-1, 4, 36), None),
    ],
)
def test_operations_on_images(kind, call, layer):
    assert kind_of(call, IMAGE, layer) == kind


def test_linear():
    assert kind_of(lambda m, x: m.layer(x), FLAT, nn.Linear(4, 3)) == "linear"
    assert kind_of(lambda m, x: F.linear(x, m.rows), FLAT) == "linear"
    assert kind_of(lambda m, x: m.layer(x), IMAGE, nn.Linear(6, 3)) == "linear"  # on the last of four dimensions


@pytest.mark.parametrize(
    "call,layer",
    [
        (lambda m, x: m.layer(x), nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect")),
        (lambda m, x: m.layer(x), nn.Conv2d(4, 6, 3, padding="same")),
        (lambda m, x: m.layer(x), nn.ConvTranspose2d(4, 6, 3)),
        (lambda m, x: m.layer(x), nn.AvgPool2d(3, padding=1)),
        (lambda m, x: m.layer(x), nn.AvgPool2d(5, 2, ceil_mode=True)),
        (lambda m, x: m.layer(x), nn.AdaptiveAvgPool2d(4)),
        (lambda m, x: m.layer(x), nn.MaxPool2d(3, 2, ceil_mode=True)),
        (lambda m, x: m.layer(x), nn.LeakyReLU()),
        (lambda m, x: torch.clamp(x, 1, -1), None),
        (lambda m, x: F.conv2d(x, m.weight * x.mean()), None),  # the weight is computed
        (lambda m, x: torch.add(x, x, alpha=2), None),
        (lambda m, x: x + 1, None),
        (lambda m, x: x + x.mean(1, keepdim=True), None),  # the shapes differ
        (lambda m, x: x.mean(1), None),
        (lambda m, x: x.reshape(-1, 36), None),  # the batch changes
        (lambda m, x: torch.clamp(x, max=x), None),
        (lambda m, x: x.sigmoid(), None),
    ],
)
def test_no_integer_form(call, layer):
    assert kind_of(call, IMAGE, layer) == "float"
