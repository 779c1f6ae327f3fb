import copy
import math

import pytest
import torch

from helpers.quantization.equalization import equalize, input_view
from helpers.quantization.plan import INPUT, Op, Plan
from tests.quantization.plans import conv, in_double, inverted_residuals


def images(count=4, seed=9):
    return torch.randn(count, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 3


def equalized(plan):
    """The plan, which computes the same as before, and what it was."""
    before = copy.deepcopy(plan)
    equalize(plan)
    assert torch.allclose(plan.run(images()), before.run(images()), rtol=1e-9, atol=1e-9)
    return plan, before


@pytest.mark.parametrize("seed", range(4))
def test_the_function_stays_and_ranges_of_both_layers_agree_in_every_channel(seed):
    plan, before = equalized(in_double(inverted_residuals(seed, spread=2.0)))
    clipped = []
    before.run(images(), lambda edge, x: clipped.append((x == 6).any().item()))
    assert sum(clipped) >= 3, "the upper clamp must be at work, or this test shows nothing"
    for first, second in [("a.expand", "a.depthwise"), ("a.depthwise", "a.project"), ("head", "classifier")]:
        written = plan[first].weight.abs().flatten(1).amax(1)
        read = input_view(plan[second]).abs().amax((1, 3)).flatten()
        assert torch.allclose(written, read, rtol=0.01), (first, second)


def test_a_dead_channel_does_no_harm():
    plan = in_double(inverted_residuals())
    plan["a.expand"].weight[3] = 0
    plan["b.project"].weight[:, 5] = 0
    plan, before = equalized(plan)
    assert not torch.equal(plan["stem"].bias, before["stem"].bias)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_convolutions(groups):
    first = conv("first", (INPUT,), 3, 8, clamp=(0.0, math.inf), spread=2.0)
    second = conv("second", ("first",), 8, 12, kernel=3, groups=groups, seed=1)
    plan, before = equalized(in_double(Plan([first, second], (3, 8, 8))))
    assert not torch.equal(plan["first"].weight, before["first"].weight)


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
    last = conv("last", ("middle",), readers, 2)
    plan, before = equalized(in_double(Plan([conv("first", (INPUT,), 3, 4), between, last], (3, 8, 8))))
    for name in ("first", "last"):
        assert torch.equal(plan[name].weight, before[name].weight)
