"""Cross-layer equalization: the same network, with weights of the same range in every channel.

A channel whose weights are 100 times smaller than the largest loses all its bits when one scale serves the whole
tensor. A clamp at zero lets a positive factor pass, relu(x / s) = relu(x) / s, so for each channel

    W1 -> W1 / s     b1 -> b1 / s     upper clamp h -> h / s (ReLU6 becomes a limit per channel)     W2 -> W2 * s

leaves the network as it was. s = sqrt(range of W1 / range of W2) gives both layers the same range in that channel.
Edges that are added to each other, or joined by a pooling, must carry the same factors: together they are a *space*,
with all layers that write to it and all that read from it.

After M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", arXiv:1906.04721; the
limit per channel is exact, the paper replaces ReLU6.
"""

import math

import torch

from helpers.quantization.plan import INPUT, Op, Plan
from helpers.quantization.weights import per_row

SWEEPS = 40
CONVERGED = 1e-3  # a sweep whose factors all lie so near to 1 is the last
CARRIERS = ("add", "average_pool", "max_pool", "clamp")  # a factor per channel passes them


def equalize(plan: Plan) -> None:
    """Give the layers of a plan new weights; the network computes the same function as before."""
    spaces = {tuple(space): space for space in plan.tied(lambda op: _tied(plan, op)).values()}.values()
    free = [space for space in spaces if _may_scale(plan, space)]
    for _ in range(SWEEPS):
        if max((_equalize_space(plan, space) for space in free), default=0.0) < CONVERGED:
            break


def _tied(plan: Plan, op: Op) -> tuple[str, ...]:
    """The inputs of an operation that must carry the same factors as its output."""
    before = plan.input_shape if op.inputs[0] == INPUT else plan[op.inputs[0]].shape
    flattens_nothing = op.kind == "reshape" and op.shape == before[:1]  # it only drops dimensions of size 1
    return op.inputs if op.kind in CARRIERS or flattens_nothing else op.inputs[1:] if op.kind == "conv" else ()


def _may_scale(plan: Plan, space: list[str]) -> bool:
    """Whether every operation around a space lets a factor per channel pass, and there are layers to take it up."""
    for op in plan.ops:
        inside, reads = op.name in space, not set(space).isdisjoint(op.inputs)
        last_axis = op.kind == "linear" and len(op.shape) > 1  # its channels are no first dimension
        foreign = op.kind in ("float", "reshape", "concat") and not _tied(plan, op)
        cut = inside and op.clamp is not None and op.clamp[0] not in (-math.inf, 0.0)
        if cut or ((inside or reads) and (last_axis or foreign)):
            return False
    return INPUT not in space and plan.output not in space and all(_layers(plan, space))


def _layers(plan: Plan, space: list[str]) -> tuple[list[Op], list[Op]]:
    """Those that write to a space, and those that read from it."""
    return [op for op in plan.layers if op.name in space], [op for op in plan.layers if op.inputs[0] in space]


def _equalize_space(plan: Plan, space: list[str]) -> float:
    """One step for one space; returns how far the strongest factor is from 1."""
    writers, readers = _layers(plan, space)
    before = torch.stack([op.weight.abs().flatten(1).amax(1) for op in writers]).amax(0)
    after = torch.stack([input_view(op).abs().amax((1, 3)).flatten() for op in readers]).amax(0)
    alive = (before > 0) & (after > 0)  # the factor of a dead channel does not matter
    factor = torch.where(alive, (before / after.clamp(min=1e-30)).sqrt(), 1.0).clamp(1e-4, 1e4)
    for op in writers:
        op.weight, op.bias = op.weight / per_row(factor, op.weight), op.bias / factor
    for op in [op for op in plan.ops if op.name in space and op.clamp is not None]:
        op.clamp = (op.clamp[0], op.clamp[1] / factor)
    for op in readers:
        view = input_view(op)
        op.weight = (view * factor.reshape(len(view), 1, -1, 1)).view_as(op.weight)
    return float((factor - 1).abs().max())


def input_view(op: Op) -> torch.Tensor:
    """The weights seen from their input channels: (groups, outputs per group, inputs per group, kernel)."""
    return op.weight[:, :, None].flatten(2).unflatten(0, (op.attributes.get("groups", 1), -1))
