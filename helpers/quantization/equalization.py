"""Cross-layer equalization: other scales for channels, and a network that computes the same.

A channel whose weights are 100 times smaller than the largest loses all its bits when one scale
serves the whole tensor. Equalization brings the ranges of channels closer together. A clamp at
zero lets a positive factor pass, relu(x / s) = relu(x) / s, so for each channel

    W1 -> W1 / s     b1 -> b1 / s     upper clamp h -> h / s (ReLU6 becomes a limit per channel)
    W2 -> W2 * s

leaves the network as it was. s = sqrt(range of W1 / range of W2) gives both layers the same range
in that channel. Edges that are added to each other, or joined by a pooling, must be changed alike:
together they are a *space*, with all layers that write to it and all that read from it.

After M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
arXiv:1906.04721; the limit per channel is exact, the paper replaces ReLU6. Weights that read a
channel which is always 0 become 0.
"""

import math

import torch
from torch import Tensor

from helpers.quantization.plan import INPUT, KEEPS_CHANNELS, Plan, PlanOp
from helpers.quantization.weights import per_row

SWEEPS = 40
CONVERGED = 1e-3  # a sweep whose factors all lie so near to 1 is the last


def equalize(plan: Plan) -> None:
    """Give the layers of a plan new weights; the network computes the same function as before."""
    spaces = dict.fromkeys(plan.tied(lambda op: _inputs_of_same_factor(plan, op) or ()).values())
    free = [space for space in spaces if _may_scale(plan, space)]
    for _ in range(SWEEPS):
        if max((_equalize_space(plan, space) for space in free), default=0.0) < CONVERGED:
            break


def _inputs_of_same_factor(plan, op):
    """The inputs that must carry the factors of the output; None where no factor passes."""
    if op.kind == "conv" or (op.kind == "linear" and len(op.shape) == 1):
        return op.inputs[1:]
    only_drops_ones = op.kind == "reshape" and op.shape == plan.shapes[op.inputs[0]][:1]
    return op.inputs if op.kind in KEEPS_CHANNELS or only_drops_ones else None


def _may_scale(plan, space):
    """Whether a factor per channel can pass from the layers that write to a space to those that
    read it, through all operations in between.
    """
    inside = [op for op in plan.ops if op.name in space]
    if INPUT in space or plan.output in space:
        return False
    if any(op.clamp is not None and op.clamp[0] not in (-math.inf, 0.0) for op in inside):
        return False
    if any(_inputs_of_same_factor(plan, op) is None for op in inside + plan.readers(*space)):
        return False
    return all(_writers_and_readers(plan, space))


def _writers_and_readers(plan, space):
    """The layers that write to a space, and those that read from it."""
    writers = [op for op in plan.layers if op.name in space]
    readers = [op for op in plan.layers if op.inputs[0] in space]
    return writers, readers


def _equalize_space(plan, space):
    """One step for one space; returns how far the strongest factor is from 1."""
    writers, readers = _writers_and_readers(plan, space)
    written = _largest(op.weight.abs().flatten(1).amax(1) for op in writers)
    read = _largest(input_view(op).abs().amax((1, 3)).flatten() for op in readers)
    alive = (written > 0) & (read > 0)  # the factor of a dead channel does not matter
    ratio = (written / read.clamp(min=1e-30)).sqrt()
    factor = torch.where(alive, ratio, 1.0).clamp(1e-4, 1e4)
    # What reads a channel that is always 0 needs no weights for it.
    read_factor = factor.masked_fill(_always_zero(writers), 0)
    for op in writers:
        op.weight = op.weight / per_row(factor, op.weight)
        op.bias = op.bias / factor
    for op in plan.ops:
        if op.name in space and op.clamp is not None:
            low, high = op.clamp
            op.clamp = (low, high / factor)
    for op in readers:
        view = input_view(op)
        op.weight = (view * read_factor.reshape(len(view), 1, -1, 1)).view_as(op.weight)
    return float((factor - 1).abs().max())


def _largest(ranges):
    """Of several layers, the largest range of each channel."""
    return torch.stack([*ranges]).amax(0)


def _always_zero(writers):
    """The channels to which every layer writes only 0."""
    zero = []
    for op in writers:
        only_bias = (op.weight.flatten(1) == 0).all(1)
        has_relu = op.clamp is not None and op.clamp[0] == 0
        zero.append(only_bias & (op.bias <= 0) & has_relu)
    return torch.stack(zero).all(0)


def input_view(op: PlanOp) -> Tensor:
    """The weights seen from their input channels: (groups, outputs per group, inputs per group,
    kernel).
    """
    groups = op.attributes.get("groups", 1)
    return op.weight[:, :, None].flatten(2).unflatten(0, (groups, -1))
