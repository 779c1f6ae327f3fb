"""Run a plan in float and quantized side by side, and improve one layer after the other on the way.

A layer is repaired on what it will really be given: the output of the quantized layers before it. So all images pass
one operation before the next operation begins; the network is run only once, however many layers it has.
"""

import dataclasses
from collections.abc import Callable

import torch

from helpers.quantization.affine import Affine
from helpers.quantization.calibration import batches as in_batches
from helpers.quantization.plan import INPUT, Op, Plan, last_uses
from helpers.quantization.weights import LayerWeights

__all__ = ["Batches", "Improve", "quantized_op", "walk"]

Batches = list[torch.Tensor]
Improve = Callable[[Op, LayerWeights, Batches, Batches], LayerWeights]


@torch.no_grad()
def walk(
    plan: Plan,
    edges: dict[str, Affine],
    weights: dict[str, LayerWeights],
    images: torch.Tensor,
    improve: Improve,
) -> dict[str, LayerWeights]:
    """Improve the weights of every layer in turn.

    Args:
        plan: the float operations.
        edges: how each edge is quantized.
        weights: the integer weights so far; not changed.
        images: uint8 images, or normalised input of the plan.
        improve: gets the layer, its integer weights, and its input in batches, exact and as the quantized network
            computes it; returns the weights to go on with.

    Returns:
        The improved weights of every layer.
    """
    batches = list(in_batches(images))
    exact = {INPUT: batches}
    rounded = {INPUT: _through(edges, INPUT, batches)}
    improved: dict[str, LayerWeights] = {}
    for op, done in zip(plan.ops, last_uses(plan.ops), strict=True):
        if op.name in weights:
            improved[op.name] = improve(op, weights[op.name], exact[op.inputs[0]], rounded[op.inputs[0]])
        rough = quantized_op(op, improved.get(op.name))
        exact[op.name] = _run(op, exact)
        rounded[op.name] = _through(edges, op.name, _run(rough, rounded))
        for edge in done:
            del exact[edge], rounded[edge]
    return improved


def quantized_op(op: Op, layer: LayerWeights | None) -> Op:
    """The same operation with the weights that its integers stand for."""
    return op if layer is None else dataclasses.replace(op, weight=layer.decode(), bias=layer.bias)


def _run(op: Op, values: dict[str, Batches]) -> Batches:
    return [op.run(*inputs) for inputs in zip(*(values[edge] for edge in op.inputs), strict=True)]


def _through(edges: dict[str, Affine], edge: str, batches: Batches) -> Batches:
    """What is left of an edge's values after quantization; the last edge stays in float."""
    if edge not in edges:
        return batches
    return [edges[edge].dequantize(edges[edge].quantize(batch)) for batch in batches]
