"""Two changes to channels after which a network computes what it computed before: other scales, and
more channels.

Edges that are added to each other, or joined by a pooling, must be changed alike: together they are
a *space*, with all layers that write to it and all that read from it.

**Cross-layer equalization** brings the ranges of a layer's channels closer together. A channel
whose weights are 100 times smaller than the largest loses all its bits when one scale serves the
whole tensor. A clamp at zero lets a positive factor pass, relu(x / s) = relu(x) / s, so for each
channel

    W1 -> W1 / s     b1 -> b1 / s     upper clamp h -> h / s (ReLU6 becomes a limit per channel)
    W2 -> W2 * s

leaves the network as it was. s = sqrt(range of W1 / range of W2) gives both layers the same range
in that channel. After M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
Correction", arXiv:1906.04721; the limit per channel is exact, the paper replaces ReLU6. Weights
that read a channel which is always 0 become 0.

**Widening** rounds widths up with channels that only weights of 0 read. Odd widths cost ONNX
Runtime more time than the next multiple of 16, and an image with three channels more than one with
four.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from helpers.quantization.integer import Layer
from helpers.quantization.plan import INPUT, Op, Plan
from helpers.quantization.weights import per_row

SWEEPS = 40
CONVERGED = 1e-3  # a sweep whose factors all lie so near to 1 is the last
CARRIERS = ("add", "average_pool", "max_pool", "clamp")  # what is done to a channel passes them


def equalize(plan: Plan) -> None:
    """Give the layers of a plan new weights; the network computes the same function as before."""
    spaces = dict.fromkeys(plan.tied(lambda op: _same_factor(plan, op) or ()).values())
    free = [space for space in spaces if _may_scale(plan, space)]
    for _ in range(SWEEPS):
        if max((_equalize_space(plan, space) for space in free), default=0.0) < CONVERGED:
            break


def _same_factor(plan: Plan, op: Op) -> tuple[str, ...] | None:
    """The inputs of an operation that must carry the factors of its output; None where no factor
    per channel passes.
    """
    if op.kind == "conv" or (op.kind == "linear" and len(op.shape) == 1):
        return op.inputs[1:]
    flattens_nothing = (
        op.kind == "reshape" and op.shape == plan.shapes[op.inputs[0]][:1]
    )  # drops dimensions of size 1
    return op.inputs if op.kind in CARRIERS or flattens_nothing else None


def _may_scale(plan: Plan, space: tuple[str, ...]) -> bool:
    """Whether every operation around a space lets a factor per channel pass, and there are layers
    to take it up.
    """
    inside = [op for op in plan.ops if op.name in space]
    cut = any(op.clamp is not None and op.clamp[0] not in (-math.inf, 0.0) for op in inside)
    foreign = any(_same_factor(plan, op) is None for op in inside + plan.readers(*space))
    ends = INPUT in space or plan.output in space
    return not (cut or foreign or ends) and all(_layers(plan, space))


def _layers(plan: Plan, space: tuple[str, ...]) -> tuple[list[Op], list[Op]]:
    """Those that write to a space, and those that read from it."""
    return [op for op in plan.layers if op.name in space], [
        op for op in plan.layers if op.inputs[0] in space
    ]


def _equalize_space(plan: Plan, space: tuple[str, ...]) -> float:
    """One step for one space; returns how far the strongest factor is from 1."""
    writers, readers = _layers(plan, space)
    before = torch.stack([op.weight.abs().flatten(1).amax(1) for op in writers]).amax(0)
    after = torch.stack([input_view(op).abs().amax((1, 3)).flatten() for op in readers]).amax(0)
    alive = (before > 0) & (after > 0)  # the factor of a dead channel does not matter
    lit = [(op.bias > 0) | (op.clamp is None or op.clamp[0] != 0) for op in writers]
    unread = (before == 0) & ~torch.stack(lit).any(0)
    factor = torch.where(alive, (before / after.clamp(min=1e-30)).sqrt(), 1.0).clamp(1e-4, 1e4)
    for op in writers:
        op.weight, op.bias = op.weight / per_row(factor, op.weight), op.bias / factor
    for op in [op for op in plan.ops if op.name in space and op.clamp is not None]:
        op.clamp = (op.clamp[0], op.clamp[1] / factor)
    for op in readers:
        view = input_view(op)
        op.weight = (view * factor.masked_fill(unread, 0).reshape(len(view), 1, -1, 1)).view_as(
            op.weight
        )
    return float((factor - 1).abs().max())


def input_view(op: Op) -> torch.Tensor:
    """The weights seen from their input channels: (groups, outputs per group, inputs per group,
    kernel).
    """
    return op.weight[:, :, None].flatten(2).unflatten(0, (op.attributes.get("groups", 1), -1))


def widened(model: nn.Module, block: int) -> nn.Module:
    """A copy of a quantized network whose widths are multiples of `block` where that is possible;
    no code changes.
    """
    model = copy.deepcopy(model)
    plan = model.plan
    width = {edge: (*shape, 1)[0] for edge, shape in plan.shapes.items()}
    same = {op.name: _same_width(op, width) for op in plan.ops}
    together = plan.tied(lambda op: same[op.name] or ())
    rigid = [edge for op in plan.ops if same[op.name] is None for edge in (op.name, *op.inputs)]
    fixed = {other for edge in (INPUT, plan.output, *rigid) for other in together[edge]}
    wide = dict(width)
    if all(op.kind == "conv" and same[op.name] == () for op in plan.ops if INPUT in op.inputs):
        wide[INPUT] += -width[INPUT] % min(block, 4)  # for four bytes are copied at a time
        model.input.op.shape = (wide[INPUT], *model.input.op.shape[1:])
    for step in model.steps.values():
        op, own = step.op, width[step.op.name]
        depthwise = op.attributes.get("groups", 1) > 1
        if op.name not in fixed:
            like = same[op.name]
            wide[op.name] = (
                own * wide[like[0]] // width[like[0]] if like else -(-own // block) * block
            )
        more = wide[op.name] - own
        if isinstance(step, Layer):
            before, inputs = op.inputs[0], step.codes.shape[1]
            columns = 0 if depthwise else inputs * wide[before] // width[before] - inputs
            step.codes = F.pad(step.codes, (*[0, 0] * (step.codes.ndim - 2), 0, columns, 0, more))
            step.bias = F.pad(step.bias, (0, more))
        if more:
            op.shape = (own + more, *op.shape[1:])
            op.attributes |= {"groups": own + more} if depthwise else {}
            last_again = torch.arange(own + more).clamp(max=own - 1)
            for name in [name for name in ("last", "weight_scale", "unit") if hasattr(step, name)]:
                setattr(step, name, getattr(step, name)[last_again])
    return model


def _same_width(op: Op, width: dict[str, int]) -> tuple[str, ...] | None:
    """The inputs that are as wide as the output, or as a fixed part of it; None where no width may
    change.
    """
    if op.kind == "conv" and op.attributes["groups"] == 1:
        return op.inputs[1:]
    if (
        op.kind in ("linear", "reshape") and len(op.shape) == 1
    ):  # flat, a channel's pixels lie side by side
        return op.inputs if op.kind == "reshape" else ()
    counts = {
        width[op.name],
        *map(width.get, op.inputs),
        op.attributes.get("groups", width[op.name]),
    }
    return op.inputs if op.kind in ("conv", *CARRIERS) and len(counts) == 1 else None
