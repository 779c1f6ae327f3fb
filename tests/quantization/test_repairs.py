"""Learned rounding and bias correction: alone on one layer, and on a whole plan."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from helpers.quantization import repairs
from helpers.quantization.equalization import equalize
from helpers.quantization.observers import calibrate
from helpers.quantization.plan import INPUT, Op, Recipe
from helpers.quantization.repairs import (
    columns,
    covariance,
    learn_rounding,
    output_error,
    quantized_op,
    repair_weights,
    rows,
)
from helpers.quantization.weights import PAIR_LIMIT, LayerWeights, encode_layer, encode_weights
from tests.quantization.plans import inverted_residuals


def images(count=96, seed=3):
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def errors(recipe, spread=1.0, seed=0):
    """How far a plan with repaired weights is from the plan in float: the mean square, and the mean of each layer."""
    plan = inverted_residuals(seed, spread)
    if recipe.equalize:
        equalize(plan)
    edges, weights, x = calibrate(plan, images(), recipe), encode_weights(plan, recipe), images(200, 4)
    kept = {name: (layer.codes.clone(), layer.bias.clone()) for name, layer in weights.items()}
    repaired = repair_weights(plan, edges, weights, images(), recipe)
    for name, (codes, bias) in kept.items():
        assert torch.equal(weights[name].codes, codes) and torch.equal(weights[name].bias, bias)
    exact, values = {}, {INPUT: edges[INPUT].dequantize(edges[INPUT].quantize(x))}
    plan.run(x, exact.__setitem__)
    for op in plan.ops:
        y = quantized_op(op, repaired.get(op.name)).run(*(values[edge] for edge in op.inputs))
        values[op.name] = edges[op.name].dequantize(edges[op.name].quantize(y)) if op.name in edges else y
    gaps = {op.name: values[op.name] - exact[op.name] for op in plan.layers}
    drift = {name: (gap.mean().abs() / exact[name].std()).item() for name, gap in gaps.items()}
    return gaps[plan.output].square().mean().item(), drift


def test_each_repair_lowers_the_error_where_it_should():
    plain, before = errors(Recipe(weight_bits=4))
    corrected, after = errors(Recipe(weight_bits=4, bias_correction="empirical"))
    learned, _ = errors(Recipe(weight_bits=4, rounding="learned", bias_correction="empirical"))
    assert corrected < 0.9 * plain and learned < 0.85 * corrected
    assert max(after.values()) < 0.01 < 0.5 * max(before.values())  # the means are back


def test_equalisation_rescues_one_scale_per_layer():
    recipes = (Recipe(per_channel=False), Recipe(per_channel=False, equalize=True))
    broken, repaired = (sum(errors(recipe, 2.0, seed)[0] for seed in range(3)) for recipe in recipes)
    assert repaired < 0.4 * broken


def linear(outputs=4, inputs=6, seed=0):
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))
    return Op("fc", "linear", (INPUT,), weight, torch.zeros(outputs), shape=(outputs,))


def correlated(inputs=6, count=400, seed=1):
    """Inputs that move together, as activations do: there rounding one weight can make up for another."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(count, 1, generator=generator)
    return [common + 0.2 * torch.randn(count, inputs, generator=generator)]


def row_errors(op, layer, seen):
    return output_error(rows(op, op.weight), rows(op, layer.decode()), seen)


@pytest.mark.parametrize("sizes", [
    {}, {"groups": 2}, {"groups": 6, "stride": (2, 2)}, {"kernel": 1, "padding": (1, 1), "stride": (2, 1), "groups": 3},
    {"dilation": (2, 1), "padding": (2, 0)},
])  # fmt: skip
def test_output_error_is_the_variance_of_the_difference(sizes, monkeypatch):
    monkeypatch.setattr(repairs, "DAMPING", 0.0)
    kernel, groups = sizes.pop("kernel", 3), sizes.get("groups", 1)
    attributes = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1} | sizes
    x = torch.randn(4, 6, 9, 8, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(12, 6 // groups, kernel, kernel, generator=torch.Generator().manual_seed(1))
    y, rounded = torch.round(x * 2) / 2, torch.round(weight * 3) / 3
    difference = F.conv2d(x, weight, **attributes) - F.conv2d(y, rounded, **attributes)
    op = Op("c", "conv", (INPUT,), weight, torch.zeros(12), attributes=attributes, shape=tuple(difference.shape[1:]))
    seen = covariance(op, [x[:3], x[3:]], [y[:3], y[3:]])
    computed = output_error(rows(op, weight), rows(op, rounded), seen)
    assert torch.allclose(computed.flatten(), difference.transpose(0, 1).flatten(1).var(1, correction=0), rtol=1e-3)
    assert columns(op, x).shape[1] == weight[0].numel()


def test_it_gains_most_of_what_the_best_combination_gains():
    nearest = achieved = best = 0.0
    for seed in range(4):
        op, x = linear(outputs=3, inputs=6, seed=seed), correlated(seed=seed)
        layer, seen = encode_layer(op, Recipe(weight_bits=3)), covariance(op, x, x)
        scale = layer.scale[:, None]
        ups = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)))
        every = ((torch.floor(op.weight / scale)[:, None] + ups).clamp(-3, 3) * scale[:, None]).transpose(0, 1)
        found = torch.stack([output_error(rows(op, op.weight), one[None], seen).flatten() for one in every])
        best += found.min(0).values.sum().item()
        nearest += row_errors(op, layer, seen).sum().item()
        achieved += row_errors(op, learn_rounding(op, layer, seen), seen).sum().item()
    assert best <= achieved
    assert nearest - achieved > 0.5 * (nearest - best), "most of what can be gained is"


def test_each_row_is_at_most_as_wrong_as_before(monkeypatch):
    monkeypatch.setattr(repairs, "STEPS", 0)  # nothing learned: switches stay where they began
    op, x = linear(), correlated()
    layer, seen = encode_layer(op, Recipe(weight_bits=2)), covariance(op, x, x)
    assert (row_errors(op, learn_rounding(op, layer, seen), seen) <= row_errors(op, layer, seen)).all()


def test_eight_bit_pairs_still_fit_into_sixteen_bits():
    codes = torch.tensor([[64.0, 64.0, -64.0, -64.0, 127.0, 1.0]])
    op = Op("fc", "linear", (INPUT,), codes + 0.45, torch.zeros(1), shape=(1,))
    layer = LayerWeights(codes.to(torch.int8), torch.ones(1), torch.zeros(1), bits=8)
    # the output must grow: going up everywhere would be best, but pairs (65, 65) and (128, 2) are too large
    seen = torch.ones(1, 6, 6).repeat(1, 2, 2)
    seen[:, :6, 6:] = seen[:, 6:, :6] = 1.1
    learned = learn_rounding(op, layer, 1.2 * seen).codes.long()
    pairs = learned.reshape(-1, 2)
    assert pairs.clamp(min=0).sum(1).max() <= PAIR_LIMIT
    assert pairs.clamp(max=0).sum(1).min() >= -PAIR_LIMIT
    assert not torch.equal(learned, codes.long()), "the negative pair was free to move"
