import copy

import pytest
import torch
from torch import nn

from helpers.quantization import Recipe, make_plan
from helpers.quantization.equalization import equalize, input_view
from tests.quantization.networks import images, small


def equalized(model):
    """The plan of a network, in float64, where a comparison shows mistakes and not rounding; and
    what it was before.
    """
    plan = make_plan(model.eval(), (3, 9, 9), Recipe())
    for op in plan.layers:
        op.weight, op.bias = op.weight.double(), op.bias.double()
    before, x = copy.deepcopy(plan), 9 * images().double()
    equalize(plan)
    assert torch.allclose(plan.run(x), before.run(x), rtol=1e-9, atol=1e-9)
    return plan, before


@pytest.mark.parametrize("seed", range(3))
def test_the_function_stays_and_ranges_of_both_layers_agree_in_every_channel(seed):
    model, clipped = small(seed), []
    with torch.no_grad():
        model.widen.weight.mul_(torch.exp(2 * torch.randn(24, 1, 1, 1)))
    plan, before = equalized(model)
    before.run(9 * images().double(), lambda edge, x: clipped.append((x == 6).any().item()))
    assert any(clipped), "the upper clamp must be at work, or this test shows nothing"
    for first, second in [("widen", "depthwise"), ("depthwise", "narrow"), ("grouped", "fc")]:
        written = plan[first].weight.abs().flatten(1).amax(1)
        read = input_view(plan[second]).abs().amax((1, 3)).flatten()
        assert torch.allclose(written, read, rtol=0.01), (first, second)
    assert not torch.equal(
        plan["stem"].weight, before["stem"].weight
    )  # the shortcut has one factor on both its ends


def test_a_dead_channel_does_no_harm():
    model = small()
    with torch.no_grad():
        model.widen.weight[3:5] = 0
        model.widen.bias[3:5] = torch.tensor([-1, 1])
        model.grouped.weight[:, 2] = 0
    plan, before = equalized(model)
    read = plan["depthwise"].weight.flatten(1).abs().amax(1)
    assert (
        read[3] == 0 < read[4]
    )  # the first is never on, and large weights that read it would take all the range
    assert not torch.equal(plan["stem"].bias, before["stem"].bias)


@pytest.mark.parametrize("between", [nn.Sigmoid(), nn.Hardtanh(-1, 1), nn.Flatten()])
def test_what_a_factor_cannot_pass_is_left_alone(between):
    last = nn.Linear(324, 2) if isinstance(between, nn.Flatten) else nn.Conv2d(4, 2, 1)
    plan, before = equalized(nn.Sequential(nn.Conv2d(3, 4, 1), between, last))
    for one, other in zip(plan.layers, before.layers, strict=True):
        assert torch.equal(one.weight, other.weight)
