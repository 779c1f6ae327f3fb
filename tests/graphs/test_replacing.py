import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from helpers.graphs.patterns import Op, Value, traced
from helpers.graphs.replacing import ReplacementError, by_function, replace_all
from tests.passes.graphs import graph_of

SILU = traced(lambda x: x * torch.sigmoid(x))


def targets(graph_module):
    return [node.target for node in graph_module.graph.nodes if node.op.startswith("call")]


def test_a_match_is_replaced_and_reported():
    network = graph_of(lambda net, x: torch.sigmoid(x + 1) * (x + 1) + torch.sigmoid(x) * x)
    x = torch.randn(5, dtype=torch.float64)
    expected = network(x)
    (report,) = replace_all(network, SILU, by_function(lambda x: F.silu(x)))
    assert report.anchor == "mul_1"  # the first product is of two different sums
    assert report.removed == ("mul_1", "sigmoid_1")
    assert [str(node) for node in report.inserted] == ["silu"]
    assert (report.result,) == report.inserted
    assert set(map(str, report.nodes_map.values())) == {"x", "sigmoid_1", "mul_1"}
    assert targets(network).count(F.silu) == 1
    torch.testing.assert_close(network(x), expected, rtol=1e-12, atol=0)


def test_matches_in_a_row_feed_each_other():
    network = graph_of(lambda net, x: (y := x * torch.sigmoid(x)) * torch.sigmoid(y))
    x = torch.randn(5, dtype=torch.float64)
    expected = network(x)
    assert len(replace_all(network, SILU, by_function(lambda x: F.silu(x)))) == 2
    assert targets(network) == [F.silu, F.silu]
    torch.testing.assert_close(network(x), expected, rtol=1e-12, atol=0)


def test_metadata_is_carried_over():
    network = fx.symbolic_trace(nn.Sequential(nn.Hardsigmoid(), nn.Tanh()))
    ShapeProp(network).propagate(torch.randn(2, 3))
    old = network.graph.find_nodes(op="call_module", target="1")[0]
    old.meta["stack_trace"], shape = "file.py line 7", old.meta["tensor_meta"].shape
    pattern = Op([nn.Tanh], (Value("x"),))
    (report,) = replace_all(network, pattern, by_function(lambda x: 2 * torch.sigmoid(2 * x) - 1))
    assert [str(node.target.__name__) for node in report.inserted] == ["mul", "sigmoid", "mul", "sub"]
    assert all(node.meta["stack_trace"] == "file.py line 7" for node in report.inserted)
    assert all(node.meta["nn_module_stack"] == old.meta["nn_module_stack"] for node in report.inserted)
    assert report.result.meta["tensor_meta"].shape == shape
    assert "tensor_meta" not in report.inserted[0].meta  # nobody knows the shape of the steps in between


def test_the_inserted_nodes_may_use_the_replaced_one_again():
    network = graph_of(lambda net, x: torch.relu(x) + 1)

    def build(match):
        return match.graph_module.graph.call_function(torch.neg, (match.anchor,))

    (report,) = replace_all(network, Op([torch.relu]), build)
    assert report.removed == ()
    assert targets(network) == [torch.relu, torch.neg, operator.add]
    assert network(torch.tensor(3.0)) == -2


def test_modules_of_the_replacement_move_in_under_free_names():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.shift = nn.Linear(3, 3), nn.Buffer(torch.ones(3))

        def forward(self, x):
            return self.linear(x) + self.shift

    scale = Scale()
    network = graph_of(lambda net, x: net.linear(torch.tanh(torch.tanh(x))), linear=nn.Linear(3, 2))
    replace_all(network, Op([torch.tanh], (Value("x"),)), by_function(scale))
    assert [name for name, _ in network.named_children()] == ["linear", "linear_1"]
    x = torch.randn(2, 3)
    torch.testing.assert_close(network(x), network.linear(scale(scale(x))))


def test_a_replacement_with_the_wrong_number_of_results_changes_nothing():
    network = graph_of(lambda net, x: torch.sin(x))
    before = str(network.graph)
    with pytest.raises(ReplacementError, match="must be one node"):
        replace_all(network, traced(lambda x: torch.sin(x)), by_function(lambda x: (x + 1, x + 2)))
    assert str(network.graph) == before


def test_values_are_handed_over_by_name():
    network = graph_of(lambda net, x, y: x - y)
    replace_all(network, traced(lambda b, a: a - b), by_function(lambda b, a: torch.sub(a, b)))
    assert network(torch.tensor(5), torch.tensor(3)) == 2
