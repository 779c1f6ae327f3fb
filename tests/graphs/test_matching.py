"""Patterns, the matcher and the driver of rules.

Each condition is met by a graph that obeys it and by another.
"""

import operator

import pytest
import torch
from torch import fx, nn

from helpers.graphs.errors import Declined, source_line
from helpers.graphs.patterns import Constant, OpPattern, Value
from helpers.graphs.rewriting import rewrite
from helpers.graphs.tracing import trace
from tests.passes.graphs import calls, graph_of, network


def is_positive(z):
    if z <= 0:
        raise Declined(f"{z} is not positive")


CONV, BN, ADD = [nn.Conv2d], [nn.BatchNorm2d], [operator.add, torch.add, "add"]
CONV_BN = OpPattern(BN, (OpPattern(CONV, name="conv"),), name="bn")
POSITIVE = Constant("z", where=is_positive)
CAT = OpPattern([torch.cat], ([OpPattern([torch.relu]), Value("y")], 1))
X, Y, Z = Value("x"), Value("y"), Constant("z")
SILU = OpPattern([operator.mul], (X, OpPattern([torch.sigmoid], (X,))), commutative=True)
RELU, SHIFTED = (
    OpPattern([torch.relu], (X,)),
    OpPattern(ADD, (OpPattern(CONV), Z), commutative=True),
)


class Loud(nn.Conv2d):
    __module__ = "torch.nn"  # so that the tracer does not look inside


def search(network, pattern):
    """The anchors of all matches, and the near misses with their reasons."""
    outcome = rewrite(network, {pattern: lambda match, **_: "it fits"})
    declined = [f"{node}: {reason}" for node, reason in outcome.declined]
    return [node for node, _ in outcome.changed], declined


def written_in_between(net, x):
    y = torch.sin(x)
    gate = torch.sigmoid(y)
    y.add_(1)
    return y * gate


def alpha(net, x, y):
    return torch.add(x, y, alpha=2)


# network, pattern, anchors of the matches
FOUND = {
    "a chain": (lambda net, x: net.bn(net.conv(x)).relu(), CONV_BN, ["bn"]),
    "a subclass is another operation": (
        lambda net, x: net.conv(net.loud(x)),
        OpPattern(CONV),
        ["conv"],
    ),
    "a subclass by itself": (lambda net, x: net.loud(x), OpPattern([Loud]), ["loud"]),
    "the other order": (lambda net, x: torch.add(net.z, net.conv(x)), SHIFTED, ["add"]),
    "order of the pattern": (
        lambda net, x: net.conv(x) - 2,
        OpPattern([operator.sub], (OpPattern(CONV), Z)),
        ["sub"],
    ),
    "not in the other order": (
        lambda net, x: 2 - net.conv(x),
        OpPattern([operator.sub], (OpPattern(CONV), Z)),
        [],
    ),
    "one value in two places": (lambda net, x: torch.sigmoid(x) * x, SILU, ["mul"]),
    "two values": (lambda net, x, y: torch.sigmoid(x) * y, SILU, []),
    "written before": (
        lambda net, x: (y := torch.sin(x).add_(1)) * torch.sigmoid(y),
        SILU,
        ["mul"],
    ),
    "an equal literal": (lambda net, x: x + 3, OpPattern(ADD, (X, 3)), ["add"]),
    "another literal": (lambda net, x: x + 3, OpPattern(ADD, (X, 4)), []),
    "a list": (lambda net, x, y: torch.cat([torch.relu(x), y], 1), CAT, ["cat"]),
    "a longer list": (lambda net, x, y: torch.cat([torch.relu(x), y, y], 1), CAT, []),
    "a list, another literal": (lambda net, x, y: torch.cat([torch.relu(x), y], 2), CAT, []),
    "a named keyword": (alpha, OpPattern(ADD, (X, Y), kwargs={"alpha": 2}), ["add"]),
    "any others": (alpha, OpPattern(ADD, (X, ...)), ["add"]),
    "any operands": (alpha, OpPattern(ADD), ["add"]),
    "an absent keyword": (
        lambda net, x, y: torch.add(x, y),
        OpPattern(ADD, (X, Y), kwargs={"out": 2}),
        [],
    ),
    "anywhere": (lambda net, x: torch.relu(torch.relu(x)), RELU, ["relu", "relu_1"]),
}
# network, pattern, anchors of the matches, what is declined and why
DECLINED = {
    "used elsewhere": (
        lambda net, x: (net.bn(c := net.conv(x)), torch.relu(c)),
        CONV_BN,
        [],
        "bn: conv is also used by relu",
    ),
    "returned": (
        lambda net, x: (net.bn(c := net.conv(x)), c),
        CONV_BN,
        [],
        "bn: conv is also returned",
    ),
    "a condition": (
        lambda net, x: net.head(net.conv(x) + 1) + -1,
        OpPattern(ADD, (OpPattern(CONV), POSITIVE)),
        ["add"],
        "add_1: -1 is not positive",
    ),
    "computed": (
        lambda net, x, y: net.conv(x) + y,
        OpPattern(ADD, (OpPattern(CONV), Z)),
        [],
        "add: y is not a constant",
    ),
    "a written buffer": (
        lambda net, x: (net.z.add(net.conv(x)), net.z.copy_(x)),
        OpPattern(ADD, (Z, OpPattern(CONV))),
        [],
        "add: z is written to by the network",
    ),
    "written in between": (
        written_in_between,
        SILU,
        [],
        "mul: add_, which stands in between, may write to its inputs",
    ),
    "statistics written in between": (
        lambda net, x: (
            y := net.bn(net.conv(x)),
            net.bn.running_mean.add_(x.mean()),
            torch.relu(y),
        )[-1],
        OpPattern([torch.relu], (OpPattern([nn.BatchNorm2d], (X,)),)),
        [],
        "relu: add_, which stands in between, may write to its weights or statistics",
    ),
    "a keyword too many": (alpha, OpPattern(ADD, (X, Y)), [], "add: add also passes alpha=2"),
}


def parts():
    return {
        "conv": nn.Conv2d(3, 4, 1),
        "bn": nn.BatchNorm2d(4),
        "head": nn.Conv2d(4, 4, 1),
        "loud": Loud(3, 3, 1),
    }


@pytest.mark.parametrize("what", FOUND)
def test_what_is_found_and_what_is_not(what):
    function, pattern, anchors = FOUND[what]
    network = graph_of(function, **parts(), z=torch.ones(4, 1, 1))
    assert search(network, pattern)[0] == anchors


@pytest.mark.parametrize("what", DECLINED)
def test_a_near_miss_is_declined_with_the_reason(what):
    function, pattern, anchors, declined = DECLINED[what]
    network = graph_of(function, **parts(), z=torch.ones(1))
    assert search(network, pattern) == (anchors, [declined])


def test_a_rule_gets_nodes_and_literals_and_the_values_of_constants():
    network = graph_of(lambda net, x: torch.exp(x) * net.z * 2.5, z=torch.randn(3))
    exp_or_mul = OpPattern([torch.exp, operator.mul], None, name="first")
    product = OpPattern([operator.mul], (exp_or_mul, Z), name="product")
    got = []
    rewrite(network, {product: lambda match, **named: got.append((match, named)) or "it fits"})
    (inner, names), (_, outer_names) = got
    assert [str(node) for node in inner.operations] == ["mul", "exp"]
    assert inner.anchor is names["product"] and str(names["first"]) == "exp"
    assert torch.equal(names["z"], network.z) and outer_names["z"] == 2.5


WRONG = {
    "conv needs at least one target": lambda: OpPattern([], name="conv"),
    "two operands if it is commutative": lambda: OpPattern(
        [operator.add], (Value("x"),), commutative=True
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_pattern_that_cannot_be_meant_is_an_error(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()


def test_the_line_of_an_error_is_the_users_on_windows_too(monkeypatch):
    node = fx.Graph().placeholder("x")
    node.meta["stack_trace"] = (
        'File "C:\\net.py", line 7, in forward\nFile "C:\\torch\\conv.py", line 548, in forward'
    )
    monkeypatch.setattr("os.sep", "\\")
    assert source_line(node) == "C:\\net.py:7"


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
    assert rewrite(network, {either: second_only}).changed == [("add", "cos")]


def test_a_rule_that_does_not_say_what_it_did_is_an_error():
    network = graph_of(lambda net, x: torch.relu(x))
    with pytest.raises(TypeError, match="rule for relu returned None: it must say what it did"):
        rewrite(network, {RELU: lambda match, x: None})


def test_what_a_rewrite_connects_counts_as_shared_for_the_next_rule():
    """A copy goes, so that a later write reaches what a view of it reads."""

    def forward(net, x):
        y = torch.sin(x)
        view = (y + 0).view(-1)
        first = torch.exp(view)
        y.add_(1)
        return torch.cos(first)

    cos = OpPattern([torch.cos], (OpPattern([torch.exp], (X,)),))
    rules = {SUM: drop, cos: lambda match, x: "never"}
    outcome = rewrite(trace(network(forward), (torch.ones(3),)), rules)
    assert outcome.changed == [("add", "it was sin")]
    assert ("cos", "add_, which stands in between, may write to its inputs") in outcome.declined
