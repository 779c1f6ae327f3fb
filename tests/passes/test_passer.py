"""Running passes by name, with rounds, checks and the graph back as it was."""

import pytest
import torch
from torch import fx, nn

from helpers.graphs.errors import CheckFailed, GraphMismatch, PassError
from helpers.graphs.patterns import OpPattern
from helpers.graphs.rewriting import Outcome
from helpers.graphs.tracing import trace
from helpers.passes.base import Pass, RulePass
from helpers.passes.passer import Passer, size_of
from tests.passes.graphs import network


def traced() -> fx.GraphModule:
    return fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Dropout()).eval())


class DropLast(Pass):
    """Takes the last operation away, as long as there is more than one."""

    name = "drop_last"

    def run(self, graph_module):
        result = Outcome()
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
    return Outcome([("graph", "touched")])


def forgets(graph_module):
    """What it has to return."""


def leaves(graph_module):
    """A call to a module that is not there."""
    graph_module.delete_submodule("0")
    return Outcome([("_0", "gone")])


def crashes(graph_module):
    """An error that says nothing of passes."""
    return 1 / 0


def interrupted(graph_module):
    raise KeyboardInterrupt("now")


class Endless(RulePass):
    """Leaves its match in place."""

    name, rules = "endless", {OpPattern([nn.ReLU], name="relu"): lambda match, relu: "looked at"}


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
    first = "linear" if route == "fx" else "size"  # a guard of export's
    with pytest.raises(PassError, match=rf"breaks at node '{first}'.*cannot go on"):
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
        r"drop_last \(after drop_last\): the check at_least_four_nodes .*too small",
    ),
    "no result": (
        lambda: Passer([pass_of(forgets)]),
        PassError,
        r"forgets: run\(\) returned NoneType",
    ),
    "interrupted": (lambda: Passer([DropLast(), pass_of(interrupted)]), KeyboardInterrupt, "now"),
    "endless": (
        lambda: Passer([Endless()], rounds=3),
        PassError,
        r"the graph still changes in round 3: .* among endless$",
    ),
    "an error of any kind": (
        lambda: Passer([DropLast(), pass_of(restless), DropLast(), pass_of(crashes)]),
        PassError,
        r"^crashes \(after drop_last, restless\): ZeroDivisionError: division by zero$",
    ),
    "an error with a node": (
        lambda: Passer([DropLast(), pass_of(breaks)]),
        PassError,
        r"^breaks at node '_0' \(after drop_last\): cannot go on$",
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
