"""Every way in which channels hang together: what is found, what is refused and why, and that cuts
are exact.
"""

import copy
import functools
from collections import OrderedDict
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.metrics import count_parameters
from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import PruneError
from helpers.pruning.reader import ReadError
from helpers.pruning.surgery import cut
from tests.passes.zoo import Net, as_buffer
from tests.pruning.zeroing import random_plan, zeroed
from tests.pruning.zoo import (
    CHAIN,
    PRUNABLE,
    UNPRUNABLE,
    Block,
    ToyMobile,
    between,
    build,
    chain,
    conv,
    net,
)

EXAMPLE = torch.zeros(1, 3, 8, 8)


def groups_of(model):
    return channel_groups(model.eval(), EXAMPLE)


def sizes(groups):
    return {g.name: g.size for g in groups.prunable()}


@pytest.mark.parametrize("name", PRUNABLE)
def test_finds_the_groups(name):
    maker, expected = PRUNABLE[name]
    assert sizes(groups_of(build(maker))) == expected


def test_a_cache_asked_by_sizes_keeps_no_recording_for_later_calls():
    remembered = functools.cache(lambda channels, height, width: (-1, channels, height * 1, width))
    network = build(between(lambda y: y.view(*remembered(*y.shape[1:]))))
    for _ in range(2):
        assert sizes(groups_of(network)) == {"a": 8}
    network(EXAMPLE)
    assert all(type(number) is int for number in remembered(8, 8, 8))
    assert sizes(groups_of(network)) == {}  # now it holds numbers, which no cut changes


@pytest.mark.parametrize("name", UNPRUNABLE)
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_refuses_with_a_reason(name):
    maker, group, reason = UNPRUNABLE[name]
    assert reason in groups_of(build(maker))[group].reason


@pytest.mark.parametrize("name", PRUNABLE)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_cutting_is_exactly_zeroing(name, seed):
    model = build(PRUNABLE[name][0], seed % 1000).double()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    groups = channel_groups(model, EXAMPLE.double())
    plan = random_plan(groups, np.random.default_rng(seed))
    small, _ = cut(model, groups, plan)
    torch.testing.assert_close(small(x), zeroed(model, groups, plan)(x), rtol=1e-9, atol=1e-9)
    removed = count_parameters(model) - count_parameters(small)
    assert (removed > 0) == any(len(units) for units in plan.values())


class Pair(NamedTuple):
    low: torch.Tensor
    high: torch.Tensor


@pytest.mark.parametrize(
    "kind", [dict, OrderedDict, Pair, lambda low, high: [high, {"y": (low,)}, None, 0]]
)
def test_outputs_of_every_kind_stay(kind):
    groups = groups_of(
        net(lambda s, x: (lambda y: kind(low=y, high=s.c(s.b(y))))(s.a(x)), **CHAIN)()
    )
    assert sizes(groups) == {"b": 6}
    assert "output" in groups["a"].reason


OF_ONE = [
    lambda layer: layer.register_forward_hook(lambda module, args, output: output.roll(1, 1)),
    lambda layer: layer.register_forward_pre_hook(lambda module, args: (args[0].roll(1, 1),)),
    lambda layer: setattr(layer, "forward", lambda x: x.roll(1, 1)[:, :6]),
]


@pytest.mark.parametrize("change", [*OF_ONE, as_buffer, nn.utils.parametrizations.weight_norm])
def test_layers_that_do_not_compute_what_their_class_says_are_not_understood(change):
    model = build(PRUNABLE["chain"][0])
    change(model[3])
    assert "not understood" in groups_of(model)["0"].reason
    if change in OF_ONE:  # of the network itself, which torch.fx passes by
        change(model)
        by_hook = "forward" not in vars(model)
        reason = "hooks are not read; wrap it" if by_hook else "forward .* put it into a class"
        with pytest.raises(ReadError, match=f"Sequential: .*{reason}"):
            groups_of(model)
        if by_hook:
            assert "roll" in [node.target for node in groups_of(nn.Sequential(model)).nodes]


# As in a DenseNet: what a block adds stands beside what came in.
DENSE = Net(lambda s, x: torch.cat([x, s.outer(s.inner(x))], 1), inner=conv(8, 6), outer=conv(6, 4))
TRUNK = {"b": conv(8, 6), "c": conv(6, 8)}
HIDDEN = {
    "blocks": (ToyMobile, ["blocks.0.expand", "blocks.1.expand"]),
    "no block": (PRUNABLE["chain"][0], ["0", "3"]),
    # Layer 10 is in no block, although its name begins like that of layer 1.
    "layers between blocks": (
        chain(
            conv(3, 8), Block(8, 6), DENSE, *[nn.ReLU() for _ in range(7)], conv(12, 7), conv(7, 5)
        ),
        ["1.expand", "2.inner"],
    ),
    "adds": (
        net(lambda s, x: (lambda y: s.d(y + s.c(s.b(y))))(s.a(x)), **TRUNK, d=conv(8, 5)),
        ["b"],
    ),
    "concatenates": (
        net(lambda s, x: s.d(torch.cat([y := s.a(x), s.c(s.b(y))], 1)), **TRUNK, d=conv(16, 5)),
        ["b"],
    ),
    "adds a parameter": (
        net(lambda s, x: s.b(s.a(x) + s.w), w=nn.Parameter(torch.randn(8, 1, 1))),
        ["a"],
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_is_what_a_block_keeps_to_itself(name):
    maker, expected = HIDDEN[name]
    groups = groups_of(maker())
    assert [g.name for g in groups.prunable("hidden")] == expected
    with pytest.raises(PruneError, match="unknown scope 'al'"):
        groups.prunable("al")
    assert set(expected) <= sizes(groups).keys()


def test_three_reasons_are_enough():
    def step(y):
        return y.softmax(1) * y.roll(1, 1).mean() * y.cumprod(1).mean() * y.sort(1)[0].mean()

    reasons = groups_of(between(step)())["a"].reason.split("; ")
    assert [reason.split()[0] for reason in reasons] == ["softmax", "roll", "cumprod"]


def test_axes_without_channels_are_in_no_group():
    forward = lambda s, x: (lambda y: s.b(y * s.gate(y)))(s.a(torch.cat([x, x], 1)))  # noqa: E731
    assert [g.name for g in groups_of(net(forward, a=conv(6, 8), gate=conv(8, 1))())] == ["a", "b"]


@pytest.mark.parametrize(
    ("layers", "x"),
    [
        ((conv(3, 8), nn.ReLU(), nn.MaxPool2d(2), conv(8, 5)), torch.randn(3, 8, 8)),
        ((nn.Conv1d(3, 8, 3), nn.PReLU(), nn.Conv1d(8, 5, 3)), torch.randn(3, 8)),
        ((nn.Linear(3, 8), nn.PReLU(), nn.Linear(8, 5)), torch.randn(3)),
    ],
)
def test_a_network_may_do_without_a_batch(layers, x):
    model = nn.Sequential(*layers).eval()
    groups = channel_groups(model, x)
    assert sizes(groups) == {"0": 8}
    torch.testing.assert_close(
        cut(model, groups, {"0": [1]})[0](x), zeroed(model, groups, {"0": [1]})(x)
    )


@pytest.mark.parametrize("learned", [False, True])
def test_channels_without_filters_are_not_cut(learned):
    """A position table that a layer reads: nothing produces its columns, so there is nothing to
    rate them by.
    """
    model = Net(
        lambda s, x: x.mean((1, 2)) @ s.b(s.a(s.table)), a=nn.Linear(4, 6), b=nn.Linear(6, 5)
    )
    model.register_parameter("table", nn.Parameter(torch.randn(8, 4))) if learned else None
    model.register_buffer("table", torch.randn(8, 4)) if not learned else None
    groups = groups_of(model)
    assert sizes(groups) == {"a": 6}
    assert (
        "no layer has filters" in groups["table#2"].reason if learned else not groups.axes["table"]
    )


def test_the_parameters_of_a_layer_that_is_not_understood_stay():
    """Words are rows of the table: to cut one because another layer shares it gives every later
    word another row.
    """

    def forward(net, words):
        return net.last(F.relu(F.linear(net.norm(net.table(words)), net.table.weight)))

    layers = {"table": nn.Embedding(12, 8), "norm": nn.LayerNorm(8), "last": nn.Linear(12, 5)}
    groups = channel_groups(Net(forward, **layers).eval(), torch.arange(12).reshape(2, 6))
    assert groups.prunable() == [] and not groups.axes["table.weight"]


def test_a_table_counts_tensors_and_not_their_axes():
    shortcut = net(lambda s, x: s.b((y := s.a(x)) + s.c(y)), c=conv(8, 8))()
    table = groups_of(shortcut).table().set_index("group")
    assert table.tensors["a"] == len(["a.weight", "a.bias", "c.weight", "c.bias", "b.weight"])


def relu(x):
    return x.flip(0)


torch.fx.wrap("relu")


def mirrored_relu(x):
    return torch.relu(-x)


def test_a_function_is_looked_into_unless_it_is_declared_to_be_one_operation():
    assert groups_of(net(lambda s, x: s.b(mirrored_relu(s.a(x))))())["a"].reason is None
    reason = groups_of(net(lambda s, x: s.b(relu(s.a(x))))())["a"].reason
    assert "test_discovery.relu): this operation is not understood" in reason


def normed(s, x):
    return s.head(
        F.batch_norm(s.stem(x), s.norm.running_mean, s.norm.running_var, training=s.training)
    )


# Nothing calls one of its layers, and it cannot be trained on a batch of one.
IDLE = Net(
    normed, stem=nn.Linear(3, 8), norm=nn.BatchNorm1d(8), head=nn.Linear(8, 5), unused=conv(8, 5)
).eval()


class ByName(nn.Sequential):
    """Its input has to be named."""

    def forward(self, *, x):
        return super().forward(x)


class Remembering(nn.Identity):
    """As after a call outside of `torch.no_grad()`."""

    def __init__(self):
        super().__init__()
        self.cache = {"kept": 2 * nn.Parameter(torch.ones(3))}
        self.eval()


REFUSED = [
    (ToyMobile(), EXAMPLE, r"ToyMobile is in train mode; call model\.eval\(\)"),
    (
        Net(lambda s, x: x if x.sum() > 0 else -x).eval(),
        EXAMPLE,
        r"Net does not .* at node gt: .* rewritten",
    ),
    (
        net(lambda s, x: torch.vmap(lambda t: t.mean(0))(s.a(x)))().eval(),
        EXAMPLE,
        "at node ne: _add_batch_dim",
    ),
    (ToyMobile().eval(), torch.zeros(1, 4, 8, 8), "at node stem"),
    (ByName().eval(), EXAMPLE, "forward takes an input by its name alone: give it a place"),
    (Remembering(), EXAMPLE, "take out what keeps a tensor that was computed with gradients"),
    (ToyMobile().eval(), [3], "example_inputs: expected one tensor or a tuple"),
    (net(lambda s, x: SimpleNamespace(y=s.a(x)))().eval(), EXAMPLE, "at node a: .*SimpleNamespace"),
    (
        IDLE,
        torch.zeros(1, 3),
        r"node batch_norm: .* in train mode, .* not read 'norm\.bias': .* batch of two",
    ),
]


@pytest.mark.parametrize(("model", "example", "message"), REFUSED)
def test_networks_that_cannot_be_read_are_refused(model, example, message):
    with pytest.raises(ReadError, match=message):
        channel_groups(model, example)


def test_an_exported_program_is_refused():
    program = torch.export.export(ToyMobile().eval(), (EXAMPLE,))
    for graph in (program, program.module()):
        with pytest.raises(ReadError, match=r"recorded.*: prune the network that it was made of"):
            channel_groups(graph, EXAMPLE)


def test_a_layer_that_nothing_calls_does_no_harm():
    assert sizes(channel_groups(IDLE, torch.zeros(2, 3))) == {"stem": 8}


def test_the_model_is_left_alone():
    model = build(ToyMobile)
    before = copy.deepcopy(model.state_dict())
    attributes = [{k: v for k, v in vars(m).items() if isinstance(v, int)} for m in model.modules()]
    cut(model, groups_of(model), {"stem": np.arange(4)})
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert attributes == [
        {k: v for k, v in vars(m).items() if isinstance(v, int)} for m in model.modules()
    ]
