import pytest
import torch
import torchvision
from torch import fx, nn

from helpers.graphs.tracing import trace
from helpers.passes.errors import GraphMismatch, UnsupportedCase
from helpers.passes.passer import Passer
from helpers.passes.type_inference import TypeInference, describe
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


def test_the_order_of_axes_is_carried_on():
    x = torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last)
    graph_module = trace(network(lambda net, x: torch.relu(x)), (x,))
    Passer(["type_inference"]).run(graph_module)
    known = {node.name: describe(node.meta["val"]) for node in graph_module.graph.nodes}
    assert known["x"] == known["relu"] == "float32 2x4x3x3 channels_last"


def test_operations_that_write_into_buffers_are_known_too():
    graph_module = trace(nn.Linear(3, 4).eval(), (torch.randn(2, 3),), "export")
    Passer(["out_variants", "type_inference"]).run(graph_module)
    (written,) = [node for node in graph_module.graph.nodes if "out" in node.kwargs]
    assert describe(written.meta["val"]) == "float32 2x4" and not written.meta["val"].requires_grad


def test_sizes_that_are_known_at_run_time_stay_symbols():
    size = torch.export.Dim("batch", min=2, max=64)
    net = network(lambda net, x: torch.cos(x) + torch.ones(x.shape[0], 3))
    graph_module = torch.export.export(net, (torch.randn(4, 3),), dynamic_shapes=({0: size},)).module(
        check_guards=False
    )
    cos = graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.cos.default)[0]
    before = cos.meta.pop("val").shape[0]
    Passer(["type_inference"]).run(graph_module)
    assert cos.meta["val"].shape[0].node.shape_env is before.node.shape_env
    calls = [node.meta["val"] for node in graph_module.graph.nodes if node.op == "call_function"]
    modes = {value.fake_mode for value in calls if isinstance(value, torch.Tensor)}
    assert modes == {graph_module.graph.find_nodes(op="placeholder")[0].meta["val"].fake_mode}  # torch asks for one


def test_a_node_that_was_left_out_is_named():
    with pytest.raises(GraphMismatch, match="node 'output': was not annotated"):
        TypeInference().ensures(trace(network(lambda net, x: x + 1), (torch.randn(2),)))


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
