"""Both tracers give a graph of the same answers, with shapes; tests/passes/test_optimizer.py has the bad inputs."""

import copy
import inspect

import pytest
import torch
from torch import nn

from helpers import passes
from helpers.graphs import tracing
from helpers.graphs.operations import NORMS
from helpers.graphs.tracing import ROUTES, WrongSize, trace
from helpers.passes.errors import UnsupportedCase
from tests.passes.equivalence import differences
from tests.passes.graphs import network
from tests.passes.zoo import conv, norm

X = torch.randn(2, 3, 6, 6)


def block() -> nn.Module:
    return nn.Sequential(conv(), norm(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).eval()


@pytest.mark.parametrize("route", ROUTES)
def test_the_same_answers_shapes_and_names(route):
    model = block()
    graph_module = trace(model, (X,), route)
    assert differences(model, graph_module, X) == []
    assert graph_module.graph.output_node().args[0].meta["val"].shape == (2, 3)
    assert graph_module.state_dict().keys() == model.state_dict().keys()
    assert not graph_module.training
    theirs = {tensor.data_ptr() for tensor in model.state_dict().values()}
    assert theirs.isdisjoint(tensor.data_ptr() for tensor in graph_module.state_dict().values())


def test_a_copy_keeps_what_is_shared_and_what_was_added():
    layer, other = nn.Linear(2, 2), nn.Linear(2, 2)
    other.weight, other.note = layer.weight, {"a": [1]}
    other.hook = other.register_forward_hook(lambda module, args, result: result + 1)
    model = nn.Sequential(layer, nn.ReLU(), layer, other).eval()
    copied, x = tracing._copied(model), torch.randn(3, 2)
    assert torch.equal(copied(x), model(x)) and copied.state_dict().keys() == model.state_dict().keys()
    assert copied[0] is copied[2] and copied[0].weight is copied[3].weight and copied[0].weight is not layer.weight
    assert copied[3].note == other.note and copied[3].note["a"] is not other.note["a"]
    assert copied[1]._forward_hooks is not model[1]._forward_hooks


@pytest.mark.parametrize("route", ROUTES)
def test_results_in_any_form(route):
    def run(net, x):
        return {"a": net.conv(x), "b": [x, (x * 2, None)]}

    model = network(run, conv=conv())
    result = trace(model, (X,), route)(X)
    assert result.keys() == {"a", "b"} and torch.equal(result["b"][1][0], 2 * X) and result["b"][1][1] is None


@pytest.mark.parametrize("route", ROUTES)
def test_a_tensor_that_is_given_twice_is_two_inputs(route):
    graph_module = trace(network(lambda net, x, *rest: x - rest[0] * rest[1]["y"]), (X, X, {"y": X}), route)
    one, two, three = (torch.randn_like(X) for _ in range(3))
    assert torch.equal(graph_module(one, two, {"y": three}), one - two * three)


def modes(net, x):
    """Gradients on and off, one inside the other, with two results."""
    with torch.no_grad():
        x = net.conv(x)
        with torch.enable_grad():
            x = net.norm(x)
        one, two = x.chunk(2, 1)
    return torch.relu(one).mean() + net.last(two)


@pytest.mark.parametrize("route", ROUTES)
def test_whether_gradients_are_computed_makes_no_difference(route):
    model = network(modes, conv=conv(), norm=norm(4), last=conv(2, 2))
    folded, _ = passes.optimize(model, X, route=route)
    assert [type(module) for module in folded.modules() if isinstance(module, NORMS)] == []
    assert {name.split(".")[0] for name, _ in folded.named_modules()} == {"", "conv", "last"}
    assert differences(model, folded, X) == []


def test_what_runs_under_autocast_is_refused_or_declined():
    def run(net, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net.norm(net.conv(x))

    model = network(run, conv=conv(), norm=norm(4))
    with pytest.raises(UnsupportedCase, match=r"py:\d+: it calls conv under torch\.autocast.*other route"):
        trace(model, (X,))
    folded, report = passes.optimize(model, X, route="export")
    assert folded(X).dtype == torch.bfloat16 and torch.equal(folded(X), model(X))
    assert [reason for *_, reason in report.declined] == [
        "wrap_with_autocast runs a graph of its own, into which no pass looks"
    ]


def by_content(net, x):
    if x.sum() > 0:
        return x
    return -x


def raises(net, x):
    raise KeyError("no such block")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("function", "line"), [(by_content, 1), (raises, 1)])
def test_what_cannot_be_traced_is_named_with_the_line(function, line, route):
    number = inspect.getsourcelines(function)[1] + line
    with pytest.raises(
        UnsupportedCase, match=rf"(?s)Net cannot be traced at .*test_tracing\.py:{number}: .*other route"
    ):
        trace(network(function), (X,), route)


def test_an_exported_graph_takes_any_batch_and_refuses_other_sizes():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2)).eval()
    graph_module = trace(model, (torch.randn(1, 3, 8, 8),), route="export")
    for again in (graph_module, copy.deepcopy(graph_module)):
        x = torch.randn(5, 3, 8, 8)
        assert torch.allclose(again(x), model(x), atol=1e-6)
        with pytest.raises(WrongSize, match=r"\(any, 3, 8, 8\) and got inputs of shape \(5, 3, 9, 9\)"):
            again(torch.randn(5, 3, 9, 9))


class Scaled(nn.Module):
    def forward(self, x, k=None):
        return x if k is None else x * k


@pytest.mark.parametrize(
    ("example", "other"), [(2.0, 3.0), (True, False), (None, torch.ones(2, 3)), (torch.ones(2, 3), None)]
)
def test_a_number_or_flag_that_export_has_recorded_cannot_be_another(example, other):
    x = torch.randn(2, 3)
    traced = trace(Scaled().eval(), (x, example), route="export")
    assert torch.equal(traced(x, example), Scaled()(x, example))
    with pytest.raises(WrongSize, match="recorded for"):
        traced(x, other)
