import pytest
import torch
import torchvision
from torch import fx, nn

from helpers.passes.errors import GraphMismatch, UnsupportedCase
from helpers.passes.passer import Passer
from helpers.passes.tracing import trace
from helpers.passes.type_inference import describe
from tests.passes.graphs import graph_of, network


@pytest.mark.parametrize("route", ["fx", "export"])
def test_every_node_is_annotated_as_it_really_comes_out(route):
    layers = torchvision.models.mobilenet_v2().features[:4]
    model = nn.Sequential(layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)).eval()
    x = torch.randn(1, 3, 33, 33)
    graph_module = trace(model, (x,), route=route)
    for node in graph_module.graph.nodes:
        if node.op != "placeholder":
            node.meta.pop("val", None)
    Passer(["type_inference"]).run(graph_module)
    seen = {}

    class Watch(fx.Interpreter):
        def run_node(self, node):
            seen[node] = super().run_node(node)
            return seen[node]

    with torch.no_grad():
        Watch(graph_module).run(x)
    assert len(seen) == len(graph_module.graph.nodes)
    assert all(describe(node.meta["val"]) == describe(value) for node, value in seen.items())


def test_dtypes_layouts_tuples_and_numbers():
    def function(net, x):
        parts = torch.chunk(x.double(), 2, 1)
        return parts[0].contiguous(memory_format=torch.channels_last), x.shape[1] + 1, x > 0, x.transpose(0, 1)

    graph_module = trace(network(function), (torch.randn(2, 4, 3, 3),))
    Passer(["type_inference"]).run(graph_module)
    known = {node.name: describe(node.meta["val"]) for node in graph_module.graph.nodes}
    assert known["chunk"] == "(float64 2x2x3x3 strides 36x9x3x1, float64 2x2x3x3 strides 36x9x3x1)"
    assert known["contiguous"] == "float64 2x2x3x3 channels_last"
    assert known["add"] == "5"
    assert known["gt"] == "bool 2x4x3x3"
    assert known["transpose"] == "float32 4x2x3x3 strides 9x36x3x1"
    assert describe(torch.tensor(1.0)) == "float32 scalar"


def test_a_second_run_changes_nothing_and_a_changed_graph_is_renewed():
    graph_module = trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval(), (torch.randn(2, 3),))
    Passer(["type_inference"]).run(graph_module)
    assert Passer(["type_inference"]).run(graph_module).changed == []
    graph_module.set_submodule("0", nn.Linear(3, 7))
    report = Passer(["type_inference"]).run(graph_module)
    assert [(node, what) for _, node, what in report.changed] == [
        ("_0", "float32 2x7"),
        ("_1", "float32 2x7"),
        ("output", "float32 2x7"),
    ]


def test_a_node_that_does_not_fit_is_named():
    graph_module = trace(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).eval(), (torch.randn(2, 3),))
    graph_module.set_submodule("0", nn.Linear(3, 7))
    with pytest.raises(GraphMismatch, match="type_inference at node '_1': does not accept"):
        Passer(["type_inference"]).run(graph_module)


def test_unknown_inputs_are_refused():
    with pytest.raises(UnsupportedCase, match="node 'x': has no fake value"):
        Passer(["type_inference"]).run(graph_of(lambda net, x: x + 1))
