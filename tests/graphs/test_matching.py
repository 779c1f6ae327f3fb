"""The matcher. Each rule is met once by a graph that obeys it and once by one that does not."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

from helpers.graphs.matching import find
from helpers.graphs.patterns import Constant, Op, Value, traced
from tests.passes.graphs import graph_of

CONV, BN, ADD = [nn.Conv2d], [nn.BatchNorm2d], [operator.add, torch.add]
CONV_BN = Op(BN, (Op(CONV, name="conv"),), name="bn")


def names(found):
    return [str(match.anchor) for match in found.matches]


def reasons(found):
    return [(str(refusal.node), refusal.reason) for refusal in found.refused]


def test_a_chain_is_found_with_its_node_map():
    network = graph_of(lambda net, x: net.bn(net.conv(x)).relu(), conv=nn.Conv2d(3, 4, 1), bn=nn.BatchNorm2d(4))
    (match,) = find(network, CONV_BN).matches
    assert (str(match["conv"]), str(match["bn"])) == ("conv", "bn")
    assert match.anchor is match["bn"] and match.vanishing == (match["bn"], match["conv"])
    assert match.returning == (match["bn"],)
    with pytest.raises(KeyError, match="no node 'gamma'; it has"):
        match["gamma"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda net, x: (net.bn(c := net.conv(x)), torch.relu(c)), "conv is also used by relu"),
        (lambda net, x: (net.bn(c := net.conv(x)), c), "conv is also returned"),
    ],
)
def test_an_intermediate_that_is_needed_elsewhere_cannot_vanish(function, reason):
    network = graph_of(function, conv=nn.Conv2d(3, 4, 1), bn=nn.BatchNorm2d(4))
    found = find(network, CONV_BN)
    assert (found.matches, reasons(found)) == ([], [("bn", reason)])


def test_a_subclass_of_a_module_is_another_operation():
    class Loud(nn.Conv2d):
        __module__ = "torch.nn"  # so that the tracer does not look inside

    assert find(graph_of(lambda net, x: net.conv(x), conv=nn.Conv2d(1, 1, 1)), Op(CONV)).matches
    network = graph_of(lambda net, x: net.conv(x), conv=Loud(1, 1, 1))
    assert not find(network, Op(CONV)).matches
    assert find(network, Op([Loud])).matches


@pytest.mark.parametrize("function", [lambda net, x: net.conv(x) + net.z, lambda net, x: torch.add(net.z, net.conv(x))])
def test_commutative_operands_stand_in_either_order(function):
    network = graph_of(function, conv=nn.Conv2d(3, 4, 1), z=torch.arange(4.0).view(4, 1, 1))
    # a buffer in front calls the method `add`, so both spellings are targets
    pattern = Op([*ADD, "add"], (Op(CONV, name="conv"), Constant("z")), commutative=True)
    (match,) = find(network, pattern).matches
    assert str(match["conv"]) == "conv"
    assert torch.equal(match.constant("z"), torch.arange(4.0).view(4, 1, 1))


def test_other_operands_stand_in_the_order_of_the_pattern():
    pattern = Op([operator.sub], (Op(CONV), Constant("z")))
    assert find(graph_of(lambda net, x: net.conv(x) - 2, conv=nn.Conv2d(3, 4, 1)), pattern).matches
    assert not find(graph_of(lambda net, x: 2 - net.conv(x), conv=nn.Conv2d(3, 4, 1)), pattern).matches


def test_conditions_on_constants_give_the_reason():
    positive = Constant("z", where=lambda z: None if z > 0 else f"{z} is not positive")
    network = graph_of(lambda net, x: net.b(net.a(x) + 1) + -1, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(4, 4, 1))
    found = find(network, Op(ADD, (Op(CONV), positive)))
    assert (names(found), reasons(found)) == (["add"], [("add_1", "-1 is not positive")])


def test_a_computed_operand_is_not_a_constant():
    found = find(
        graph_of(lambda net, x, y: net.conv(x) + y, conv=nn.Conv2d(3, 4, 1)), Op(ADD, (Op(CONV), Constant("z")))
    )
    assert reasons(found) == [("add", "y is not a constant")]


def test_a_buffer_that_the_network_writes_to_is_not_a_constant():
    pattern = Op(["add"], (Constant("z"), Op(CONV)))
    parts = {"conv": nn.Conv2d(3, 4, 1), "z": torch.ones(1)}
    assert find(graph_of(lambda net, x: net.z.add(net.conv(x)), **parts), pattern).matches
    found = find(graph_of(lambda net, x: (net.z.add(net.conv(x)), net.z.copy_(x)), **parts), pattern)
    assert (found.matches, reasons(found)) == ([], [("add", "z is written to by the network")])


def test_inputs_that_are_written_to_in_between_are_refused():
    silu = traced(lambda x: x * torch.sigmoid(x))

    def function(net, x):
        y = torch.sin(x)
        gate = torch.sigmoid(y)
        y.add_(1)
        return y * gate

    found = find(graph_of(function), silu)
    assert reasons(found) == [("mul", "add_, which stands in between, may write to its inputs")]
    assert find(graph_of(lambda net, x: (y := torch.sin(x).add_(1)) * torch.sigmoid(y)), silu).matches


def test_one_value_in_two_places_is_one_node():
    silu = traced(lambda x: x * torch.sigmoid(x))
    assert find(graph_of(lambda net, x, y: torch.sigmoid(x) * x), silu).matches
    assert not find(graph_of(lambda net, x, y: torch.sigmoid(x) * y), silu).matches


def test_literals_must_be_equal_unless_they_are_wild():
    network = graph_of(lambda net, x: x + 3)
    assert find(network, Op(ADD, (Value("x"), 3))).matches
    assert not find(network, Op(ADD, (Value("x"), 4))).matches
    assert find(network, Op(ADD, (Value("x"), 4)), any_literals=True).matches
    assert not find(graph_of(lambda net, x, y: x + y), Op(ADD, (Value("x"), 4)), any_literals=True).matches


def test_lists_match_element_by_element():
    cat = Op([torch.cat], ([Op([torch.relu]), Value("y")], 1))
    assert find(graph_of(lambda net, x, y: torch.cat([torch.relu(x), y], 1)), cat).matches
    assert not find(graph_of(lambda net, x, y: torch.cat([torch.relu(x), y, y], 1)), cat).matches
    assert not find(graph_of(lambda net, x, y: torch.cat([torch.relu(x), y], 2)), cat).matches


def test_operands_that_the_pattern_does_not_name_are_refused():
    network = graph_of(lambda net, x, y: torch.add(x, y, alpha=2))
    assert reasons(find(network, Op(ADD, (Value("x"), Value("y"))))) == [("add", "add also passes alpha=2")]
    assert find(network, Op(ADD, (Value("x"), Value("y")), kwargs={"alpha": 2})).matches
    assert find(network, Op(ADD, (Value("x"), ...))).matches
    assert find(network, Op(ADD)).matches
    assert not find(network, Op(ADD, (Value("x"), Value("y")), kwargs={"out": 2})).matches


def test_overlapping_matches_are_removed_first_in_graph_order_wins():
    pair = Op([torch.relu], (Op([torch.relu]),))
    network = graph_of(lambda net, x: torch.relu(torch.relu(torch.relu(x))))
    found = find(network, pair)
    assert (names(found), reasons(found)) == (["relu_1"], [("relu_2", "relu_1 already belongs to the match at relu_1")])
    assert names(find(network, pair, allow_overlap=True)) == ["relu_1", "relu_2"]


def test_output_and_placeholder_matching():
    network = graph_of(lambda net, x: torch.relu(torch.relu(x)))
    relu = Op([torch.relu], (Value("x"),))
    assert names(find(network, relu)) == ["relu", "relu_1"]
    assert names(find(network, relu, match_output=True)) == ["relu_1"]
    assert names(find(network, relu, match_placeholders=True)) == ["relu"]
    assert find(network, relu, match_output=True, match_placeholders=True).matches == []


def test_unlike_torch_modules_match_under_any_name():
    example = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.act = nn.Conv2d(3, 4, 1), nn.ReLU()

        def forward(self, x):
            return self.act(self.stem(x))

    network = fx.symbolic_trace(Net())
    assert SubgraphMatcher(fx.symbolic_trace(example).graph).match(network.graph) == []
    assert names(find(network, traced(example))) == ["act"]


def test_unlike_torch_commutative_operands_match_in_either_order():
    pattern = lambda x, y: torch.add(torch.relu(x), y)  # noqa: E731
    network = fx.symbolic_trace(lambda x, y: torch.add(y, torch.relu(x)))
    assert SubgraphMatcher(fx.symbolic_trace(pattern).graph).match(network.graph) == []
    assert names(find(network, traced(pattern))) == ["add"]


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_against_a_brute_force_search(seed):
    """Plain loops over all nodes find the same `relu(a + sin(b))` that the matcher finds."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda count: int(torch.randint(count, (), generator=generator))  # noqa: E731
    graph = fx.Graph()
    values = [graph.placeholder("x")]
    for _ in range(30):
        first, second = values[draw(len(values))], values[-1 - draw(min(3, len(values)))]
        function, args = [(torch.add, (first, second)), (torch.sin, (second,)), (F.relu, (second,))][draw(3)]
        values.append(graph.call_function(function, args))
    graph.output(values[-1])
    expected = []
    for relu in graph.nodes:
        add = relu.args[0] if relu.target is F.relu else None
        if add is None or add.target is not torch.add or len(add.users) > 1 or add is values[-1]:
            continue
        sines = [one for one in add.args if one.target is torch.sin and list(one.users) == [add]]
        if sines:
            expected.append(str(relu))
    pattern = Op([F.relu], (Op([torch.add], (Value("a"), Op([torch.sin], (Value("b"),))), commutative=True),))
    assert names(find(fx.GraphModule(nn.Module(), graph), pattern)) == expected


@pytest.mark.parametrize("z", [torch.randn(3), 2.5])
def test_a_constant_is_given_as_its_value(z):
    parts = {"z": z} if isinstance(z, torch.Tensor) else {}
    network = graph_of(lambda net, x: torch.mul(torch.exp(x), net.z if parts else z), **parts)
    (match,) = find(network, Op([torch.mul], (Op([torch.exp], (Value("x"),)), Constant("z")))).matches
    found = match.constant("z")
    assert torch.equal(found, z) if parts else found == z
    assert [str(value) for value in match.placeholders] == ["x", "z" if parts else "2.5"]
