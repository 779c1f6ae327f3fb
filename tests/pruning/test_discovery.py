"""Every way in which channels hang together: what is found, what is refused and why, and that cuts are exact."""

import copy
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.pruning.discovery import channel_groups
from helpers.pruning.reader import TraceError
from helpers.pruning.surgery import cut
from tests.pruning.refusals import UNPRUNABLE
from tests.pruning.zeroing import cut_and_zeroed, random_plan, zeroed
from tests.pruning.zoo import PRUNABLE, Block, Net, ToyMobile, build, chain, conv, net

EXAMPLE = torch.zeros(1, 3, 8, 8)


def groups_of(model):
    return channel_groups(model, EXAMPLE)


@pytest.mark.parametrize("name", PRUNABLE)
def test_finds_the_groups(name):
    maker, expected = PRUNABLE[name]
    groups = channel_groups(build(maker), EXAMPLE)
    assert {g.name: g.size for g in groups.prunable()} == expected


@pytest.mark.parametrize("name", UNPRUNABLE)
def test_refuses_with_a_reason(name):
    maker, group, reason = UNPRUNABLE[name]
    groups = channel_groups(build(maker), EXAMPLE)
    assert reason in groups[group].reason


@pytest.mark.parametrize("name", PRUNABLE)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_cutting_is_exactly_zeroing(name, seed):
    model = build(PRUNABLE[name][0], seed % 1000).double()
    groups = channel_groups(model, EXAMPLE.double())
    plan = random_plan(groups, np.random.default_rng(seed))
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    small, _ = cut(model, groups, plan)
    torch.testing.assert_close(small(x), zeroed(model, groups, plan)(x), rtol=1e-9, atol=1e-9)
    removed = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in small.parameters())
    assert (removed > 0) == any(len(units) for units in plan.values())


class Pair(list):
    def __init__(self, low, high):
        super().__init__([low, high])


class Slotted:
    __slots__ = ("high", "low")

    def __init__(self, low, high):
        self.low, self.high = low, high


KINDS = [dict, OrderedDict, SimpleNamespace, Pair, Slotted, lambda low, high: (high, Slotted([Slotted(low, 0)], None))]


@pytest.mark.parametrize("kind", [*KINDS, lambda low, high: {"y": (low, high)}.values()])
def test_outputs_of_every_kind_stay(kind):
    layers = {"a": conv(3, 8), "b": conv(8, 6), "c": conv(6, 5)}
    model = Net(lambda s, x: (lambda y: kind(low=y, high=s.c(s.b(y))))(s.a(x)), **layers)
    groups = groups_of(build(lambda: model))
    assert {g.name: g.size for g in groups.prunable()} == {"b": 6}
    assert "output" in groups["a"].reason


def as_buffer(layer):
    weight = layer.weight.detach()
    del layer.weight
    layer.register_buffer("weight", weight)


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.register_forward_hook(lambda module, args, output: output.roll(1, 1)),
        lambda layer: layer.register_forward_pre_hook(lambda module, args: (args[0].roll(1, 1),)),
        as_buffer,
        nn.utils.parametrizations.weight_norm,
    ],
)
def test_hooks_and_parametrisations_are_not_understood(change):
    model = build(PRUNABLE["chain"][0])
    change(model[3])
    assert "not understood" in channel_groups(model, EXAMPLE)["0"].reason


def test_the_output_and_the_input_stay():
    groups = channel_groups(build(ToyMobile), EXAMPLE)
    assert "output" in groups["head"].reason
    assert all(labels is not None for labels in groups.axes["stem.weight"].values())
    assert 1 not in groups.axes["stem.weight"]


class Dense(nn.Module):
    """As in a DenseNet: what a block adds stands beside what came in."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = conv(8, 6), conv(6, 4)

    def forward(self, x):
        return torch.cat([x, self.outer(self.inner(x))], 1)


TRUNK = {"a": conv(3, 8), "b": conv(8, 6), "c": conv(6, 8)}
HIDDEN = {
    "blocks": (ToyMobile, ["blocks.0.expand", "blocks.1.expand"]),
    "no block": (PRUNABLE["chain"][0], ["0", "3"]),
    # Layer 10 is in no block, although its name begins like that of layer 1.
    "layers between blocks": (
        chain(conv(3, 8), Block(8, 6), Dense(), *[nn.ReLU() for _ in range(7)], conv(12, 7), conv(7, 5)),
        ["1.expand", "2.inner"],
    ),
    "one block that adds": (
        net(lambda s, x: (lambda y: s.d(y + s.c(s.b(y))))(s.a(x)), **TRUNK, d=conv(8, 5)),
        ["b"],
    ),
    "one block that concatenates": (
        net(lambda s, x: (lambda y: s.d(torch.cat([y, s.c(s.b(y))], 1)))(s.a(x)), **TRUNK, d=conv(16, 5)),
        ["b"],
    ),
    "a parameter that is added": (
        net(lambda s, x: s.b(s.a(x) + s.w), a=conv(3, 8), b=conv(8, 5), w=nn.Parameter(torch.randn(8, 1, 1))),
        ["a"],
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_is_what_a_block_keeps_to_itself(name):
    maker, expected = HIDDEN[name]
    groups = groups_of(build(maker))
    assert [g.name for g in groups.prunable("hidden")] == expected
    assert set(expected) <= {g.name for g in groups.prunable()}


def test_three_reasons_are_enough():
    def forward(net, x):
        x = net.a(x)
        return net.b(x.softmax(1)) * x.roll(1, 1).mean() * x.flip(1).mean() * x.sort(1)[0].mean()

    reason = groups_of(build(lambda: Net(forward, a=conv(3, 8), b=conv(8, 5))))["a"].reason
    assert [part.split()[0] for part in reason.split("; ")] == ["softmax", "roll", "flip"]


def test_the_pieces_of_a_concatenation_are_its_parts():
    layers = {"a": conv(3, 6), "b": conv(3, 2), "c": conv(6, 5), "d": conv(2, 5)}
    forward = lambda s, x: (lambda p, q: s.c(p) + s.d(q))(*torch.cat([s.a(x), s.b(x)], 1).split([6, 2], 1))  # noqa: E731
    groups = groups_of(build(lambda: Net(forward, **layers)))
    readers = [{m.tensor for m in groups[name].members if m.dim == 1} for name in "ab"]
    assert readers == [{"c.weight"}, {"d.weight"}]


def test_axes_without_channels_are_in_no_group():
    layers = {"a": conv(6, 8), "gate": conv(8, 1), "b": conv(8, 5)}
    forward = lambda s, x: (lambda y: s.b(y * s.gate(y)))(s.a(torch.cat([x, x], 1)))  # noqa: E731
    assert [g.name for g in groups_of(build(lambda: Net(forward, **layers)))] == ["a", "b"]


def test_a_network_may_do_without_a_batch():
    model = build(lambda: nn.Sequential(conv(3, 8), nn.ReLU(), nn.MaxPool2d(2), conv(8, 5)))
    groups = channel_groups(model, EXAMPLE[0])
    assert {g.name: g.size for g in groups.prunable()} == {"0": 8}
    torch.testing.assert_close(*cut_and_zeroed(model, EXAMPLE[0]))


def test_the_auxiliary_head_follows_in_train_mode():
    model = build(PRUNABLE["auxiliary head"][0])
    groups = channel_groups(model, EXAMPLE)
    small, _ = cut(model, groups, {"stem": np.array([0, 5])})
    assert [tuple(y.shape) for y in small.train()(torch.randn(2, 3, 8, 8))] == [(2, 5), (2, 5)]


def test_a_table_of_constants_gives_no_channels():
    """A position table that a layer reads: nothing produces its columns, so there is nothing to rate or to cut."""
    model = Net(lambda s, x: x.mean((2, 3)) @ s.b(s.a(s.table)), a=nn.Linear(4, 6), b=nn.Linear(6, 5))
    model.register_buffer("table", torch.randn(3, 4))
    groups = groups_of(model.eval())
    assert {g.name: g.size for g in groups.prunable()} == {"a": 6}
    assert not groups.axes["table"]


def test_channels_without_filters_are_not_cut():
    """Nothing produces a learned table, so there is nothing to rate its columns by."""
    layers = {"table": nn.Parameter(torch.randn(8, 4)), "a": nn.Linear(4, 6), "b": nn.Linear(6, 5)}
    groups = groups_of(build(lambda: Net(lambda s, x: x.mean((1, 2)) @ s.b(s.a(s.table)), **layers)))
    assert {g.name: g.size for g in groups.prunable()} == {"a": 6}
    assert "no layer has filters" in groups["table#2"].reason


def test_a_function_that_is_declared_to_be_one_operation_is_not_looked_into():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), Stranger(), nn.Conv2d(8, 4, 1)).eval()
    assert "test_discovery.relu): this operation is not understood" in groups_of(model)["0"].reason
    assert relu(torch.arange(3)).tolist() == [2, 1, 0]


def relu(x):
    return inner(x.flip(0))


def inner(x):
    return x.clone()


torch.fx.wrap("relu")
torch.fx.wrap("inner")


class Stranger(nn.Module):
    def forward(self, x):
        return relu(x)


def test_a_plain_function_of_somebody_else_is_looked_into():
    model = Net(lambda s, x: s.b(mirrored_relu(s.a(x))), a=conv(3, 8), b=conv(8, 5))
    assert groups_of(model.eval())["a"].reason is None


def mirrored_relu(x):
    return torch.relu(-x)


def test_train_mode_is_refused():
    with pytest.raises(TraceError, match=r"ToyMobile is in train mode; call model\.eval\(\)"):
        channel_groups(ToyMobile(), EXAMPLE)


def test_control_flow_that_depends_on_values_is_refused_by_name():
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(TraceError, match=r"Branching does not run without content .* at node decision: .* rewritten"):
        channel_groups(Branching().eval(), EXAMPLE)


def test_what_torch_fx_cannot_follow_is_refused_with_the_place():
    model = Net(lambda s, x: s.b(torch.vmap(lambda t: t.mean(0, keepdim=True))(s.a(x))), a=conv(3, 8), b=conv(1, 5))
    with pytest.raises(TraceError, match="at node a: vmap"):
        groups_of(model.eval())


class Idle(nn.Module):
    """Nothing calls one of its layers, and it cannot be trained on a batch of one."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.head, self.unused = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 5), conv(8, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head(F.batch_norm(x, self.norm.running_mean, self.norm.running_var, training=self.training))


def test_a_network_that_fails_in_train_mode_is_refused_by_the_layer_for_which_it_was_read_in_it():
    model = build(Idle)
    with pytest.raises(TraceError, match=r"node batch_norm: .* in train mode, .* not call 'unused': .* batch of two"):
        channel_groups(model, torch.zeros(1, 3))
    assert {g.name: g.size for g in channel_groups(model, torch.zeros(2, 3)).prunable()} == {"stem": 8}


def test_inputs_of_the_wrong_shape_are_refused_with_the_place():
    with pytest.raises(TraceError, match="at node stem"):
        channel_groups(build(ToyMobile), torch.zeros(1, 4, 8, 8))
    with pytest.raises(TraceError, match="example_inputs"):
        channel_groups(build(ToyMobile), [3])


def test_the_model_is_left_alone():
    model = build(ToyMobile)
    before = copy.deepcopy(model.state_dict())
    attributes = [{k: v for k, v in vars(m).items() if isinstance(v, int)} for m in model.modules()]
    groups = channel_groups(model, EXAMPLE)
    cut(model, groups, {"stem": np.arange(4)})
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert attributes == [{k: v for k, v in vars(m).items() if isinstance(v, int)} for m in model.modules()]


def test_table_lists_every_group():
    table = channel_groups(build(ToyMobile), EXAMPLE).table()
    assert table["group"].tolist() == ["stem", "blocks.0.expand", "blocks.1.expand", "head"]
    assert table["units"].tolist() == [8, 24, 16, 5]
