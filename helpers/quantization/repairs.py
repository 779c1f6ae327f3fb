"""The repairs in their order: what a recipe asks for, on the plan and on the rounded weights.

equalize         `equalization.py`      moves scale between layers; the network stays the same
absorb_bias      `absorption.py`        moves constants between layers
rounding         `rounding.py`          chooses codes by the error of the layer's output
bias_correction  `bias_correction.py`   takes back the shift of the layer's mean output
"""

import torch

from helpers.quantization.absorption import absorb_high_biases
from helpers.quantization.affine import Affine
from helpers.quantization.bias_correction import correct_bias, correct_biases_analytically
from helpers.quantization.equalization import equalize
from helpers.quantization.moments import moments
from helpers.quantization.plan import Op, Plan
from helpers.quantization.recipe import Recipe
from helpers.quantization.rounding import learn_rounding
from helpers.quantization.walk import Batches, walk
from helpers.quantization.weights import LayerWeights

__all__ = ["repair_plan", "repair_weights"]

REPAIR_IMAGES = 512  # the means and covariances of a layer's input are known well enough from these


def repair_plan(plan: Plan, recipe: Recipe) -> Plan:
    """Repairs of the float network, on a copy. Absorption needs what `normals.record_normals` notes on the plan."""
    plan = plan.copy()
    if recipe.equalize:
        equalize(plan)
    if recipe.absorb_bias:
        absorb_high_biases(plan)
    return plan


def repair_weights(
    plan: Plan, edges: dict[str, Affine], weights: dict[str, LayerWeights], images: torch.Tensor, recipe: Recipe
) -> dict[str, LayerWeights]:
    """Repairs of the rounded weights.

    Args:
        plan: the repaired float network.
        edges: how its edges are quantized.
        weights: its weights, rounded to the nearest code; not changed.
        images: calibration images, uint8 or normalised.
        recipe: `rounding` and `bias_correction` matter here.
    """

    def improve(op: Op, layer: LayerWeights, exact: Batches, rounded: Batches) -> LayerWeights:
        if recipe.rounding == "learned":
            layer = learn_rounding(op, layer, moments(op, exact, rounded))
        if recipe.bias_correction == "empirical":
            layer = correct_bias(op, layer, exact, rounded)
        return layer

    if recipe.rounding == "learned" or recipe.bias_correction == "empirical":
        weights = walk(plan, edges, weights, images[:REPAIR_IMAGES], improve)
    if recipe.bias_correction == "analytic":
        weights = correct_biases_analytically(plan, weights)
    return weights
