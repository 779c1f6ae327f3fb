"""Patterns, the matcher, and what takes a match's place.

Each rule is met by a graph that obeys it and by another.
"""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from helpers.graphs.errors import Declined, source_line
from helpers.graphs.matching import find
from helpers.graphs.patterns import Constant, OpPattern, Value, pattern_of
from helpers.graphs.rewriting import replace_all, rewrite
from helpers.graphs.tracing import trace
from tests.passes.graphs import calls, graph_of, network


def is_positive(z):
    if z <= 0:
        raise Declined(f"{z} is not positive")


CONV, BN, ADD = [nn.Conv2d], [nn.BatchNorm2d], [operator.add, torch.add, "add"]
CONV_BN, PAIR = (
    OpPattern(BN, (OpPattern(CONV, name="conv"),), name="bn"),
    OpPattern([torch.relu], (OpPattern([torch.relu]),)),
)
SILU = pattern_of(lambda x: x * torch.sigmoid(x))
POSITIVE = Constant("z", where=is_positive)
CAT = OpPattern([torch.cat], ([OpPattern([torch.relu]), Value("y")], 1))
X, Y, Z = Value("x"), Value("y"), Constant("z")
RELU, SHIFTED = (
    OpPattern([torch.relu], (X,)),
    OpPattern(ADD, (OpPattern(CONV), Z), commutative=True),
)


class Loud(nn.Conv2d):
    __module__ = "torch.nn"  # so that the tracer does not look inside


def names(found):
    return [str(match.anchor) for match in found.matches]


def written_in_between(net, x):
    y = torch.sin(x)
    gate = torch.sigmoid(y)
    y.add_(1)
    return y * gate


def three(net, x):
    return torch.relu(torch.relu(torch.relu(x)))


def alpha(net, x, y):
    return torch.add(x, y, alpha=2)


# network, pattern, options, anchors of the matches
FOUND = {
    "a chain": (lambda net, x: net.bn(net.conv(x)).relu(), CONV_BN, {}, ["bn"]),
    "a subclass is another operation": (lambda net, x: net.conv(net.loud(x)), OpPattern(CONV), {}, ["conv"]),
    "a subclass by itself": (lambda net, x: net.loud(x), OpPattern([Loud]), {}, ["loud"]),
    "the other order": (lambda net, x: torch.add(net.z, net.conv(x)), SHIFTED, {}, ["add"]),
    "order of the pattern": (lambda net, x: net.conv(x) - 2, OpPattern([operator.sub], (OpPattern(CONV), Z)), {}, ["sub"]),
    "not in the other order": (lambda net, x: 2 - net.conv(x), OpPattern([operator.sub], (OpPattern(CONV), Z)), {}, []),
    "one value in two places": (lambda net, x: torch.sigmoid(x) * x, SILU, {}, ["mul"]),
    "two values": (lambda net, x, y: torch.sigmoid(x) * y, SILU, {}, []),
    "written before": (lambda net, x: (y := torch.sin(x).add_(1)) * torch.sigmoid(y), SILU, {}, ["mul"]),
    "an equal literal": (lambda net, x: x + 3, OpPattern(ADD, (X, 3)), {}, ["add"]),
    "another literal": (lambda net, x: x + 3, OpPattern(ADD, (X, 4)), {}, []),
    "any literal": (lambda net, x: x + 3, OpPattern(ADD, (X, 4)), {"any_literals": True}, ["add"]),
    "no literal": (lambda net, x, y: x + y, OpPattern(ADD, (X, 4)), {"any_literals": True}, []),
    "a list": (lambda net, x, y: torch.cat([torch.relu(x), y], 1), CAT, {}, ["cat"]),
    "a longer list": (lambda net, x, y: torch.cat([torch.relu(x), y, y], 1), CAT, {}, []),
    "a list, another literal": (lambda net, x, y: torch.cat([torch.relu(x), y], 2), CAT, {}, []),
    "a named keyword": (alpha, OpPattern(ADD, (X, Y), kwargs={"alpha": 2}), {}, ["add"]),
    "any others": (alpha, OpPattern(ADD, (X, ...)), {}, ["add"]),
    "any operands": (alpha, OpPattern(ADD), {}, ["add"]),
    "an absent keyword": (lambda net, x, y: torch.add(x, y), OpPattern(ADD, (X, Y), kwargs={"out": 2}), {}, []),
    "overlapping": (three, PAIR, {"allow_overlap": True}, ["relu_1", "relu_2"]),
    "anywhere": (lambda net, x: torch.relu(torch.relu(x)), RELU, {}, ["relu", "relu_1"]),
    "the output": (lambda net, x: torch.relu(torch.relu(x)), RELU, {"match_output": True}, ["relu_1"]),
    "inputs": (lambda net, x: torch.relu(torch.relu(x)), RELU, {"match_placeholders": True}, ["relu"]),
    "neither": (lambda net, x: torch.relu(torch.relu(x)), RELU, {"match_output": True, "match_placeholders": True}, []),
}  # fmt: skip
# network, pattern, anchors of the matches, what is declined and why
DECLINED = {
    "used elsewhere": (
        lambda net, x: (net.bn(c := net.conv(x)), torch.relu(c)), CONV_BN, [], "bn: conv is also used by relu"),
    "returned": (lambda net, x: (net.bn(c := net.conv(x)), c), CONV_BN, [], "bn: conv is also returned"),
    "a condition": (
        lambda net, x: net.head(net.conv(x) + 1) + -1, OpPattern(ADD, (OpPattern(CONV), POSITIVE)), ["add"],
        "add_1: -1 is not positive"),
    "computed": (lambda net, x, y: net.conv(x) + y, OpPattern(ADD, (OpPattern(CONV), Z)), [], "add: y is not a constant"),
    "a written buffer": (
        lambda net, x: (net.z.add(net.conv(x)), net.z.copy_(x)), OpPattern(ADD, (Z, OpPattern(CONV))), [],
        "add: z is written to by the network"),
    "written in between": (
        written_in_between, SILU, [], "mul: add_, which stands in between, may write to its inputs"),
    "statistics written in between": (
        lambda net, x: (y := net.bn(net.conv(x)), net.bn.running_mean.add_(x.mean()), torch.relu(y))[-1],
        OpPattern([torch.relu], (OpPattern([nn.BatchNorm2d], (X,)),)), [],
        "relu: add_, which stands in between, may write to its weights or statistics"),
    "a keyword too many": (alpha, OpPattern(ADD, (X, Y)), [], "add: add also passes alpha=2"),
    "overlapping": (three, PAIR, ["relu_1"], "relu_2: relu_1 already belongs to the match at relu_1"),
}  # fmt: skip


def parts():
    return {
        "conv": nn.Conv2d(3, 4, 1),
        "bn": nn.BatchNorm2d(4),
        "head": nn.Conv2d(4, 4, 1),
        "loud": Loud(3, 3, 1),
    }


@pytest.mark.parametrize("what", FOUND)
def test_what_is_found_and_what_is_not(what):
    function, pattern, options, anchors = FOUND[what]
    network = graph_of(function, **parts(), z=torch.ones(4, 1, 1))
    assert names(find(network, pattern, **options)) == anchors


@pytest.mark.parametrize("what", DECLINED)
def test_a_near_miss_is_declined_with_the_reason(what):
    function, pattern, anchors, declined = DECLINED[what]
    found = find(graph_of(function, **parts(), z=torch.ones(1)), pattern)
    assert (names(found), [f"{one.node}: {one.reason}" for one in found.declined]) == (
        anchors,
        [declined],
    )


def test_a_match_gives_back_nodes_and_constants():
    network = graph_of(lambda net, x: net.bn(net.conv(x)).relu(), **parts())
    (match,) = find(network, CONV_BN).matches
    assert (str(match["conv"]), str(match["bn"])) == ("conv", "bn")
    assert match.anchor is match["bn"] and match.vanishing == (match["bn"], match["conv"])
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
    shift = lambda size: graph_of(lambda net, x: torch.add(x, net.shift), shift=torch.ones(size))  # noqa: E731
    assert (
        len(find(shift(7), pattern_of(shift(1))).matches) == 1
    )  # a buffer stands for any constant


WRONG = {
    "conv needs at least one target": lambda: OpPattern([], name="conv"),
    "two operands if it is commutative": lambda: OpPattern(
        [operator.add], (Value("x"),), commutative=True
    ),
    "result of one operation: no input": lambda: pattern_of(lambda x: x),
    "or several results": lambda: pattern_of(lambda x: [x + 1, x + 2]),
    "input, literal or": lambda: pattern_of(lambda x: 3),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_pattern_that_cannot_be_meant_is_an_error(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()


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
    build = lambda match: network.graph.graph_copy(new, {next(iter(new.nodes)): match["x"]})  # noqa: E731
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


def test_the_line_of_an_error_is_the_users_on_windows_too(monkeypatch):
    node = fx.Graph().placeholder("x")
    node.meta["stack_trace"] = (
        'File "C:\\net.py", line 7, in forward\nFile "C:\\torch\\conv.py", line 548, in forward'
    )
    monkeypatch.setattr("os.sep", "\\")
    assert source_line(node) == "C:\\net.py:7"


def test_the_inserted_nodes_may_use_the_replaced_one_again():
    network = graph_of(lambda net, x: torch.relu(x) + 1)
    build = lambda match: match.graph_module.graph.call_function(torch.neg, (match.anchor,))  # noqa: E731
    (report,) = replace_all(network, OpPattern([torch.relu]), build)
    assert report.removed == () and calls(network) == [torch.relu, torch.neg, operator.add]
    assert network(torch.tensor(3.0)) == -2


@pytest.mark.parametrize(
    ("end", "error"), [(lambda: 2, RuntimeError), (lambda: 1 / 0, ZeroDivisionError)]
)
def test_a_replacement_that_fails_or_is_no_node_changes_nothing(end, error):
    network = graph_of(lambda net, x: torch.sin(torch.sin(x)))
    build = lambda match: (new := use_silu(match), new if match.anchor.name == "sin" else end())[1]  # noqa: E731
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


def drop(match, x, z, sum):
    if z != 0:
        raise Declined(f"it adds {z}")
    match.editor.replace(sum, x)
    return f"it was {x}"


SUM = OpPattern(ADD, (X, Z), commutative=True, name="sum")


def test_a_rule_gets_what_the_names_stand_for_and_says_what_it_did_or_why_not():
    network = graph_of(lambda net, x: (((x + 0) + net.z) + 2).relu() + 0, z=torch.zeros(()))
    outcome = rewrite(network, {SUM: drop})
    assert outcome.changed == [("add", "it was x"), ("add_1", "it was x"), ("add_3", "it was relu")]
    assert outcome.declined == [("add_2", "it adds 2")]
    assert calls(network) == [operator.add, "relu"]


def test_the_second_order_of_operands_is_tried_when_the_rule_declines_the_first():
    def second_only(match, one, other):
        if one.name == "sin":
            raise Declined("not the sine")
        return str(one)

    either = OpPattern(ADD, (Value("one"), Value("other")), commutative=True)
    network = graph_of(lambda net, x: torch.sin(x) + torch.cos(x))
    assert rewrite(network, {either: second_only}, once=True).changed == [("add", "cos")]


def test_a_rule_that_never_ends_or_does_not_say_what_it_did_is_an_error():
    network = graph_of(lambda net, x: torch.relu(x))
    with pytest.raises(RuntimeError, match="rule for relu still matches at relu after 7 rewrites"):
        rewrite(network, {RELU: lambda match, x: "looked at"})
    with pytest.raises(TypeError, match="rule for relu returned None: it must say what it did"):
        rewrite(network, {RELU: lambda match, x: None})


def test_what_a_rewrite_connects_counts_as_shared_in_the_next_walk():
    """A copy goes, so that a later write reaches what a view of it reads."""

    def forward(net, x):
        y = torch.sin(x)
        view = (y + 0).view(-1)
        first = torch.exp(view)
        y.add_(1)
        return torch.cos(first)

    cos = OpPattern([torch.cos], (OpPattern([torch.exp], (X,)),))
    rules = {SUM: drop, cos: lambda match, x: "never"}
    outcome = rewrite(trace(network(forward), (torch.ones(3),)), rules, once=True)
    assert outcome.changed == [("add", "it was sin")]
    assert ("cos", "add_, which stands in between, may write to its inputs") in outcome.declined
