"""Rules for layers: whoever calls them, their attributes follow, and their multiplications are counted."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from helpers.pruning.discovery import channel_groups
from helpers.pruning.surgery import cut
from helpers.pruning.targets import mac_cost
from tests.pruning.zoo import Net, build, conv

EXAMPLE = torch.zeros(1, 3, 8, 8)


class SamePadding(nn.Conv2d):
    """As in the EfficientNets that were trained with TensorFlow: a convolution that calls the function itself."""

    def forward(self, x):
        return F.conv2d(F.pad(x, (0, 2, 0, 2)), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def test_the_attributes_of_a_layer_follow_when_a_function_uses_its_weight():
    def forward(net, x):
        x = F.batch_norm(net.b(net.a(x)), net.n.running_mean, net.n.running_var)
        return net.d(F.linear(x.mean((2, 3)), net.c.weight))

    layers = {"a": SamePadding(3, 8, 3), "b": SamePadding(8, 16, 3, groups=2), "n": nn.BatchNorm2d(16)}
    model = build(lambda: Net(forward, **layers, c=nn.Linear(16, 4), d=nn.Linear(4, 5)))
    small, changes = cut(model, channel_groups(model, EXAMPLE), {"a": [1], "b": [0, 2, 3], "c": [2]})
    assert changes == {
        "a": {"out_channels": 6},
        "b": {"in_channels": 6, "out_channels": 10},
        "n": {"num_features": 10},
        "c": {"in_features": 10, "out_features": 3},
        "d": {"in_features": 3},
    }
    assert small(EXAMPLE).shape == (1, 5)


def test_a_weight_that_belongs_to_no_layer_has_no_attributes():
    model = build(
        lambda: Net(lambda s, x: s.b(F.conv2d(x, s.w)), w=nn.Parameter(torch.randn(8, 3, 1, 1)), b=conv(8, 5))
    )
    small, changes = cut(model, channel_groups(model, EXAMPLE), {"w": [0]})
    assert (small.w.shape[0], changes) == (7, {"b": {"in_channels": 7}})


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Sequential(*[conv(3, 3)] * 2), (2, 3, 8, 8)),
        (nn.Conv2d(3, 8, 3, stride=2, padding=1), (2, 3, 8, 8)),
        (nn.Conv2d(3, 8, 3), (3, 8, 8)),
        (nn.Conv2d(4, 8, 3, groups=2), (2, 4, 8, 8)),
        (nn.ConvTranspose2d(4, 8, 2, stride=2), (2, 4, 5, 5)),
        (nn.Linear(4, 7), (2, 3, 4)),
    ],
)
def test_multiply_adds_are_those_that_torch_counts(layer, shape):
    model, x = nn.Sequential(layer).eval(), torch.zeros(shape)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    assert mac_cost(model, channel_groups(model, x), x)({}) == counter.get_total_flops() // 2
