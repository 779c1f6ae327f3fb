import operator

import pytest
import torch
from torch import fx, nn

from helpers.graphs.tracing import annotate, trace
from helpers.passes.passer import Passer
from helpers.passes.scalars import ScalarsToTensors
from tests.passes.graphs import network

ADD, MUL = torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor


def scalar_graph(target, *scalars, **keywords):
    """A graph that calls `target(x, scalar)` once for each scalar, in a row."""
    graph = fx.Graph()
    value = graph.placeholder("x")
    for scalar in scalars:
        value = graph.call_function(target, (value, scalar), keywords)
    graph.output(value)
    return fx.GraphModule(nn.Module(), graph)


DTYPES = [torch.int64, torch.int8, torch.float16, torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scalar", [3, 2.1, True])
def test_values_and_dtypes_stay_bit_for_bit(dtype, scalar):
    x = (torch.randn(5) * 9).to(dtype)
    graph_module = scalar_graph(MUL, scalar)
    annotate(graph_module, (x,))
    expected = graph_module(x)
    report = Passer([ScalarsToTensors()]).run(graph_module)
    assert [node.op for node in graph_module.graph.nodes] == ["placeholder", "get_attr", "call_function", "output"]
    assert len(report.changed) == 1
    assert graph_module(x).dtype == expected.dtype
    assert torch.equal(graph_module(x), expected)
    assert Passer([ScalarsToTensors()]).run(graph_module).changed == []


def test_scalars_that_the_schema_wants_as_scalars_stay():
    x = torch.randn(4)
    graph_module = scalar_graph(ADD, 2.5, alpha=3)
    annotate(graph_module, (x,))
    Passer([ScalarsToTensors()]).run(graph_module)
    add = next(node for node in graph_module.graph.nodes if node.op == "call_function")
    assert add.kwargs == {"alpha": 3}
    assert isinstance(add.args[1], fx.Node)
    assert torch.equal(graph_module(x), x + 7.5)


def test_an_exported_network():
    net = network(lambda net, x: (net.linear(x) * 2 + 1.5).clamp(0, 6), linear=nn.Linear(3, 3))
    x = torch.randn(2, 3)
    graph_module = trace(net, (x,), route="export")
    report = Passer([ScalarsToTensors()]).run(graph_module)
    assert [node for _, node, _ in report.changed] == ["mul", "add"]
    assert torch.equal(graph_module(x), net(x))


def test_python_functions_have_no_schema_and_stay():
    graph_module = scalar_graph(operator.add, 2)
    annotate(graph_module, (torch.randn(3),))
    assert Passer([ScalarsToTensors()]).run(graph_module).changed == []


def test_operands_without_dimensions_are_declined_since_the_dtype_would_change():
    x = torch.tensor(3, dtype=torch.int8)
    assert (x * 2).dtype != (x * torch.tensor(2)).dtype  # what a careless exchange would do
    graph_module = scalar_graph(MUL, 2)
    annotate(graph_module, (x,))
    report = Passer([ScalarsToTensors()]).run(graph_module)
    assert (report.changed, [node for _, node, _ in report.declined]) == ([], ["mul_tensor"])
