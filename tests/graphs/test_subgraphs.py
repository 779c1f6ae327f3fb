import pytest
import torch
from torch import fx, nn
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from helpers.graphs.partition import PartitionCycle, extract, from_ops, inline, propose
from tests.passes.graphs import graph_of


def nodes(graph_module, *names):
    return tuple(node for node in graph_module.graph.nodes if node.name in names)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head, self.shift = nn.Conv2d(4, 2, 1), nn.Buffer(torch.ones(4, 1, 1))

    def forward(self, x):
        y = self.body(x)
        z = torch.sin(y)
        return self.head(y + z + self.shift), y


SUPPORT = from_ops([nn.Conv2d, nn.BatchNorm2d, nn.ReLU])


def test_there_and_back_again():
    graph_module = fx.symbolic_trace(Block().eval())
    x = torch.randn(2, 3, 8, 8)
    expected, code, keys = graph_module(x), graph_module.code, set(graph_module.state_dict())
    assert extract(graph_module, propose(graph_module, SUPPORT, allow_single_node=True)) == ["part_0", "part_1"]
    assert [type(graph_module.get_submodule(name)).__name__ for name in ("part_0", "part_1")] == ["part_0", "part_1"]
    assert set(graph_module.state_dict()) != keys
    assert all(map(torch.equal, graph_module(x), expected))
    assert inline(graph_module) == ["part_0", "part_1"]
    assert all(map(torch.equal, graph_module(x), expected))
    assert graph_module.code == code
    assert set(graph_module.state_dict()) == keys


def test_several_results_are_handed_out_and_taken_back():
    graph_module = graph_of(lambda net, x: (torch.sin(x) * torch.cos(torch.sin(x)), torch.tanh(x)))
    x = torch.randn(4)
    expected, code = graph_module(x), graph_module.code
    extract(graph_module, [nodes(graph_module, "sin", "tanh", "sin_1")])
    assert graph_module.graph.find_nodes(op="call_module")
    assert all(map(torch.equal, graph_module(x), expected))
    inline(graph_module)
    assert all(map(torch.equal, graph_module(x), expected))
    assert graph_module.code.count("torch.") == code.count("torch.")


def test_a_group_that_waits_for_itself_is_refused():
    graph_module = graph_of(lambda net, x: (y := torch.relu(x)) + torch.sin(y))
    code = graph_module.code
    with pytest.raises(PartitionCycle, match=r"\{relu, add\} would wait"):
        extract(graph_module, [nodes(graph_module, "relu", "add")])
    assert graph_module.code == code


def test_two_groups_that_wait_for_each_other_are_refused_before_anything_changes():
    function = lambda net, x: (torch.cos(torch.sin(x)), torch.exp(torch.tanh(x)))  # noqa: E731
    graph_module = graph_of(function)
    groups = [nodes(graph_module, "sin", "exp"), nodes(graph_module, "cos", "tanh")]
    with pytest.raises(PartitionCycle, match=r"\{cos, tanh\} and \{sin, exp\} would wait"):
        extract(graph_module, groups)
    assert graph_module.code == graph_of(function).code
    with pytest.raises(AssertionError):  # torch notices too, but after it has made the first group
        fuse_by_partitions(graph_module, [dict.fromkeys(group) for group in groups])
    assert graph_module.graph.find_nodes(op="call_module")


def test_a_node_in_two_groups_is_refused():
    graph_module = graph_of(lambda net, x: torch.sin(torch.relu(x)))
    with pytest.raises(PartitionCycle, match="relu is not in this graph, or in two groups"):
        extract(graph_module, [nodes(graph_module, "relu"), nodes(graph_module, "relu", "sin")])


def test_a_taken_name_is_refused():
    graph_module = graph_of(lambda net, x: torch.relu(net.part_0(x)), part_0=nn.ReLU())
    with pytest.raises(ValueError, match="already has a 'part_0'"):
        extract(graph_module, [nodes(graph_module, "relu")])


def test_results_that_are_passed_on_as_one_stay_in_their_subgraph():
    root = nn.Module()
    root.two = fx.symbolic_trace(lambda x: (x + 1, x + 2))
    graph = fx.Graph()
    graph.output(graph.call_module("two", (graph.placeholder("x"),)))
    graph_module = fx.GraphModule(root, graph)
    assert inline(graph_module) == []
    assert graph_module(torch.tensor(1)) == (2, 3)
