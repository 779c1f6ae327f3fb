"""Both tracers give a graph of the same answers, with shapes; tests/passes/test_optimizer.py has the bad inputs."""

import inspect

import pytest
import torch
from torch import nn

from helpers.passes.errors import GraphMismatch, UnsupportedCase
from helpers.passes.tracing import ROUTES, UnknownChoice, trace
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


@pytest.mark.parametrize("route", ROUTES)
def test_owned_false_shares_the_tensors_until_they_are_copied(route):
    model = block()
    shared = trace(model, (X,), route, owned=False)
    assert shared.get_submodule("0").weight is model[0].weight


@pytest.mark.parametrize("route", ROUTES)
def test_results_in_any_form(route):
    def run(net, x):
        return {"a": net.conv(x), "b": [x, (x * 2, None)]}

    model = network(run, conv=conv())
    result = trace(model, (X,), route)(X)
    assert result.keys() == {"a", "b"} and torch.equal(result["b"][1][0], 2 * X) and result["b"][1][1] is None


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


@pytest.mark.parametrize(
    ("model", "x", "node"),
    [
        (block, X[:, :2], "_0"),
        (block, X.double(), "_0"),
        (lambda: block().half(), X, "_0"),
        (lambda: nn.Sequential(conv(), norm(4), conv(4, 2).double()).eval(), X, "_2"),
    ],
    ids=["channels", "double input", "half network", "mixed network"],
)
def test_what_does_not_fit_is_named_with_the_node(model, x, node):
    model = model()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(GraphMismatch, match=f"(?s)node '{node}'.*does not accept its inputs.*dtypes and devices agree"):
        trace(model, (x,))
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    with pytest.raises(UnsupportedCase, match="cannot be traced"):
        trace(model, (x,), "export")


def test_train_mode_and_unknown_routes():
    with pytest.raises(UnsupportedCase, match=r"Sequential is in train mode: call model\.eval\(\) first"):
        trace(block().train(), (X,))
    with pytest.raises(UnknownChoice, match="no route 'jit': choose one of fx, export"):
        trace(block(), (X,), "jit")
