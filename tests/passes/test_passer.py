"""Running passes by name: order, rounds, checks, statistics, and the graph back as it was."""

import pytest
import torch
from torch import fx, nn

from helpers.graphs.tracing import trace
from helpers.passes import registry
from helpers.passes.errors import CheckFailed, GraphMismatch, NotSettled, PassError
from helpers.passes.folder import Change, Pass, PassResult
from helpers.passes.passer import Passer, Statistics


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


class Restless(Pass):
    name = "restless"

    def run(self, graph_module):
        return PassResult([Change("graph", "touched")])


class Breaks(Pass):
    """Destroys the graph and its modules, then fails."""

    name = "breaks"

    def run(self, graph_module):
        first = next(node for node in graph_module.graph.nodes if node.op.startswith("call"))
        first.meta.clear()
        graph_module.graph.output_node().args = (first.args[0],)
        graph_module.delete_submodule("linear")
        graph_module.extra = nn.Linear(1, 1)
        raise PassError(self.name, "cannot go on", first)


class ForgetsResult(Pass):
    name = "forgets"

    def run(self, graph_module):
        return None


class Leaves(Pass):
    """Leaves a call to a module that is not there."""

    name = "leaves"

    def run(self, graph_module):
        graph_module.delete_submodule("0")
        return PassResult([Change("_0", "gone")])


def test_once_in_order_with_statistics():
    graph_module = traced()
    report = Passer([DropLast(), DropLast()]).run(graph_module)
    table = report.table()
    assert list(table["nodes_before"]) == [5, 4] and list(table["nodes_after"]) == [4, 3]
    assert list(table["params_before"]) == [12, 12] and list(table["changed"]) == [1, 1] and (table["ms"] > 0).all()
    assert report.rows[0].before.ops == {"placeholder": 1, "call_module": 3, "output": 1}
    x = torch.randn(2, 3)
    assert torch.equal(graph_module(x), graph_module.get_submodule("0")(x))


def test_to_a_fixed_point():
    graph_module = traced()
    report = Passer([DropLast()], rounds=9).run(graph_module)
    assert [len(row.result.changed) for row in report.rows] == [1, 1, 0]
    assert report.declined == [("drop_last", "_0", "it is the only one")]


def test_the_bound_on_rounds_is_an_error_and_undoes_everything():
    graph_module = traced()
    with pytest.raises(NotSettled, match="restless"):
        Passer([DropLast(), Restless()], rounds=4).run(graph_module)
    assert len(graph_module.graph.nodes) == 5


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return {"one": self.linear(x), "two": x * 2}


@pytest.mark.parametrize("route", ["fx", "export"])
def test_a_failing_pass_leaves_the_graph_as_it_was(route):
    x = torch.randn(2, 3)
    graph_module = trace(Pair().eval(), (x,), route)
    expected, code, keys = graph_module(x), graph_module.code, set(graph_module.state_dict())
    shapes = [node.meta["val"].shape for node in graph_module.graph.nodes if "val" in node.meta]
    with pytest.raises(PassError, match=r"breaks at node 'linear'.*cannot go on"):
        Passer([Breaks()]).run(graph_module)
    assert graph_module.code == code and not hasattr(graph_module, "extra")
    assert set(graph_module.state_dict()) == keys
    assert [node.meta["val"].shape for node in graph_module.graph.nodes if "val" in node.meta] == shapes
    assert all(map(torch.equal, graph_module(x).values(), expected.values()))
    graph_module.graph.lint()


def test_all_checks_run_after_each_pass_that_changed_something():
    seen = []

    def first(graph_module):
        seen.append(("first", len(graph_module.graph.nodes)))

    def second(graph_module):
        seen.append(("second", graph_module(torch.randn(2, 3)).shape))

    Passer([DropLast(), DropLast(), DropLast()], checks=[first, second]).run(traced())
    assert seen == [("first", 4), ("second", (2, 3)), ("first", 3), ("second", (2, 3))]


def test_a_failed_check_names_the_pass_and_undoes_it():
    graph_module = traced()

    def at_least_four_nodes(graph_module):
        assert len(graph_module.graph.nodes) >= 4, "too small"

    with pytest.raises(CheckFailed, match=r"drop_last: the check at_least_four_nodes .*too small"):
        Passer([DropLast(), DropLast()], checks=[at_least_four_nodes]).run(graph_module)
    assert len(graph_module.graph.nodes) == 5


def test_a_pass_must_return_a_result():
    with pytest.raises(PassError, match=r"forgets: run\(\) returned NoneType"):
        Passer([ForgetsResult()]).run(traced())


def test_a_pass_that_leaves_a_malformed_graph_is_caught_and_undone():
    graph_module = traced()
    with pytest.raises(GraphMismatch, match="leaves"):
        Passer([Leaves()]).run(graph_module)
    graph_module(torch.randn(2, 3))


def test_statistics_count_shared_parameters_once():
    shared = nn.Linear(3, 2)
    statistics = Statistics.of(fx.symbolic_trace(nn.Sequential(shared, nn.Linear(2, 3), shared)))
    assert statistics.parameters == 8 + 9 and statistics.nodes == 5


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(registry, "_PASSES", {})

    @registry.register
    class Everywhere(Pass):
        name = "everywhere"

        def run(self, graph_module):
            return PassResult()

    @registry.register
    class Other(Everywhere):
        name = "other"

    return Everywhere, Other


def test_look_up_by_name_gives_a_fresh_pass(known):
    one, other = registry.get("everywhere"), registry.get("everywhere")
    assert type(one) is known[0] and one is not other
    assert repr(one) == "<pass everywhere>"


def test_unknown_names_are_answered_with_the_near_matches(known):
    with pytest.raises(registry.UnknownPass, match=r"'everywere': did you mean everywhere\?"):
        registry.get("everywere")
    with pytest.raises(registry.UnknownPass, match="'xyz': there are everywhere, other"):
        registry.get("xyz")


def test_bad_registrations(known):
    class NoName(Pass):
        pass

    class Taken(Pass):
        name = "other"

    for cls, message in [
        (NoName, "no name"),
        (Taken, "wants the name"),
        (dict, "not a Pass"),
    ]:
        with pytest.raises(registry.BadRegistration, match=message):
            registry.register(cls)
    assert [*registry._PASSES] == ["everywhere", "other"]
