"""Learned rounding and bias correction: alone on one layer, and on a whole network."""

import itertools

import pytest
import torch
from torch import nn

from helpers.quantization import Recipe, quantize, repairs
from helpers.quantization.plan import INPUT, PlanOp
from helpers.quantization.repairs import covariance, learn_rounding, output_error, rows
from helpers.quantization.weights import encode_layer
from tests.quantization.networks import images, small


def error(seed=0, spread=0.0, **choices):
    """How far the small network's answers to new images are from those in float."""
    model, fresh = small(seed), images(200, seed=4)
    unequal = torch.exp(
        spread * torch.randn(24, 1, 1, 1, generator=torch.Generator().manual_seed(seed))
    )
    with torch.no_grad():
        model.widen.weight.mul_(unequal)
        model.depthwise.weight.div_(unequal)
        quantized = quantize(model, images(96), Recipe(observer="minmax", **choices))
        return (quantized(fresh) - model(fresh)).square().mean().item()


def test_each_repair_lowers_the_error():
    recipes = {"plain": {}, "corrected": {"bias_correction": "empirical"}}
    recipes["learned"] = recipes["corrected"] | {"rounding": "learned"}
    found = {
        name: sum(error(seed, weight_bits=3, **recipe) for seed in range(3))
        for name, recipe in recipes.items()
    }
    assert (
        found["corrected"] < 0.3 * found["plain"] and found["learned"] < 0.9 * found["corrected"]
    ), found


@pytest.mark.parametrize("seed", [0, 1])
def test_equalisation_rescues_one_scale_per_layer(seed):
    broken, repaired = (
        error(seed, 3.0, weight_bits=6, per_channel=False, equalize=on) for on in (False, True)
    )
    assert repaired < 0.4 * broken


def test_it_gains_most_of_what_the_best_combination_gains_and_no_row_gets_worse():
    nearest = achieved = best = 0.0
    for seed in range(4):
        torch.manual_seed(seed)
        op = PlanOp("fc", "linear", (INPUT,), torch.randn(3, 6), torch.zeros(3), shape=(3,))
        # Inputs that move together, as activations do: there rounding one weight can make up for
        # another.
        x = [torch.randn(400, 1) + 0.2 * torch.randn(400, 6)]
        layer, seen = encode_layer(op, Recipe(weight_bits=3)), covariance(op, x, x)
        scale = layer.scale[:, None]
        ups = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)))
        every = (
            (torch.floor(op.weight / scale)[:, None] + ups).clamp(-3, 3) * scale[:, None]
        ).transpose(0, 1)
        found = torch.stack(
            [output_error(rows(op, op.weight), one[None], seen).flatten() for one in every]
        )
        both = (layer, learn_rounding(op, layer, seen))
        before, after = (
            output_error(rows(op, op.weight), rows(op, one.decode()), seen) for one in both
        )
        assert (after <= before).all()
        best, nearest, achieved = (
            best + found.min(0).values.sum(),
            nearest + before.sum(),
            achieved + after.sum(),
        )
    assert best <= achieved
    small = [1e-3 * x[0]]  # in which a tenth of a billionth is no small error
    op = PlanOp("fc", "linear", (INPUT,), 1e-3 * op.weight, torch.zeros(3), shape=(3,))
    layer, seen = encode_layer(op, Recipe(weight_bits=8)), covariance(op, small, small)
    before, after = (
        output_error(rows(op, op.weight), rows(op, one.decode()), seen)
        for one in (layer, learn_rounding(op, layer, seen))
    )
    assert (after <= before).all() and after.sum() < 0.9 * before.sum()
    assert nearest - achieved > 0.5 * (nearest - best), "most of what can be gained is"


def test_a_layer_with_too_many_inputs_keeps_the_nearest_codes_and_says_so(monkeypatch):
    monkeypatch.setattr(repairs, "MOST_INPUTS", 20)
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)).eval(), images(64)
    with pytest.warns(UserWarning, match="0: 27 inputs are too many to learn its rounding"):
        learned = quantize(model, x, Recipe(4, rounding="learned"))
    nearest = quantize(model, x, Recipe(4))
    same = [torch.equal(learned.step(n).weight, nearest.step(n).weight) for n in ("0", "1")]
    assert same == [True, False]


def test_rounding_is_learned_in_inference_mode_too():
    model, recipe = nn.Sequential(nn.Conv2d(3, 4, 3)).eval(), Recipe(4, rounding="learned")
    with torch.inference_mode():
        found = quantize(model, images(64), recipe)
    expected = quantize(model, images(64), recipe)
    assert torch.equal(found.step("0").weight, expected.step("0").weight)
