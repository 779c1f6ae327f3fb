import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from helpers.passes import activations
from helpers.passes.activations import RULES, Activation, NotFusable


def node_of(function):
    """The one call in a traced function."""
    nodes = fx.symbolic_trace(lambda x: function(x)).graph.nodes
    return next(node for node in nodes if node.op.startswith("call"))


@pytest.mark.parametrize(
    "function",
    [
        F.relu,
        F.relu6,
        lambda x: F.hardtanh(x, -2, 3),
        F.hardtanh,
        lambda x: F.leaky_relu(x, 0.2),
        F.hardswish,
        F.silu,
        F.gelu,
        torch.sigmoid,
        torch.tanh,
        lambda x: torch.clamp(x, 0, 6),
        lambda x: x.clamp(min=-1.5, max=0.5),
        lambda x: x.clip(min=0),
        lambda x: torch.ops.aten.clamp.default(x, 0, 2.5),
    ],
)
def test_the_name_and_the_numbers_compute_what_the_node_computes(function):
    x = torch.linspace(-8, 8, 101, dtype=torch.float64)
    name, scalars = activations.read(node_of(function))
    torch.testing.assert_close(RULES[name].plain(x, *scalars), function(x), rtol=0, atol=0)
    torch.testing.assert_close(RULES[name].in_place(x.clone(), *scalars), function(x), rtol=0, atol=0)


def test_numbers_are_kept_apart_from_the_inplace_flag():
    assert activations.read(node_of(lambda x: F.hardtanh(x, 0, 6, True))) == ("hardtanh", (0.0, 6.0))
    assert activations.read(node_of(lambda x: F.leaky_relu(x, inplace=True))) == ("leaky_relu", (0.01,))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: F.gelu(x, approximate="tanh"), "approximate='tanh'"),
        (lambda x: x.clamp(max=6), "one limit"),
        (lambda x: x.clamp(min=1), "one limit"),
    ],
)
def test_what_no_kernel_computes_is_refused_with_the_reason(function, reason):
    with pytest.raises(NotFusable, match=reason):
        activations.read(node_of(function))


def test_a_limit_that_is_computed_is_refused():
    graph = fx.Graph()
    x, limit = graph.placeholder("x"), graph.placeholder("limit")
    with pytest.raises(NotFusable, match="limit is not a number"):
        activations.read(graph.call_function(torch.clamp, (x, 0, limit)))


def test_other_functions_are_no_activations():
    assert operator.add not in activations.READERS
    assert torch.exp not in activations.READERS


def test_an_activation_reads_well():
    assert str(Activation("hardtanh", (0.0, 6.0))) == "hardtanh(0, 6)"
    assert str(Activation("relu")) == "relu"
