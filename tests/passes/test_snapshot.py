import torch
from torch import nn

from helpers.graphs.tracing import trace
from helpers.passes.passer import Snapshot
from tests.passes.zoo import conv, norm

X = torch.randn(2, 3, 6, 6)


class Pair(nn.Module):
    def forward(self, x):
        return {"one": x + 1, "two": x * 2}


def test_everything_that_a_pass_may_do_is_undone():
    graph_module = trace(nn.Sequential(conv(), norm(4), nn.ReLU()).eval(), (X,))
    expected, code, state = graph_module(X), graph_module.code, dict(graph_module.state_dict())
    shapes = [node.meta["val"].shape for node in graph_module.graph.nodes if "val" in node.meta]
    snapshot = Snapshot(graph_module)
    first, second, *_ = [node for node in graph_module.graph.nodes if node.op == "call_module"]
    second.replace_all_uses_with(first)
    graph_module.graph.erase_node(second)
    first.meta.clear()
    graph_module.graph.output_node().args = ((first, 1),)
    graph_module.delete_submodule("1")
    graph_module.get_submodule("0").bias = None
    graph_module.register_buffer("extra", torch.ones(2))
    graph_module.set_submodule("2", nn.Tanh())
    graph_module.recompile()
    assert graph_module.code != code
    snapshot.restore()
    assert graph_module.code == code and torch.equal(graph_module(X), expected)
    assert graph_module.state_dict().keys() == state.keys() and not hasattr(graph_module, "extra")
    assert [node.meta["val"].shape for node in graph_module.graph.nodes if "val" in node.meta] == shapes
    graph_module.graph.lint()


def test_the_signature_of_an_exported_network_comes_back():
    graph_module = trace(Pair().eval(), (X,), route="export")
    expected = graph_module(X)
    snapshot = Snapshot(graph_module)
    graph_module.graph.output_node().args = (graph_module.graph.output_node().all_input_nodes[0],)
    snapshot.restore()
    assert all(map(torch.equal, graph_module(X).values(), expected.values()))
