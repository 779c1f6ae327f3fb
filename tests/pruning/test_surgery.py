"""Surgery: what is cut is gone, what is kept is the same number in the right place, and nothing
else changes.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.discovery import channel_groups
from helpers.pruning.surgery import cut
from tests.pruning.zoo import PRUNABLE, Auxiliary, ToyMobile, build, conv, net

EXAMPLE = torch.zeros(1, 3, 8, 8)


def test_everything_else_about_a_layer_stays():
    """The usual mistake: a layer that is built anew loses eps, momentum, dilation or its padding
    mode.
    """
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=2, dilation=2, padding_mode="reflect", bias=False),
        nn.BatchNorm2d(8, eps=0.01, momentum=0.3),
        conv(8, 4),
    ).eval()
    model[0].weight.requires_grad_(False)
    small, _ = cut(model, channel_groups(model, EXAMPLE), {"0": [1, 2]})
    assert (small[0].stride, small[0].dilation, small[0].padding_mode) == (
        (2, 2),
        (2, 2),
        "reflect",
    )
    assert (small[1].eps, small[1].momentum) == (0.01, 0.3)
    assert small[0].bias is None
    assert not small[0].weight.requires_grad
    assert small[2].weight.requires_grad


def test_no_memory_is_shared_with_the_original():
    model = build(ToyMobile)
    small, _ = cut(model, channel_groups(model, EXAMPLE), {"blocks.0.expand": [0]})
    mine = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    assert mine.isdisjoint(
        t.untyped_storage().data_ptr() for t in [*small.parameters(), *small.buffers()]
    )


def test_shared_parameters_stay_shared():
    model = nn.Sequential(
        nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 1), nn.ReLU(), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 4, 1)
    ).eval()
    model[3].weight = model[1].weight
    groups = channel_groups(model, EXAMPLE)
    assert {g.name: g.size for g in groups.prunable()} == {"0": 6}
    small, _ = cut(model, groups, {"0": [4]})
    assert small[3].weight is small[1].weight
    assert small[1].weight.shape == (5, 5, 1, 1)
    small(torch.randn(1, 3, 8, 8))


class SamePadding(nn.Conv2d):
    """As in the EfficientNets that were trained with TensorFlow: a convolution that calls the
    function itself.
    """

    def forward(self, x):
        return F.conv2d(
            F.pad(x, (0, 2, 0, 2)),
            self.weight,
            self.bias,
            self.stride,
            0,
            self.dilation,
            self.groups,
        )


def functions(s, x):
    x = F.batch_norm(s.b(s.a(F.conv2d(x, s.w))), s.n.running_mean, s.n.running_var)
    return s.d(F.linear(x.mean((2, 3)), s.c.weight))


FUNCTIONS = {
    "w": nn.Parameter(torch.randn(4, 3, 1, 1)),
    "a": SamePadding(4, 8, 3),
    "b": SamePadding(8, 16, 3, groups=2),
}
FUNCTIONS |= {"n": nn.BatchNorm2d(16), "c": nn.Linear(16, 4), "d": nn.Linear(4, 5)}
CHANGES = [
    (
        ToyMobile,
        {"stem": [0, 7]},
        {path: {"out_channels": 6} for path in ("stem", "blocks.0.project", "blocks.1.project")}
        | {path: {"in_channels": 6} for path in ("blocks.0.expand", "blocks.1.expand")}
        | {
            "head": {"in_features": 6},
            "blocks.0.bn3": {"num_features": 6},
            "blocks.1.bn3": {"num_features": 6},
        },
    ),
    (
        net(functions, **FUNCTIONS),
        {"w": [0], "a": [1], "b": [0, 2, 3], "c": [2]},
        {
            "": {},  # a parameter of the network itself
            "a": {"in_channels": 3, "out_channels": 6},
            "b": {"in_channels": 6, "out_channels": 10},
            "n": {"num_features": 10},
            "c": {"in_features": 10, "out_features": 3},
            "d": {"in_features": 3},
        },
    ),
    (
        PRUNABLE["whole groups"][0],
        {"0": [1]},
        {
            "0": {"out_channels": 10},
            "2": {"groups": 5, "in_channels": 10, "out_channels": 20},
            "3": {"in_channels": 20},
        },
    ),
    (
        PRUNABLE["a slope for each"][0],
        {"0": [1]},
        {"0": {"out_channels": 5}, "1": {"num_parameters": 5}, "2": {"in_channels": 5}},
    ),
    (
        net(
            lambda s, x: s.b(s.a(x) * s.w + (s.v if s.training else 0)),
            w=nn.Parameter(torch.ones(8, 1, 1)),
            v=nn.Parameter(torch.ones(8, 1, 1)),  # which only training reads
        ),
        {"a": [1]},
        {"": {}, "a": {"out_channels": 7}, "b": {"in_channels": 7}},
    ),
    (
        Auxiliary,
        {"stem": [0, 5]},
        {"stem": {"out_channels": 6}, "head": {"in_features": 6}, "aux": {"in_features": 6}},
    ),
]


@pytest.mark.parametrize(("maker", "plan", "expected"), CHANGES)
def test_the_attributes_of_layers_follow(maker, plan, expected):
    model = build(maker)
    small, changes = cut(model, channel_groups(model, EXAMPLE), plan)
    assert changes == expected
    for layer, attributes in expected.items():
        assert {
            name: getattr(small.get_submodule(layer), name) for name in attributes
        } == attributes
    small(EXAMPLE)
    small.train()(EXAMPLE)  # a second head, too
