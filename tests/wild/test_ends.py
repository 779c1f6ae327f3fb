"""What is easily forgotten: the right answer on every way, or one clear sentence."""

import warnings
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from helpers import passes, pruning, quantization

X = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Clamped(nn.Module):
    def forward(self, x):
        return x.clamp(1, -1)


def network(middle=None, names=("first", "middle", "last")):
    """Three layers, with these names."""
    torch.manual_seed(0)
    parts = [nn.Conv2d(3, 8, 3), middle or nn.ReLU(), nn.Conv2d(8, 4, 3)]
    return nn.Sequential(OrderedDict(zip(names, parts, strict=True))).eval()


def normed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        return network(nn.utils.weight_norm(nn.Conv2d(8, 8, 1)))


WAYS = {
    "fx": lambda m: passes.optimize(m, X[:2], level="inference")[0],
    "export": lambda m: passes.optimize(m, X[:2], level="inference", route="export")[0],
    "quantize": lambda m: quantization.quantize(m, X, quantization.Recipe(observer="minmax")),
    "prune": lambda m: pruning.prune(m, X[:2], ratio=0.0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("model", "refusals"),
    [
        (network(names=("keys", "update", "items")), {}),
        (network(Clamped()), {}),
        (normed(), dict.fromkeys(WAYS, "cannot be copied")),
    ],
    ids=["named like methods", "clamp upside down", "old weight_norm"],
)
def test_the_right_answer_or_one_sentence(model, refusals, way):
    if way in refusals:
        with pytest.raises((ValueError, RuntimeError), match=refusals[way]):
            WAYS[way](model)
        return
    made = WAYS[way](model)
    with torch.no_grad():
        assert (made(X[:2]) - model(X[:2])).abs().max() < 0.05


def test_a_quantized_network_refuses_nan():
    q = WAYS["quantize"](network())
    for q.mode in quantization.MODES:
        with pytest.raises(quantization.QuantizationError, match="NaN"):
            q(torch.full((1, 3, 8, 8), torch.nan))


def with_nan(model):
    model.middle.weight.data[0] = torch.nan
    return model


WRONG = {
    "middle.weight holds NaN or infinity; check the checkpoint": lambda m: WAYS["quantize"](with_nan(m)),
    r"call .float\(\) on the images and": lambda m: quantization.quantize(m.double(), X.double()),
    "the example inputs must hold a tensor, got NoneType": lambda m: passes.optimize(m, None),
    "must hold a tensor, got ndarray": lambda m: passes.optimize(m, X.numpy()),
    "example_inputs: expected one tensor or a tuple": lambda m: pruning.prune(m, None),
    r"expected a network \(nn.Module\), got str": lambda m: passes.optimize("m", X),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_named(message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        WRONG[message](network(nn.Conv2d(8, 8, 1)))


def test_numbers_of_numpy_are_numbers():
    small = pruning.prune(network(), X[:2], ratio=np.float32(0.5), round_to=np.int64(2))
    assert small.first.out_channels == 4


def test_torchscript_is_refused_by_prune_in_one_sentence():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        model = network(torch.jit.script(nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU())))
    with pytest.raises(ValueError, match=r"nothing can be pruned .*this operation is not understood"):
        pruning.prune(model, X[:2])
