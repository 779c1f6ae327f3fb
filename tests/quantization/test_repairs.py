import copy

import torch

from helpers.quantization.equalization import equalize
from helpers.quantization.observers import calibrate
from helpers.quantization.plan import Recipe
from helpers.quantization.repairs import quantized_op, repair_weights, walk
from helpers.quantization.weights import encode_weights
from tests.quantization.plans import inverted_residuals


def images(count=96):
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def prepared(recipe, spread=1.0, seed=0):
    plan = inverted_residuals(seed, spread)
    if recipe.equalize:
        equalize(plan)
    return plan, calibrate(plan, images(), recipe), encode_weights(plan, recipe)


def quantized_output(plan, edges, weights, x):
    """What the quantized network computes, in float."""
    values = {"input": edges["input"].dequantize(edges["input"].quantize(x))}
    for op in plan.ops:
        y = quantized_op(op, weights.get(op.name)).run(*(values[edge] for edge in op.inputs))
        values[op.name] = edges[op.name].dequantize(edges[op.name].quantize(y)) if op.name in edges else y
    return values[plan.output]


def output_error(recipe, spread=1.0, seed=0):
    plan, edges, weights = prepared(recipe, spread, seed)
    weights = repair_weights(plan, edges, weights, images(), recipe)
    x = torch.randn(200, 3, 8, 8, generator=torch.Generator().manual_seed(4))
    return (quantized_output(plan, edges, weights, x) - plan.run(x)).square().mean().item()


def test_walk_shows_each_layer_what_it_will_be_given():
    recipe = Recipe(weight_bits=4)
    plan, edges, weights = prepared(recipe)
    seen = {}

    def improve(op, layer, exact, rounded):
        seen[op.name] = torch.cat(exact), torch.cat(rounded)
        return layer

    walk(plan, edges, weights, images(), improve)
    values = {}
    plan.run(images(), lambda edge, value: values.update({edge: value}))
    assert seen.keys() == weights.keys()
    for op in plan.layers:
        exact, rounded = seen[op.name]
        assert torch.allclose(exact, values[op.inputs[0]], atol=1e-5), op.name
        codes = edges[op.inputs[0]].quantize(rounded)
        assert torch.allclose(edges[op.inputs[0]].dequantize(codes), rounded, atol=1e-6), "input is on the grid"


def test_empirical_correction_restores_the_mean_of_every_layer():
    recipe = Recipe(weight_bits=3, bias_correction="empirical")
    plan, edges, weights = prepared(recipe)
    corrected = repair_weights(plan, edges, weights, images(), recipe)
    drift = {}

    def measure(which):
        def improve(op, layer, exact, rounded):
            free = [
                one.__class__(**{**vars(one), "clamp": None, "inputs": one.inputs[:1]})
                for one in (op, quantized_op(op, layer))
            ]
            wanted, found = (o.run(torch.cat(x)) for o, x in zip(free, (exact, rounded), strict=True))
            dims = [d for d in range(wanted.ndim) if d != 1]
            drift[which, op.name] = (wanted - found).mean(dims).abs().max().item() / wanted.std().item()
            return layer

        return improve

    walk(plan, edges, weights, images(), measure("before"))
    walk(plan, edges, corrected, images(), measure("after"))
    for op in plan.layers:
        assert drift["after", op.name] < 1e-4
    assert max(drift["before", op.name] for op in plan.layers) > 0.05


def test_each_repair_lowers_the_error_where_it_should():
    plain = Recipe(weight_bits=4)
    learned = Recipe(weight_bits=4, rounding="learned", bias_correction="empirical")
    corrected = Recipe(weight_bits=4, bias_correction="empirical")
    assert output_error(corrected) < 0.9 * output_error(plain)
    assert output_error(learned) < 0.85 * output_error(corrected)


def test_equalisation_rescues_one_scale_per_layer():
    recipes = (Recipe(per_channel=False), Recipe(per_channel=False, equalize=True))
    broken, repaired = (sum(output_error(recipe, 2.0, seed) for seed in range(3)) for recipe in recipes)
    assert repaired < 0.4 * broken


def test_weights_before_the_repair_are_not_changed():
    recipe = Recipe(rounding="learned", bias_correction="empirical")
    plan, edges, weights = prepared(recipe)
    kept = copy.deepcopy(weights)
    repair_weights(plan, edges, weights, images(), recipe)
    for name, layer in weights.items():
        assert torch.equal(layer.codes, kept[name].codes)
        assert torch.equal(layer.bias, kept[name].bias)
