import copy
import math

import pytest
import torch

from helpers.quantization.equalization import equalize, input_view
from helpers.quantization.plan import INPUT, Op, Plan
from tests.quantization.plans import conv, in_double, inverted_residuals


def images(count=4, seed=9):
    return torch.randn(count, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("seed", range(4))
def test_the_function_stays_and_relu6_still_clips(seed):
    plan = in_double(inverted_residuals(seed, spread=2.0))
    equalized = copy.deepcopy(plan)
    equalize(equalized)
    clipped = []
    plan.run(images(), lambda edge, x: clipped.append((x == 6).any().item()))
    assert sum(clipped) >= 3, "the upper clamp must be at work, or this test shows nothing"
    assert torch.allclose(plan.run(images()), equalized.run(images()), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(plan["a.expand"].weight, equalized["a.expand"].weight, rtol=0.1)


def test_ranges_of_both_layers_agree_in_every_channel():
    plan = inverted_residuals(spread=2.0)
    equalize(plan)
    for before, after in [("a.expand", "a.depthwise"), ("a.depthwise", "a.project"), ("head", "classifier")]:
        written = plan[before].weight.abs().flatten(1).amax(1)
        read = input_view(plan[after]).abs().amax((1, 3)).flatten()
        assert torch.allclose(written, read, rtol=0.01), (before, after)


def test_input_and_output_of_the_network_stay():
    plan = inverted_residuals()
    kept = copy.deepcopy(plan)
    equalize(plan)
    assert torch.equal(plan["classifier"].bias, kept["classifier"].bias)
    assert not torch.equal(plan["stem"].bias, kept["stem"].bias)


def test_a_dead_channel_does_no_harm():
    plan = in_double(inverted_residuals())
    plan["a.expand"].weight[3] = 0
    plan["b.project"].weight[:, 5] = 0
    before = plan.run(images())
    equalize(plan)
    assert torch.allclose(plan.run(images()), before, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "between",
    [
        Op("middle", "float", ("first",), module=torch.nn.Sigmoid(), shape=(4, 8, 8)),
        Op("middle", "clamp", ("first",), clamp=(-1.0, 1.0), shape=(4, 8, 8)),
        Op("middle", "reshape", ("first",), shape=(16, 4, 4)),
    ],
)
def test_what_a_factor_cannot_pass_is_left_alone(between):
    readers = 16 if between.kind == "reshape" else 4
    plan = Plan([conv("first", (INPUT,), 3, 4), between, conv("last", ("middle",), readers, 2)], (3, 8, 8))
    before = copy.deepcopy(plan)
    equalize(plan)
    assert torch.equal(plan["first"].weight, before["first"].weight)
    assert torch.equal(plan["last"].weight, before["last"].weight)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_convolutions(groups):
    first = conv("first", (INPUT,), 3, 8, clamp=(0.0, math.inf), spread=2.0)
    second = conv("second", ("first",), 8, 12, kernel=3, groups=groups, seed=1)
    plan = in_double(Plan([first, second], (3, 8, 8)))
    before = plan.run(images())
    equalize(plan)
    assert torch.allclose(plan.run(images()), before, rtol=1e-9, atol=1e-9)
