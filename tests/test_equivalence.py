import copy

import pytest
import torch
from torch import nn
from torch.fx.experimental.optimization import fuse

from helpers.equivalence import EquivalenceError, assert_equivalent, randomize_batchnorm

X = torch.zeros(2, 3, 8, 8)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 1), nn.BatchNorm2d(5)).eval()


def test_a_right_fold_passes_as_module_and_as_function():
    model = randomize_batchnorm(network())
    assert_equivalent(model, fuse(model), X)
    assert_equivalent(network(), fuse, X)


def forget_eps(model):
    fused = copy.deepcopy(model)
    fused[1].eps = 0.0
    return fused


def forget_mean(model):
    fused = copy.deepcopy(model)
    fused[1].running_mean.zero_()
    return fused


def round_to_half(model):
    return copy.deepcopy(model).half().to(model[0].weight.dtype)


@pytest.mark.parametrize("wrong", [forget_eps, forget_mean, round_to_half])
def test_wrong_rewrites_are_caught(wrong):
    with pytest.raises(EquivalenceError, match=r"trial 0: it is off by .* most at \(\d, \d, \d, \d\): .* instead of "):
        assert_equivalent(network(), wrong, X)


def test_forgotten_statistics_hide_when_they_are_fresh():
    assert_equivalent(network(), forget_mean(network()), X)


@pytest.mark.parametrize("bad", [nn.Flatten(), nn.Sequential(nn.Identity(), nn.Threshold(10, float("nan")))])
def test_other_shapes_and_nan_are_caught(bad):
    with pytest.raises(EquivalenceError):
        assert_equivalent(nn.Identity(), bad, X)


def test_neither_network_is_touched():
    model = network().train()
    before = copy.deepcopy(model.state_dict())
    assert_equivalent(model, copy.deepcopy, X)
    assert model.training
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())


def test_randomized_statistics_have_negative_scales_and_positive_variances():
    layer = randomize_batchnorm(
        nn.Sequential(nn.BatchNorm2d(200), nn.BatchNorm1d(3, affine=False, track_running_stats=False))
    )[0]
    assert 0 < int((layer.weight < 0).sum()) < 100
    assert float(layer.running_var.min()) > 0
    assert float(layer.running_mean.std()) > 0.3
