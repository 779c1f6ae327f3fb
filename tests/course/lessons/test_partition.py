import operator

import pytest
import torch
from torch import fx, nn
from torch.fx.passes.operator_support import create_op_support

from course.lessons import partition
from course.lessons.partition import (
    any_chain,
    chain,
    covered_by_both,
    extract,
    from_ops,
    from_patterns,
    propose,
)
from course.lessons.patterns import pattern_of
from helpers.graphs.patterns import OpPattern, Value
from tests.passes.graphs import graph_of


def names(partitions):
    return [" ".join(str(node) for node in nodes) for nodes in partitions]


SILU = pattern_of(lambda x: x * torch.sigmoid(x))
SINE = OpPattern([torch.sin], (Value("x"),))
RELU_VIEW, SIGMOID_MUL = from_ops([torch.relu, "view"]), from_ops([torch.sigmoid, operator.mul])
FIRST, SECOND = from_ops([torch.sin, torch.cos]), from_ops([torch.cos, torch.tanh])
NETWORKS = {
    "conv": graph_of(
        lambda net, x: torch.relu(torch.sin(torch.relu(net.conv(x)) + 1)).abs(),
        conv=nn.Conv2d(1, 1, 1),
    ),
    "modules": graph_of(
        lambda net, x: net.bn(net.conv(x)), conv=nn.Conv2d(1, 1, 1), bn=nn.BatchNorm2d(1)
    ),
    "views": graph_of(lambda net, x: torch.relu(torch.sin(torch.relu(x.view(-1))))),
    "chain": graph_of(lambda net, x: torch.sin(torch.cos(torch.tanh(x)))),
    "silu": graph_of(lambda net, x: torch.sigmoid((y := torch.sin(x)) * torch.sigmoid(y))),
}
# network, support (of that network), options, groups
GROUPS = [
    (
        "conv",
        from_ops([nn.Conv2d, torch.relu, operator.add, "abs"]),
        {},
        ["conv relu add", "relu_1 abs_1"],
    ),
    (
        "modules",
        from_ops([nn.Conv2d, nn.BatchNorm2d]),
        {},
        ["conv bn"],
    ),  # which torch does not count as computation
    ("views", RELU_VIEW, {}, ["view relu"]),
    ("views", RELU_VIEW, {"allow_single_node": True}, ["view relu", "relu_1"]),
    ("views", RELU_VIEW, {"non_compute": ["view"]}, []),
    ("views", from_ops(["view"]), {"allow_single_node": True, "non_compute": ["view"]}, []),
    ("chain", chain(FIRST, SECOND), {"allow_single_node": True}, ["cos"]),
    ("chain", any_chain(FIRST, SECOND), {"allow_single_node": True}, ["tanh cos sin"]),
    ("silu", from_patterns(NETWORKS["silu"], [SILU]), {}, ["sigmoid mul"]),
    ("silu", from_patterns(NETWORKS["silu"], [SILU, SINE]), {}, ["sin sigmoid mul"]),
    ("silu", covered_by_both(NETWORKS["silu"], SIGMOID_MUL, [SILU]), {}, ["sigmoid mul"]),
    # half a match is of no use to an engine that wants the whole
    ("silu", covered_by_both(NETWORKS["silu"], from_ops([operator.mul]), [SILU]), {}, []),
    (
        "silu",
        any_chain(SIGMOID_MUL, from_patterns(NETWORKS["silu"], [SILU])),
        {},
        ["sigmoid mul sigmoid_1"],
    ),
]


@pytest.mark.parametrize(("network", "support", "options", "groups"), GROUPS)
def test_the_largest_groups_of_supported_operations(network, support, options, groups):
    assert names(propose(NETWORKS[network], support, **options)) == groups


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_have_disjoint_supported_acyclic_partitions(seed):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda count: int(torch.randint(count, (), generator=generator))  # noqa: E731
    graph = fx.Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    for _ in range(25):
        operands = (values[draw(len(values))], values[-1 - draw(3 if len(values) > 2 else 2)])
        values.append(graph.call_function([torch.add, torch.mul][draw(2)], operands))
    graph.output(tuple(values[-3:]))
    network = fx.GraphModule(nn.Module(), graph)
    chosen = {node for node in graph.nodes if draw(3)}
    support = create_op_support(lambda modules, node: node in chosen and node.op == "call_function")
    partitions = propose(network, support, allow_single_node=True)
    nodes = [node for group in partitions for node in group]
    assert sorted(nodes) == sorted(node for node in chosen if node.op == "call_function")
    partition.check_acyclic(network, partitions)  # and disjoint


def nodes(graph_module, names):
    return tuple(node for node in graph_module.graph.nodes if node.name in names.split())


def test_groups_become_submodules_with_what_they_read():
    parts = {"conv": nn.Conv2d(3, 4, 3), "head": nn.Conv2d(4, 2, 1), "shift": torch.ones(4, 1, 1)}
    network = graph_of(
        lambda net, x: (net.head(torch.sin(y := torch.relu(net.conv(x))) + y + net.shift), y),
        **parts,
    )
    x = torch.randn(2, 3, 8, 8)
    expected, groups = (
        network(x),
        propose(network, from_ops([nn.Conv2d, torch.relu]), allow_single_node=True),
    )
    assert extract(network, groups) == ["part_0", "part_1"]
    assert all(map(torch.equal, network(x), expected))
    assert {name.split(".")[0] for name in network.state_dict()} == {"part_0", "part_1", "shift"}


REFUSED = [
    (lambda net, x: (y := torch.relu(x)) + torch.sin(y), ["relu add"], r"\{relu, add\} would wait"),
    (
        lambda net, x: (torch.cos(torch.sin(x)), torch.exp(torch.tanh(x))),
        ["sin exp", "cos tanh"],
        r"tanh\} and \{sin",
    ),
    (
        lambda net, x: torch.sin(torch.relu(x)),
        ["relu", "relu sin"],
        "relu is not in this graph, or in",
    ),
    (lambda net, x: torch.relu(net.part_0(x)), ["relu"], "already has a 'part_0'"),
]


@pytest.mark.parametrize(("function", "groups", "message"), REFUSED)
def test_groups_that_cannot_be_cut_out_are_refused_before_anything_changes(
    function, groups, message
):
    network = graph_of(function, part_0=nn.ReLU())
    code = network.code
    with pytest.raises(ValueError, match=message):
        extract(network, [nodes(network, names) for names in groups])
    assert network.code == code
