"""Rewriting call by call: what becomes of a call, and what the new nodes know."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from course.lessons.rewriter import Rewriter
from helpers.graphs.errors import Declined, GraphMismatch, UnsupportedCase
from helpers.graphs.tracing import trace
from helpers.passes import Passer
from tests.passes.graphs import calls, graph_of, network


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

    def rule(self, target, args, kwargs):
        seen.append(target)
        self.emit(target, args, kwargs)  # which goes again
        raise Declined("no")

    graph_module = trace(net, X)
    before = graph_module.graph
    report = Passer([rewriter(rule)]).run(graph_module)
    assert report.changed == [] and graph_module.graph is before
    assert seen == ["linear", "relu", "view"]
    assert report.declined == [("rule", name, "no") for name in seen]


def test_a_rewrite_that_does_not_fit_leaves_the_graph_and_one_without_values_is_refused():
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
