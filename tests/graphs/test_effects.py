import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers.graphs.effects import Storage, is_fresh, is_pure, is_random, written_inputs
from helpers.graphs.tracer import Tracer
from tests.passes.graphs import network

fx.wrap("somebody")


def somebody(x):
    return x


def graph_of(function, **parts) -> fx.GraphModule:
    model = network(function, **parts)
    return fx.GraphModule(model, Tracer(1).record(model))


def node_of(function, **parts) -> tuple[fx.Node, nn.Module | None]:
    graph_module = graph_of(function, **parts)
    *_, node = [node for node in graph_module.graph.nodes if node.op.startswith("call_")]
    return node, graph_module.get_submodule(node.target) if node.op == "call_module" else None


def set_item(net, x):
    x[0] = 1.0


WRITES = {
    "add_": lambda net, x: x.add_(1),
    "torch.relu_": lambda net, x: torch.relu_(x),
    "iadd": lambda net, x: operator.iadd(x, 1),
    "setitem": set_item,
    "inplace=True": lambda net, x: F.relu(x, inplace=True),
    "inplace by position": lambda net, x: F.relu(x, True),
    "inplace module": lambda net, x: net.act(x),
    "aten": lambda net, x: torch.ops.aten.mul_.Tensor(x, x),
    "out=": lambda net, x: torch.add(1, 2, out=x),
    "unknown": lambda net, x: somebody(x),
    "input by keyword": lambda net, x: F.relu_(input=x),
}
DOES_NOT = {
    "relu": lambda net, x: torch.relu(x),
    "view": lambda net, x: x.view(-1),
    "inplace=False": lambda net, x: F.relu(x, inplace=False),
    "module": lambda net, x: net.layer(x),
    "aten": lambda net, x: torch.ops.aten.mul.Tensor(x, x),
    "dunder": lambda net, x: x.__add__(1),
}
PARTS = {"act": nn.ReLU(inplace=True), "layer": nn.Linear(2, 2)}


@pytest.mark.parametrize("what", WRITES)
def test_what_writes(what):
    node, module = node_of(WRITES[what], **PARTS)
    assert [str(source) for source in written_inputs(node, module)] == ["x"] and not is_pure(node, module)
    assert not is_fresh(node, module)


@pytest.mark.parametrize("what", DOES_NOT)
def test_what_does_not_write(what):
    node, module = node_of(DOES_NOT[what], **PARTS)
    assert written_inputs(node, module) == [] and is_pure(node, module)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda net, x: torch.rand_like(x), True),
        (lambda net, x: F.dropout(x), True),
        (lambda net, x: F.dropout(x, 0.5, False), False),
        (lambda net, x: F.dropout(x, training=False), False),
        (lambda net, x: torch.exp(x), False),
    ],
)
def test_what_is_random(function, expected):
    assert is_random(node_of(function)[0]) == expected


def test_a_subgraph_of_torch_may_do_anything():
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops.higher_order.wrap_with_set_grad_enabled, (False, None, x))
    assert written_inputs(node) == [x] and not is_fresh(node)


def test_storage_is_shared_through_views_and_written_through_any():
    def run(net, x):
        y = torch.exp(x)
        view = y.view(-1)
        other = y * 2
        part = view[1:]
        part.add_(1)
        return y, other, net.weight.detach().mul_(2), net.kept

    graph_module = graph_of(run, weight=torch.ones(2), kept=torch.ones(2))
    storage = Storage(graph_module)
    written = {node.name for node in graph_module.graph.nodes if storage.is_written(node)}
    assert written == {"exp", "view", "getitem", "add_", "weight", "detach", "mul_"}
    assert storage.is_tensor_written(graph_module.weight) and storage.is_tensor_written(graph_module.weight[:1])
    assert not storage.is_tensor_written(graph_module.kept) and not storage.is_tensor_written(None)
