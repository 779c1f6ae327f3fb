"""What torch.fx would lose is recorded; tests/passes/zoo.py has the networks whose answers depend on it."""

import operator
import pickle

import pytest
import torch
from torch import fx, nn

from helpers.graphs.tracer import AUGMENTED, LostContext, Tracer
from helpers.graphs.tracing import trace
from helpers.passes.errors import UnsupportedCase
from tests.passes.graphs import network


def record(function, given: int = 1, **parts) -> fx.Graph:
    return Tracer(given).record(network(function, **parts))


def targets(graph: fx.Graph) -> list:
    return [node.target for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("function", AUGMENTED)
def test_augmented_assignments_write(function):
    graph = record(lambda net, x: function(x, 2))
    assert targets(graph) == [function]
    x = torch.tensor([3.0, 5.0] if function is operator.itruediv else [3, 5])
    expected = AUGMENTED[function](x, 2)
    result = fx.GraphModule(nn.Module(), graph)(x)
    assert torch.equal(result, expected) and torch.equal(x, expected)


def twice(net, x):
    net.count += 2
    net.count -= 1
    return x * net.count


def by_a_method(net, x):
    net.count = net.count.add_(1)
    return x * net.count


@pytest.mark.parametrize("run", [twice, by_a_method])
def test_a_buffer_may_be_counted_up(run):
    model = network(run, count=torch.zeros(()))
    count, graph = model.count, Tracer(1).record(model)
    assert model.count is count and count == 0
    traced = fx.GraphModule(model, graph)
    assert [traced(torch.ones(())).item() for _ in range(3)] == [1, 2, 3]


def test_a_buffer_cannot_be_exchanged():
    def run(net, x):
        net.mean = x.mean()
        return x - net.mean

    model = network(run, mean=torch.zeros(()))
    mean = model.mean
    with pytest.raises(UnsupportedCase, match=r"result of mean to its buffer mean.*self\.mean\.copy_"):
        trace(model, (torch.ones(2),))
    assert model.mean is mean


def any_number(net, x, y=None, *rest, scale=2.0, **others):
    return (x if y is None else x - y) * scale + len(rest) + sum(rest) + len(others)


@pytest.mark.parametrize("given", [1, 2, 4])
def test_as_many_inputs_as_the_call_gives(given):
    graph = record(any_number, given)
    assert [node.target for node in graph.nodes if node.op == "placeholder"] == ["x", "y", "rest_0", "rest_1"][:given]
    inputs = [torch.randn(3) for _ in range(given)]
    assert torch.equal(fx.GraphModule(nn.Module(), graph)(*inputs), any_number(None, *inputs))


def test_a_graph_that_was_saved_whole_does_the_same():
    def run(net, x, mask=None):
        net.count += 1
        x *= 2
        x[0] = torch.rand(())
        return x * mask + net.count

    model = network(run, count=torch.zeros(()))
    loaded = pickle.loads(pickle.dumps(fx.GraphModule(model, Tracer(2).record(model))))
    results = [loaded(torch.ones(2), torch.full((2,), 3.0)) for _ in range(3)]
    assert [result[1].item() for result in results] == [7, 8, 9]
    assert len({result[0].item() % 1 for result in results}) == 3


def under_autocast(net, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def test_autocast_would_be_forgotten_and_is_refused():
    with pytest.raises(LostContext, match=r"it calls matmul under torch\.autocast"):
        record(under_autocast)
    with torch.autocast("cpu"):
        assert targets(record(lambda net, x: x @ x)) == [operator.matmul]
