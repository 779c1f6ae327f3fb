"""Iterative pruning ends where one shot ends, and recovers after every cut."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from helpers import pruning
from helpers.pruning.allocation import AllocationError
from tests.pruning.zoo import ToyMobile, build

EXAMPLE = torch.zeros(1, 3, 8, 8)


@pytest.mark.parametrize(("ratio", "steps"), [(0.5, 3), (0.7, 4), (0.3, 1)])
def test_the_widths_are_those_of_one_shot(ratio, steps):
    seen = []
    small = pruning.prune_in_steps(build(ToyMobile), EXAMPLE, ratio, steps, seen.append, scope="all")
    once = pruning.prune(build(ToyMobile), EXAMPLE, ratio, scope="all")
    assert [p.shape for p in small.parameters()] == [p.shape for p in once.parameters()]
    counts = [sum(p.numel() for p in m.parameters()) for m in seen]
    assert len(counts) == steps
    assert counts == sorted(counts, reverse=True)
    assert seen[-1] is small


@pytest.mark.parametrize("widths", [(3,), (3, 10)])
def test_groups_that_are_down_to_one_unit_do_not_stop_the_others(widths):
    layers = [nn.Sequential(nn.Conv2d(a, b, 1), nn.ReLU()) for a, b in pairwise((3, *widths))]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10)).eval()
    seen = []
    small = pruning.prune_in_steps(model, EXAMPLE, 0.9, 9, seen.append, scope="all")
    assert [small[i][0].out_channels for i in range(len(widths))] == [1] * len(widths)
    assert len(seen) == 9


def test_recovery_changes_what_is_cut_next():
    def swap(model):
        model.blocks[0].expand.weight.data[0] *= 1e-6
        model.blocks[0].depthwise.weight.data[0] *= 1e-6
        model.train()

    small = pruning.prune_in_steps(build(ToyMobile), EXAMPLE, 0.5, 2, swap)
    # After the first cut unit 0 was made tiny, so the second cut took it; only the last recovery left its mark.
    assert int((small.blocks[0].expand.weight.abs().amax((1, 2, 3)) < 1e-5).sum()) == 1
    assert not small.training


def test_impossible_schedules_are_refused():
    for steps in (0, 1.5):
        with pytest.raises(AllocationError, match="steps is"):
            pruning.prune_in_steps(build(ToyMobile), EXAMPLE, 0.5, steps, lambda model: None)
    with pytest.raises(AllocationError, match="ratio is 1"):
        pruning.prune_in_steps(build(ToyMobile), EXAMPLE, 1, 2, lambda model: None)
