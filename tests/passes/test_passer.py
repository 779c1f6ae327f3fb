"""Running passes by name, with rounds, checks and the graph back as it was; and rewriting call by
call.
"""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor

from helpers.graphs.errors import CheckFailed, GraphMismatch, PassError, UnsupportedCase
from helpers.graphs.patterns import Op
from helpers.graphs.tracing import trace
from helpers.passes.folder import Pass, PassResult
from helpers.passes.passer import Passer, size_of
from helpers.passes.rewriter import MatchRewriter, Rewriter
from tests.passes.graphs import calls, graph_of, network


def traced() -> fx.GraphModule:
    return fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Dropout()).eval())


class DropLast(Pass):
    """Takes the last operation away, as long as there is more than one."""

    name = "drop_last"

    def run(self, graph_module):
        result = PassResult()
        output = graph_module.graph.output_node()
        last = output.args[0]
        if last.args[0].op != "placeholder":
            output.args = (last.args[0],)
            graph_module.graph.erase_node(last)
            graph_module.delete_submodule(last.target)
            result.change(last, "dropped")
        else:
            result.decline(last, "it is the only one")
        return result


def pass_of(run) -> Pass:
    """A pass by the name of a function."""
    return type(
        "Made", (Pass,), {"name": run.__name__, "run": lambda self, graph_module: run(graph_module)}
    )()


def restless(graph_module):
    return PassResult([("graph", "touched")])


def forgets(graph_module):
    """What it has to return."""


def leaves(graph_module):
    """A call to a module that is not there."""
    graph_module.delete_submodule("0")
    return PassResult([("_0", "gone")])


def interrupted(graph_module):
    raise KeyboardInterrupt("now")


class Endless(MatchRewriter):
    """Leaves its match in place."""

    name, rules = "endless", {Op([nn.ReLU]): lambda match, editor: (match.anchor, "looked at")}


def breaks(graph_module):
    """The graph and its modules, then fails."""
    first = next(node for node in graph_module.graph.nodes if node.op.startswith("call"))
    first.meta.clear()
    graph_module.graph.output_node().args = (first.args[0],)
    graph_module.delete_submodule("linear")
    graph_module.extra = nn.Linear(1, 1)
    raise PassError("breaks", "cannot go on", first)


def test_once_in_order_with_statistics_or_to_a_fixed_point():
    graph_module = traced()
    report = Passer([DropLast(), DropLast()]).run(graph_module)
    table = report.table()
    assert list(table["nodes_before"]) == [5, 4] and list(table["nodes_after"]) == [4, 3]
    assert (
        list(table["params_before"]) == [12, 12]
        and list(table["changed"]) == [1, 1]
        and (table["ms"] > 0).all()
    )
    x = torch.randn(2, 3)
    assert torch.equal(graph_module(x), graph_module.get_submodule("0")(x))
    report = Passer([DropLast()], rounds=9).run(traced())
    assert [len(row.result.changed) for row in report.rows] == [1, 1, 0]
    assert report.declined == [("drop_last", "_0", "it is the only one")]
    report.rows[0].result.decline("_1", "not yet")  # which the last round did
    assert len(report.declined) == 1
    shared = nn.Linear(3, 2)  # its parameters count once
    assert size_of(fx.symbolic_trace(nn.Sequential(shared, nn.Linear(2, 3), shared)))[1] == 8 + 9


@pytest.mark.parametrize("route", ["fx", "export"])
def test_a_failing_pass_leaves_the_graph_as_it_was(route):
    x = torch.randn(2, 3)
    pair = network(lambda net, x: {"one": net.linear(x), "two": x * 2}, linear=nn.Linear(3, 3))
    graph_module = trace(pair, (x,), route)
    expected, code, keys = graph_module(x), graph_module.code, set(graph_module.state_dict())
    shapes = [node.meta["val"].shape for node in graph_module.graph.nodes if "val" in node.meta]
    with pytest.raises(PassError, match=r"breaks at node 'linear'.*cannot go on"):
        Passer([pass_of(breaks)]).run(graph_module)
    assert graph_module.code == code and not hasattr(graph_module, "extra")
    assert set(graph_module.state_dict()) == keys
    assert [
        node.meta["val"].shape for node in graph_module.graph.nodes if "val" in node.meta
    ] == shapes
    assert all(map(torch.equal, graph_module(x).values(), expected.values()))
    graph_module.graph.lint()


def test_all_checks_run_after_each_pass_that_changed_something():
    seen = []
    checks = [
        lambda net: seen.append(len(net.graph.nodes)),
        lambda net: seen.append(net(torch.randn(2, 3)).shape),
    ]
    Passer([DropLast(), DropLast(), DropLast()], checks=checks).run(traced())
    assert seen == [4, (2, 3), 3, (2, 3)]


def at_least_four_nodes(graph_module):
    assert len(graph_module.graph.nodes) >= 4, "too small"


FAILING = {
    "restless": (
        lambda: Passer([DropLast(), pass_of(restless)], rounds=4),
        PassError,
        "in round 4.*restless",
    ),
    "a check": (
        lambda: Passer([DropLast(), DropLast()], checks=[at_least_four_nodes]),
        CheckFailed,
        r"drop_last: the check at_least_four_nodes .*too small",
    ),
    "no result": (
        lambda: Passer([pass_of(forgets)]),
        PassError,
        r"forgets: run\(\) returned NoneType",
    ),
    "interrupted": (lambda: Passer([DropLast(), pass_of(interrupted)]), KeyboardInterrupt, "now"),
    "endless": (
        lambda: Passer([DropLast(), Endless()]),
        PassError,
        "endless at node '_1': .* still matches after 9 ",
    ),
    "malformed": (lambda: Passer([DropLast(), pass_of(leaves)]), GraphMismatch, "leaves"),
}


@pytest.mark.parametrize("what", FAILING)
def test_whatever_fails_names_the_pass_and_is_undone(what):
    passer, error, message = FAILING[what]
    graph_module, x = traced(), torch.randn(2, 3)
    expected = graph_module(x)
    with pytest.raises(error, match=message):
        passer().run(graph_module)
    assert len(graph_module.graph.nodes) == 5 and torch.equal(graph_module(x), expected)


def test_a_pass_is_found_by_its_name_or_the_near_matches_are_told():
    one, other = (Passer(["dead_code"]).passes[0] for _ in range(2))
    assert type(one) is type(other) and one is not other and one.name == "dead_code"
    with pytest.raises(ValueError, match=r"no pass 'cannonicalize': did you mean canonicalize\?"):
        Passer(["cannonicalize"])
    with pytest.raises(
        ValueError, match="no pass 'xyz': there are canonicalize, constant_folding, contiguity, "
    ):
        Passer(["xyz"])


def rewriter(rule):
    """A rewriter whose `call_operator` is `rule(self, target, args, kwargs)`; None means leave it
    alone.
    """

    class Rule(Rewriter):
        name = "rule"

        def call_operator(self, target, args, kwargs):
            result = rule(self, target, args, kwargs)
            return super().call_operator(target, args, kwargs) if result is None else result

    return Rule()


NET = network(lambda net, x: F.relu(net.linear(x)) + 1, linear=nn.Linear(3, 4))
X = (torch.randn(2, 3),)


def relu_becomes(make):
    """A rule that rewrites each ReLU."""
    return lambda self, target, args, kwargs: make(self, args) if target is F.relu else None


ONE_TO = {
    "silu": (lambda self, args: self.emit(F.silu, args), F.silu),
    "its operand": (lambda self, args: args[0], lambda y: y),
    "neg, exp": (
        lambda self, args: self.emit(torch.exp, (self.emit(torch.neg, args),)),
        lambda y: torch.exp(-y),
    ),
}


@pytest.mark.parametrize("what", ONE_TO)
def test_one_call_becomes_another_none_or_several(what):
    make, expected = ONE_TO[what]
    graph_module = trace(NET, X)
    report = Passer([rewriter(relu_becomes(make))]).run(graph_module)
    assert report.changed == [("rule", "relu", f"relu became {what}")]
    assert calls(graph_module)[0] is nn.Linear and calls(graph_module)[-1] is operator.add
    torch.testing.assert_close(graph_module(*X), expected(NET.linear(*X)) + 1)


@pytest.mark.parametrize("route", ["fx", "export"])
def test_provenance_and_fake_values_are_kept_and_shapes_known_on_the_way(route):
    old = {node.name: node for node in trace(NET, X, route=route).graph.nodes}
    graph_module, seen = trace(NET, X, route=route), []
    relu = next(node for node in graph_module.graph.nodes if "relu" in node.name)
    relu.meta["stack_trace"] = "file.py, line 3"

    def rule(self, target, args, kwargs):
        if "relu" in str(target):
            half = self.emit(torch.tanh, args[:1])
            seen.append((half.shape, half.dtype))
            return self.emit(torch.mul, (half, 2))
        return None

    Passer([rewriter(rule)]).run(graph_module)
    assert seen == [((2, 4), torch.float32)]
    made = {node.name: node for node in graph_module.graph.nodes}
    for name in ("tanh", "mul"):
        assert made[name].meta["stack_trace"] == "file.py, line 3"
        assert made[name].meta["val"].shape == (2, 4)
        assert made[name].meta.get("nn_module_stack") == relu.meta.get("nn_module_stack")
    for name in set(made) & set(old):
        assert getattr(made[name].meta.get("val"), "shape", None) == getattr(
            old[name].meta.get("val"), "shape", None
        )


def test_every_call_passes_through_a_declined_one_gives_its_reason_and_the_graph_is_left_alone():
    seen = []
    net = network(lambda net, x: net.linear(x).relu().view(-1), linear=nn.Linear(3, 4))
    rule = lambda self, target, args, kwargs: seen.append(target) or self.decline("no")  # noqa: E731
    graph_module = trace(net, X)
    before = graph_module.graph
    report = Passer([rewriter(rule)]).run(graph_module)
    assert report.changed == [] and graph_module.graph is before
    assert seen == ["linear", "relu", "view"]
    assert report.declined == [("rule", name, "no") for name in seen]


def test_a_rewrite_that_does_not_fit_is_an_error_the_graph_stays_and_one_without_values_is_refused():
    graph_module = trace(NET, X)
    before = graph_module.code
    rule = relu_becomes(lambda self, args: self.emit(torch.mm, (args[0], args[0])))
    with pytest.raises(
        GraphMismatch, match=r"relu.*was rewritten to mm, which does not accept its operands"
    ):
        Passer([rewriter(rule)]).run(graph_module)
    assert graph_module.code == before
    with pytest.raises(UnsupportedCase, match=r"node 'x'.*no fake value"):
        Passer([rewriter(lambda *call: None)]).run(graph_of(lambda net, x: x + 1))


def test_the_signature_of_an_exported_network_stays():
    net = network(lambda net, x: {"one": F.relu(x), "two": x + 1})
    graph_module = trace(net, X, "export")
    relu = torch.ops.aten.relu.default

    def rule(self, target, args, kwargs):
        return self.emit(torch.ops.aten.neg.default, args) if target is relu else None

    assert len(rewriter(rule).run(graph_module).changed) == 1
    graph_module.recompile()
    result = graph_module(*X)
    assert torch.equal(result["one"], -X[0]) and torch.equal(result["two"], X[0] + 1)


def test_rewrites_see_no_numbers():
    """What a rewrite asks for is known without data: parameters, inputs and new constants are fake
    to it.
    """
    net = network(lambda net, x: F.relu(x) * net.weight, weight=torch.ones(3))
    seen = []

    def rule(self, target, args, kwargs):
        if target is F.relu:
            return self.emit(torch.sub, (args[0], self.constant(torch.ones(3), "shift")))
        return seen.extend(arg.value for arg in args)

    graph_module = trace(net, X)
    Passer([rewriter(rule)]).run(graph_module)
    values = [node.meta["val"] for node in graph_module.graph.nodes if node.op != "output"]
    assert len(values) == 5 and all(isinstance(value, FakeTensor) for value in [*values, *seen])
    assert torch.equal(graph_module(*X), X[0] - 1)
