"""Rules: attributes of layers follow whoever calls them, multiplications are counted, reshapes match by elements."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from helpers.pruning.allocation import cost_of
from helpers.pruning.discovery import channel_groups
from helpers.pruning.rules_shape import blocks
from helpers.pruning.surgery import cut
from tests.pruning.zeroing import cut_and_zeroed
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
    assert cost_of(channel_groups(model, x), "macs")({}) == counter.get_total_flops() // 2


WIDE = torch.zeros(2, 4, 3)
MAPS = torch.zeros(2, 3, 8, 8)


def last_axis(norm, example=WIDE):
    """A network whose channels lie on the last axis, and a normalisation that takes another one for the channels."""
    return build(
        lambda: Net(lambda s, x: s.b(s.n(s.a(x))), a=nn.Linear(example.shape[-1], 12), n=norm, b=nn.Linear(12, 5))
    )


@pytest.mark.parametrize(
    ("norm", "example"),
    [
        (nn.InstanceNorm1d(4), WIDE),
        (nn.InstanceNorm1d(4, affine=True), WIDE),
        (nn.InstanceNorm1d(4), WIDE[0]),
        (nn.GroupNorm(2, 4), WIDE),
        (nn.BatchNorm1d(4, track_running_stats=False), WIDE),
        (nn.BatchNorm2d(3, track_running_stats=False), MAPS),
        (nn.InstanceNorm2d(3, affine=True), MAPS),
    ],
)
def test_axes_that_share_their_statistics_stay(norm, example):
    assert "normalises over all channels" in channel_groups(last_axis(norm, example), example)["a"].reason


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.InstanceNorm1d(4, track_running_stats=True)])
def test_stored_statistics_are_shared_by_no_axis(norm):
    model = last_axis(norm)
    assert {g.name: g.size for g in channel_groups(model, WIDE).prunable()} == {"a": 12}
    torch.testing.assert_close(*cut_and_zeroed(model, WIDE))


@pytest.mark.parametrize("arguments", [(None, None, None, None, True), (None, None)])
def test_a_function_says_whether_it_takes_the_statistics_of_the_batch(arguments):
    def forward(net, x):
        options = {} if len(arguments) > 2 else {"training": True}
        return net.b(F.batch_norm(net.a(x), *arguments, **options))

    model = build(lambda: Net(forward, a=nn.Linear(3, 12), b=nn.Linear(12, 5)))
    assert "normalises over all channels" in channel_groups(model, WIDE)["a"].reason


def test_channels_that_stand_before_the_axes_of_an_instance_may_go():
    model = build(
        lambda: nn.Sequential(nn.Conv1d(3, 6, 3), nn.InstanceNorm1d(6, affine=True, eps=0.1), nn.Conv1d(6, 5, 3))
    )
    example = torch.zeros(3, 9)
    groups = channel_groups(model, example)
    assert {g.name: g.size for g in groups.prunable()} == {"0": 6}
    assert cut(model, groups, {"0": [1]})[1]["1"] == {"num_features": 5}
    torch.testing.assert_close(*cut_and_zeroed(model, example))


@pytest.mark.parametrize(
    "normalised",
    [
        lambda net, x: net.n(x),
        lambda net, x: F.layer_norm(x, (8,), net.n.weight, net.n.bias),
        lambda net, x: F.layer_norm(x, (8,), weight=net.n.weight),
    ],
)
@pytest.mark.parametrize("gate_first", [True, False])
def test_the_scale_of_a_layer_norm_that_is_a_gate_as_well_stays(normalised, gate_first):
    """Its length is stored a second time, as the shape that is normalised over."""

    def forward(net, x):
        gated, scaled = (lambda: net.a(x) * net.n.weight), lambda: normalised(net, net.c(x)).sum()
        return net.b(gated() + scaled() if gate_first else scaled() + gated())

    layers = {"a": nn.Linear(3, 8), "c": nn.Linear(3, 8), "n": nn.LayerNorm(8), "b": nn.Linear(8, 5)}
    assert channel_groups(build(lambda: Net(forward, **layers)), WIDE)["a"].reason is not None


class Blur(nn.Module):
    """A filter that is not learned, one for each channel: BlurPool."""

    def __init__(self, channels, columns, groups=None):
        super().__init__()
        self.groups = groups
        self.register_buffer("filters", torch.rand(channels, columns, 3, 3))

    def forward(self, x):
        return F.conv2d(x, self.filters, padding=1, groups=self.groups or x.shape[1])


def blurred(channels, *arguments):
    return build(lambda: nn.Sequential(conv(3, 8), Blur(channels, *arguments), conv(channels, 6), conv(6, 5)))


def test_as_many_groups_as_there_are_channels_is_a_number_that_stays():
    groups = channel_groups(blurred(8, 1), EXAMPLE)
    assert "computes with the number of channels" in groups["0"].reason
    assert {g.name: g.size for g in groups.prunable()} == {"2": 6}


@pytest.mark.parametrize(("blur", "found"), [((8, 1, 8), {"2": 6}), ((6, 4, 2), {"0": 4, "2": 6})])
def test_a_grouped_filter_that_is_not_learned_has_no_channels_to_give(blur, found):
    model = blurred(*blur)
    assert {g.name: g.size for g in channel_groups(model, EXAMPLE).prunable()} == found
    torch.testing.assert_close(*cut_and_zeroed(model, EXAMPLE))


@pytest.mark.parametrize("groups", [2, 8])
def test_a_grouped_weight_that_stays_pins_its_channels(groups):
    def forward(net, x):
        total = torch.linalg.vector_norm(net.c.weight)
        return net.d(net.c(net.a(x))) * total

    layers = {"a": conv(3, 8), "c": conv(8, 8, groups=groups), "d": conv(8, 5)}
    assert "an axis that cannot be cut" in channel_groups(build(lambda: Net(forward, **layers)), EXAMPLE)["a"].reason


@pytest.mark.parametrize("blur", [(8, 1), (8, 1, 8), (6, 4, 2), (6, 8, 1)])
def test_multiply_adds_of_a_filter_that_is_not_learned_count(blur):
    model = blurred(*blur)
    groups = channel_groups(model, EXAMPLE)
    plan = {g.name: [0] for g in groups.prunable()}
    for network, left in ((model, {}), (cut(model, groups, plan)[0], plan)):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(EXAMPLE)
        assert cost_of(groups, "macs")(left) == counter.get_total_flops() // 2


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((2, 6, 4, 4), (2, 96), [([0], [0]), ([1, 2, 3], [1])]),
        ((2, 6, 4, 5), (2, 2, 3, 20), [([0], [0]), ([1], [1, 2]), ([2, 3], [3])]),
        ((1, 6, 1, 1), (1, 6), [([1], [1])]),
        ((4, 6), (6, 4), [([0, 1], [0, 1])]),
        ((2, 3, 4), (24,), [([0, 1, 2], [0])]),
        ((1, 1), (1,), []),
    ],
)
def test_blocks(before, after, expected):
    assert list(blocks(before, after)) == expected


def test_the_parameters_of_a_layer_that_is_not_understood_stay():
    """Words are rows of the table: to cut one because another layer shares it gives every later word another row."""

    def forward(net, words):
        return net.last(F.relu(F.linear(net.norm(net.table(words)), net.table.weight)))

    layers = {"table": nn.Embedding(12, 8), "norm": nn.LayerNorm(8), "last": nn.Linear(12, 5)}
    model, words = build(lambda: Net(forward, **layers)), torch.arange(12).reshape(2, 6)
    groups = channel_groups(model, words)
    assert groups.prunable() == [] and not groups.axes["table.weight"]


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_a_softmax_over_an_axis_that_is_not_said_keeps_them_all():
    model = build(lambda: nn.Sequential(conv(3, 8), nn.Softmax(None), conv(8, 5)))
    assert "mixes the channels" in channel_groups(model, EXAMPLE)["0"].reason
