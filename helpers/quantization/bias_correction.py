"""Bias correction: rounding shifts the mean of a layer's output, and the bias can take that shift back.

Rounded weights V and a quantized input y give, on average, E[V y] instead of E[W x]. The difference is a constant per
output channel:

    b' = b + W E[x] - V E[y]

*empirical*: the means are measured on images, in the quantized network as it stands after the layers before.
*analytic*: E[x] follows from BatchNorm (see `normals.py`) and is taken for E[y]; no image is needed. Only the errors
of the weights are corrected then, and the zeros of a padding are not accounted for.

After M. Nagel et al., arXiv:1906.04721, sections 4.2.1 and appendix D.
"""

import dataclasses

from helpers.quantization.affine import QuantizationError
from helpers.quantization.equalization import input_view
from helpers.quantization.moments import means, rows
from helpers.quantization.normals import expected
from helpers.quantization.plan import Op, Plan
from helpers.quantization.walk import Batches
from helpers.quantization.weights import LayerWeights

__all__ = ["correct_bias", "correct_biases_analytically"]


def correct_bias(op: Op, layer: LayerWeights, exact: Batches, rounded: Batches) -> LayerWeights:
    """Empirical correction of one layer.

    Args:
        op: the layer in float.
        layer: its integer weights.
        exact, rounded: its input in the float and in the quantized network, in batches.
    """
    wanted = rows(op, op.weight) @ means(op, exact)
    found = rows(op, layer.decode()) @ means(op, rounded)
    return dataclasses.replace(layer, bias=op.bias + (wanted - found).flatten())


def correct_biases_analytically(plan: Plan, weights: dict[str, LayerWeights]) -> dict[str, LayerWeights]:
    """Analytic correction of every layer whose mean input can be told from BatchNorm.

    Raises:
        QuantizationError: no layer of the plan carries BatchNorm statistics.
    """
    if all(op.normal is None for op in plan.layers):
        raise QuantizationError(
            "analytic bias correction needs a network whose BatchNorm is not folded yet; "
            'quantize the unfolded network, or use bias_correction="empirical"'
        )
    return {op.name: _correct_analytically(plan, op, weights[op.name]) for op in plan.layers}


def _correct_analytically(plan: Plan, op: Op, layer: LayerWeights) -> LayerWeights:
    mean = expected(plan, op.inputs[0])
    if mean is None:
        return layer
    error = input_view(op) - input_view(dataclasses.replace(op, weight=layer.decode()))
    shift = error.sum(3) @ mean.reshape(error.shape[0], error.shape[2], 1)
    return dataclasses.replace(layer, bias=op.bias + shift.flatten())
