import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import StochasticDepth

from helpers.graphs.tracing import trace
from helpers.passes import Passer, optimize
from tests.passes.folding import calls, fold
from tests.passes.zoo import alone

GOES = {
    "Identity": lambda m, x: m.identity(x),
    "Dropout2d": lambda m, x: m.drop(x),
    "stochastic depth": lambda m, x: m.depth(x),
    "x - zeros": lambda m, x: x - m.zeros,
    "x * ones": lambda m, x: x * m.ones,
    "expand": lambda m, x: x.expand(-1, -1, -1, -1),
    "flatten": lambda m, x: x.flatten(-1),
    "pad by nothing": lambda m, x: F.pad(x, (0, 0)),
}
STAYS = {
    "0 - x": lambda m, x: 0 - x,
    "1 / x": lambda m, x: 1 / x,
    "x + 1": lambda m, x: x + 1,
    "x * 0": lambda m, x: x * 0,
    "x * nearly ones": lambda m, x: x * m.nearly,
    "x + zeros that grow the shape": lambda m, x: x + m.zeros[None],
    "x - zeros that grow the batch": lambda m, x: x[:1] - m.zeros.expand(5, 3, 1, 1),
    "view of this shape only": lambda m, x: x.view(-1, 3, 4, 4),
    "view of another shape": lambda m, x: x.view(2, 12, 4),
    "to another dtype": lambda m, x: x.to(torch.float32),
    "to a copy": lambda m, x: x.to(torch.float64, copy=True).add_(1) * x,
    "dropout in training": lambda m, x: F.dropout(x, 0.5, True),
    "pad": lambda m, x: F.pad(x, (0, 1)),
}


def network(run) -> nn.Module:
    def around(m, x):
        return torch.relu(run(m, torch.exp(x)))

    nearly = torch.ones(3, 1, 1).double()
    nearly[2] += 1e-12
    parts = {"identity": nn.Identity, "drop": nn.Dropout2d, "depth": lambda: StochasticDepth(0.5, "row")}
    tensors = {"zeros": torch.zeros(3, 1, 1), "ones": torch.ones(3, 1, 1), "nearly": nearly}
    return alone(around, **parts, **{name: lambda value=value: value for name, value in tensors.items()})()


@pytest.mark.parametrize("what", GOES)
def test_what_returns_its_input_goes(what):
    graph_module, _ = fold("elim_identity", network(GOES[what]), torch.randn(2, 3, 4, 4))
    assert calls(graph_module) == [torch.exp, F.relu]


@pytest.mark.parametrize("what", STAYS)
def test_what_computes_something_stays(what):
    graph_module, _ = fold("elim_identity", network(STAYS[what]), torch.randn(2, 3, 4, 4))
    assert len(calls(graph_module)) > 2


VIEWS = {
    "a class token": lambda m, x: torch.cat([m.ones[None].expand(x.size(0), -1, -1, -1).reshape(-1, 3, 1), x], 2),
    "squeeze of everything": lambda m, x: x.mean(2).unsqueeze(2).exp().squeeze(),
    "squeeze of the batch": lambda m, x: x.exp().squeeze(0),
    "squeeze of the width": lambda m, x: x[..., : x.size(0)].exp().squeeze(-1),
    "a view of this width": lambda m, x: x.repeat(1, 1, x.size(0)).exp().view(-1, 3, 4),
    "expanded to this width": lambda m, x: x[..., : x.size(0)].exp().expand(-1, -1, 2),
    "a gate": lambda m, x: x * m.ones[0] + m.ones.add_(1).sum(),
}


def answer(model, x):
    """Shape and sum, or that it refuses this input."""
    try:
        y = model(x)
    except RuntimeError:
        return None
    return y.shape, pytest.approx(float(y.sum()), rel=1e-5)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("what", VIEWS)
def test_what_does_nothing_for_this_call_only_stays(what, images):
    model = alone(VIEWS[what], ones=lambda: torch.ones(3, 1, 1))().eval()
    optimised, _ = optimize(model, torch.randn(images, 3, 4), verify=False)
    for batch in (1, 2, 3):
        x = torch.randn(batch, 3, 4)
        assert answer(optimised, x) == answer(model, x)


def test_a_module_with_a_hook_stays():
    model = nn.Sequential(nn.Identity(), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, result: result + 1)
    graph_module, _ = fold("elim_identity", model, torch.randn(2))
    assert nn.Identity in calls(graph_module)


def test_a_dropout_module_in_training_stays():
    model = nn.Sequential(nn.Dropout2d(), nn.ReLU()).eval()
    graph_module = trace(model, (torch.randn(2, 3, 4, 4),))
    graph_module.get_submodule("0").train()
    Passer(["elim_identity"]).run(graph_module)
    assert nn.Dropout2d in calls(graph_module)
