"""Every classification network of torchvision: pruned, exact, reloaded, its unprunable groups as
they are listed.
"""

import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchvision
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import models, pruning
from helpers.equivalence import gap
from helpers.pruning.surgery import cut
from tests.marks import IN_CI
from tests.pruning.zeroing import random_plan, zeroed

LISTED = Path(__file__).resolve().parents[2] / "data" / "results" / "unprunable.csv"
QUICK = [
    "squeezenet1_1",
    "shufflenet_v2_x0_5",
    "mobilenet_v3_small",
    "mnasnet0_5",
    "resnet18",
    "regnet_y_400mf",
]
SHARE = [
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s"),
    *("googlenet", "inception_v3", "maxvit_t", "mobilenet_v2", "mobilenet_v3_large"),
    *("regnet_x_400mf", "regnet_x_800mf", "regnet_y_800mf", "resnet34", "resnet50"),
    *("resnext50_32x4d", "shufflenet_v2_x1_0", "shufflenet_v2_x2_0", "squeezenet1_0", "swin_t"),
    *("swin_v2_t", "vgg11", "vgg11_bn", "vit_b_16", "vit_b_32"),
    "wide_resnet50_2",
]
REST = sorted(set(torchvision.models.list_models(module=torchvision.models)) - {*QUICK, *SHARE})
ALL = [
    *QUICK,
    *(pytest.param(name, marks=IN_CI) for name in SHARE),
    *(pytest.param(name, marks=pytest.mark.slow) for name in REST),
]
TRANSFORMERS = ("vit", "swin", "maxvit")


def size_of(name: str) -> int:
    """The smallest usual image that the network takes."""
    return 224 if name.startswith(TRANSFORMERS) else 299 if name == "inception_v3" else 96


def image(name: str, seed: int = 0) -> torch.Tensor:
    return torch.randn(
        1, 3, size_of(name), size_of(name), generator=torch.Generator().manual_seed(seed)
    )


@pytest.fixture(scope="module", params=ALL)
def network(request) -> SimpleNamespace:
    """Random weights, BatchNorms that are no identities, and no layer of zeros (as the head of a
    new ViT, which gives 0 whatever is cut). One network is in memory at a time.
    """
    torch.manual_seed(0)
    extra = {"init_weights": False} if request.param in ("googlenet", "inception_v3") else {}
    model = models.build(request.param, **extra).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
        if isinstance(module, nn.Linear) and not module.weight.any():
            nn.init.normal_(module.weight, 0, 0.1)
    groups = pruning.channel_groups(model, image(request.param))
    return SimpleNamespace(name=request.param, model=model, groups=groups)


def test_pruned_by_a_third_it_runs_shrinks_and_reloads(network, tmp_path):
    name, model, x = network.name, network.model, image(network.name)
    small = pruning.prune(model, x, ratio=0.3, scope="all")
    with torch.no_grad():
        expected = small(x)
    before, left = (sum(p.numel() for p in m.parameters()) for m in (model, small))
    assert left < (0.9 if name.startswith(TRANSFORMERS) else 0.85) * before
    loaded = models.load(models.save(small, tmp_path / "small.safetensors"))
    with torch.no_grad():
        assert torch.equal(loaded(x), expected)


@settings(
    max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(seed=st.integers(0, 2**32 - 1))
def test_cutting_is_exactly_zeroing(network, seed):
    model, groups, x = network.model, network.groups, image(network.name, seed)
    plan = random_plan(groups, np.random.default_rng(seed))
    small, _ = cut(model, groups, plan)
    with torch.no_grad():
        assert (
            gap(zeroed(model, groups, plan)(x), small(x))[1] < 1e-4
        )  # random weights give outputs of any size
        shifted = {group: (units + 1) % groups[group].size for group, units in plan.items()}
        assert not torch.allclose(zeroed(model, groups, shifted)(x), small(x), rtol=1e-4, atol=0)


def test_unprunable_groups_are_those_that_are_listed(network):
    """The list may only shrink: a group that is new here is a step back, one that is gone has to
    leave the list too.
    """
    with LISTED.open(newline="") as file:
        listed = {
            (r["group"], int(r["units"]))
            for r in csv.DictReader(file)
            if r["network"] == network.name
        }
    found = {
        (g.name, g.size)
        for g in network.groups
        if g.reason and g.reason != "it is an output of the network"
    }
    assert found == listed
