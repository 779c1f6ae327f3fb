"""Rules for values: arguments by any of their names, results in several parts, and what is not understood."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.discovery import channel_groups
from tests.pruning.zeroing import cut_and_zeroed
from tests.pruning.zoo import Net, build, conv

EXAMPLE = torch.zeros(1, 3, 8, 8)


def prunable(model, example=EXAMPLE):
    return {g.name: g.size for g in channel_groups(model, example).prunable()}


NUMPY = {
    "mean": (lambda s, x: s.b(s.a(x).mean(axis=(2, 3))), {"a": conv(3, 8), "b": nn.Linear(8, 5)}),
    "sum": (lambda s, x: s.b(s.a(x) * s.a(x).sum(axis=2, keepdims=True)), {"a": conv(3, 8), "b": conv(8, 5)}),
    "cat": (lambda s, x: s.b(torch.cat([s.a(x), -s.a(x)], axis=-3)), {"a": conv(3, 8), "b": conv(16, 5)}),
    "swapaxes": (
        lambda s, x: s.b(s.a(x).swapaxes(axis0=1, axis1=2).mean(1)),
        {"a": nn.Linear(8, 8), "b": nn.Linear(8, 5)},
    ),
}


@pytest.mark.parametrize("name", NUMPY)
def test_axes_may_have_the_names_that_numpy_gives_them(name):
    forward, layers = NUMPY[name]
    model = build(lambda: Net(forward, **layers))
    assert prunable(model) == {"a": 8}
    torch.testing.assert_close(*cut_and_zeroed(model, EXAMPLE))


@pytest.mark.parametrize("arguments", [{}, {"dim": ()}, {"dim": None}])
def test_a_sum_over_no_axis_by_name_is_over_all(arguments):
    model = build(lambda: Net(lambda s, x: s.b(x) * torch.sum(s.a(x), **arguments), a=conv(3, 8), b=conv(3, 5)))
    assert "how many channels" in channel_groups(model, EXAMPLE)["a"].reason


def test_pooling_gives_the_places_of_the_largest_values_as_well():
    pool = nn.MaxPool2d(2, return_indices=True)
    model = build(lambda: Net(lambda s, x: s.b(s.pool(s.a(x))[0]), a=conv(3, 8), pool=pool, b=conv(8, 5)))
    assert prunable(model) == {"a": 8}


def test_the_parameters_of_a_layer_that_is_not_understood_stay():
    """Words are rows of the table: to cut one because another layer shares it gives every later word another row."""

    def forward(net, words):
        return net.last(F.relu(F.linear(net.norm(net.table(words)), net.table.weight)))

    layers = {"table": nn.Embedding(12, 8), "norm": nn.LayerNorm(8), "last": nn.Linear(12, 5)}
    model, words = build(lambda: Net(forward, **layers)), torch.arange(12).reshape(2, 6)
    assert prunable(model, words) == {}
    assert not channel_groups(model, words).axes["table.weight"]


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_a_softmax_over_an_axis_that_is_not_said_keeps_them_all():
    model = build(lambda: nn.Sequential(conv(3, 8), nn.Softmax(None), conv(8, 5)))
    assert "mixes the channels" in channel_groups(model, EXAMPLE)["0"].reason
