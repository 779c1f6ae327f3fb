"""Patterns made of functions, the search with options, and what takes a match's place."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from course.lessons.patterns import find, pattern_of
from course.lessons.replacing import replace_all
from helpers.graphs.errors import Declined
from helpers.graphs.patterns import Constant, OpPattern, Value
from tests.passes.graphs import calls, graph_of

SILU = pattern_of(lambda x: x * torch.sigmoid(x))
LAYERS = {"conv": nn.Conv2d(3, 4, 1), "bn": nn.BatchNorm2d(4)}
CONV_BN = OpPattern([nn.BatchNorm2d], (OpPattern([nn.Conv2d], name="conv"),), name="bn")
X = Value("x")
ADD = [operator.add]
RELU = OpPattern([torch.relu], (X,))
PAIR = OpPattern([torch.relu], (OpPattern([torch.relu]),))
TWICE = OpPattern(ADD, (X, OpPattern([operator.mul], (X, 4))))


def two(net, x):
    return torch.relu(torch.relu(x))


def three(net, x):
    return torch.relu(two(net, x))


LITERALS = {"any_literals": True}
SHIFTED = OpPattern(ADD, (X, 4))
# network, pattern, options, anchors of the matches, what is declined and why
FOUND = {
    "the first of two that overlap": (
        *(three, PAIR, {}),
        *(["relu_1"], ["relu_2: relu_1 already belongs to the match at relu_1"]),
    ),
    "both": (three, PAIR, {"allow_overlap": True}, ["relu_1", "relu_2"], []),
    "any literal": (lambda net, x: x + 3, SHIFTED, LITERALS, ["add"], []),
    "any literal inside": (lambda net, x: x + x * 3, TWICE, LITERALS, ["add"], []),
    "any literal, two values": (lambda net, x, y: x + y * 3, TWICE, LITERALS, [], []),
    "no literal": (lambda net, x, y: x + y, SHIFTED, LITERALS, [], ["add: y is not a literal"]),
    "the output": (
        *(two, RELU, {"match_output": True}),
        *(["relu_1"], ["relu: is not what the network returns (relu_1)"]),
    ),
    "inputs": (
        *(two, RELU, {"match_placeholders": True}),
        *(["relu"], ["relu_1: relu is not an input of the network"]),
    ),
    "inputs, and any literal": (
        *(lambda net, x: x + 3, SHIFTED, {"match_placeholders": True, **LITERALS}),
        *(["add"], []),
    ),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_is_found_with_an_option(what):
    function, pattern, options, anchors, declined = FOUND[what]
    found = find(graph_of(function), pattern, **options)
    assert [str(match.anchor) for match in found.matches] == anchors
    assert [f"{one.node}: {one.reason}" for one in found.declined] == declined


def test_neither_the_output_nor_an_input():
    options = {"match_output": True, "match_placeholders": True}
    assert find(graph_of(two), RELU, **options).matches == []


def test_a_match_gives_back_nodes_and_constants():
    network = graph_of(lambda net, x: net.bn(net.conv(x)).relu(), **LAYERS)
    (match,) = find(network, CONV_BN).matches
    assert (str(match["conv"]), str(match["bn"])) == ("conv", "bn")
    assert match.anchor is match["bn"] and match.operations == (match["bn"], match["conv"])
    assert match.returning == (match["bn"],)
    with pytest.raises(KeyError, match="no node 'gamma'; it has"):
        match["gamma"]
    network = graph_of(lambda net, x: torch.exp(x) * net.z * 2.5, z=torch.randn(3))
    product = OpPattern([operator.mul], (OpPattern([torch.exp, operator.mul], None), Constant("z")))
    outer, inner = reversed(find(network, product, allow_overlap=True).matches)
    assert outer.constant("z") == 2.5 and torch.equal(inner.constant("z"), network.z)
    assert [str(value) for value in (*inner.placeholders, *outer.placeholders)] == ["z", "2.5"]


def test_a_function_is_traced_into_a_pattern():
    pattern = pattern_of(lambda x, y: torch.relu(x * y + 2))
    add = pattern.args[0]
    assert pattern.targets == {torch.relu}
    assert (add.targets, add.args[1], add.commutative) == ({operator.add}, 2, False)
    assert add.args[0].commutative and not pattern_of(lambda x, y: x - y).commutative

    def shift(size):
        return graph_of(lambda net, x: torch.add(x, net.shift), shift=torch.ones(size))

    # A buffer stands for any constant.
    assert len(find(shift(7), pattern_of(shift(1))).matches) == 1


WRONG = {
    "result of one operation: no input": lambda x: x,
    "or several results": lambda x: [x + 1, x + 2],
    "input, literal or": lambda x: 3,
}


@pytest.mark.parametrize("message", WRONG)
def test_a_function_that_is_no_pattern_is_an_error(message):
    with pytest.raises(ValueError, match=message):
        pattern_of(WRONG[message])


def use_silu(match):
    return match.graph_module.graph.call_function(F.silu, (match["x"],))


def test_a_match_is_replaced_and_reported_and_matches_in_a_row_feed_each_other():
    network = graph_of(lambda net, x: torch.sigmoid(x + 1) * (x + 1) + torch.sigmoid(x) * x)
    x = torch.randn(5, dtype=torch.float64)
    expected = network(x)
    (report,) = replace_all(network, SILU, use_silu)
    assert (report.anchor, report.removed) == (
        "mul_1",
        ("mul_1", "sigmoid_1"),
    )  # the first is of two different sums
    assert [str(node) for node in report.inserted] == ["silu"] and (
        report.result,
    ) == report.inserted
    assert set(map(str, report.nodes_map.values())) == {"x", "sigmoid_1", "mul_1"}
    assert calls(network).count(F.silu) == 1
    torch.testing.assert_close(network(x), expected, rtol=1e-12, atol=0)
    network = graph_of(lambda net, x: (y := x * torch.sigmoid(x)) * torch.sigmoid(y))
    expected = network(x)
    assert len(replace_all(network, SILU, use_silu)) == 2
    assert calls(network) == [F.silu, F.silu]
    torch.testing.assert_close(network(x), expected, rtol=1e-12, atol=0)


def test_metadata_is_carried_over():
    network = fx.symbolic_trace(nn.Sequential(nn.Hardsigmoid(), nn.Tanh()))
    ShapeProp(network).propagate(torch.randn(2, 3))
    old = network.graph.find_nodes(op="call_module", target="1")[0]
    old.meta["stack_trace"], shape = "file.py line 7", old.meta["tensor_meta"].shape
    new = fx.symbolic_trace(lambda x: 2 * torch.sigmoid(2 * x) - 1).graph

    def build(match):
        return network.graph.graph_copy(new, {next(iter(new.nodes)): match["x"]})

    (report,) = replace_all(network, OpPattern([nn.Tanh], (X,)), build)
    assert [str(node.target.__name__) for node in report.inserted] == [
        "mul",
        "sigmoid",
        "mul",
        "sub",
    ]
    assert all(node.meta["stack_trace"] == "file.py line 7" for node in report.inserted)
    assert all(
        node.meta["nn_module_stack"] == old.meta["nn_module_stack"] for node in report.inserted
    )
    assert report.result.meta["tensor_meta"].shape == shape
    assert (
        "tensor_meta" not in report.inserted[0].meta
    )  # nobody knows the shape of the steps in between


def test_the_inserted_nodes_may_use_the_replaced_one_again():
    network = graph_of(lambda net, x: torch.relu(x) + 1)

    def build(match):
        return match.graph_module.graph.call_function(torch.neg, (match.anchor,))

    (report,) = replace_all(network, OpPattern([torch.relu]), build)
    assert report.removed == () and calls(network) == [torch.relu, torch.neg, operator.add]
    assert network(torch.tensor(3.0)) == -2


@pytest.mark.parametrize(
    ("end", "error"), [(lambda: 2, RuntimeError), (lambda: 1 / 0, ZeroDivisionError)]
)
def test_a_replacement_that_fails_or_is_no_node_changes_nothing(end, error):
    network = graph_of(lambda net, x: torch.sin(torch.sin(x)))

    def build(match):
        new = use_silu(match)
        return new if match.anchor.name == "sin" else end()

    with pytest.raises(error, match=r"must be one node|division"):
        replace_all(network, OpPattern([torch.sin], (X,)), build)
    assert calls(network) == [F.silu, torch.sin]  # the first match was replaced before
    assert torch.equal(network(torch.ones(2)), F.silu(torch.ones(2)).sin())


def inputs_only(match):
    if match["x"].op != "placeholder":
        raise Declined("no input")


def test_a_filter_declines_a_match():
    network = graph_of(lambda net, x: torch.sigmoid(x + 1) * (y := x * torch.sigmoid(x)) + y)
    (report,) = replace_all(network, SILU, use_silu, filters=[inputs_only])
    assert report.anchor == "mul" and calls(network).count(torch.sigmoid) == 1
