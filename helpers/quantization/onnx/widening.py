"""Widening rounds widths up with channels that only weights of 0 read: no code changes.

Odd widths cost ONNX Runtime more time than the next multiple of 16, and an image with three
channels more than one with four. Edges that are added to each other, or joined by a pooling, must
be widened alike.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from helpers.quantization.integer import Layer
from helpers.quantization.plan import INPUT, KEEPS_CHANNELS

IMAGE_BLOCK = 4  # channels of an image: four bytes are copied at a time


def widened(model: nn.Module, block: int) -> nn.Module:
    """A copy of a quantized network whose widths are multiples of `block` where possible."""
    model = copy.deepcopy(model)
    # An edge with a single number for each image is 1 wide.
    width = {edge: shape[0] if shape else 1 for edge, shape in model.plan.shapes.items()}
    wide = _new_widths(model.plan, width, block)
    if wide[INPUT] > width[INPUT]:
        model.input.op.shape = (wide[INPUT], *model.input_shape[1:])
    for step in model.steps.values():
        _widen(step, width, wide)
    return model


def _new_widths(plan, width, block):
    same = {op.name: _inputs_of_same_width(op, width) for op in plan.ops}
    together = plan.tied(lambda op: same[op.name] or ())
    rigid = [edge for op in plan.ops if same[op.name] is None for edge in (op.name, *op.inputs)]
    # A flattened edge grows by whole channels, and what is added to it would not.
    rigid += [
        op.name
        for op in plan.ops
        if op.kind == "add"
        and len(op.shape) == 1
        and len({width[one] for one in together[op.name]}) > 1
    ]
    fixed = {other for edge in (INPUT, plan.output, *rigid) for other in together[edge]}
    wide = dict(width)
    if all(op.kind == "conv" and same[op.name] == () for op in plan.readers(INPUT)):
        wide[INPUT] += -width[INPUT] % min(block, IMAGE_BLOCK)
    for op in plan.ops:
        if op.name in fixed:
            continue
        if same[op.name]:
            source = same[op.name][0]
            wide[op.name] = width[op.name] * wide[source] // width[source]
        else:
            wide[op.name] += -width[op.name] % block
    return wide


def _inputs_of_same_width(op, width):
    """The inputs whose width is that of the output or a fixed share of it; None where no width may
    change.
    """
    if op.kind == "conv" and op.attributes["groups"] == 1:
        return op.inputs[1:]
    if op.kind == "linear" and len(op.shape) == 1:
        return ()
    if op.kind == "reshape" and len(op.shape) == 1:
        return op.inputs  # flat, a channel's pixels lie side by side
    if op.kind not in ("conv", *KEEPS_CHANNELS):
        return None
    own = width[op.name]
    as_wide = op.attributes.get("groups", own) == own
    as_wide = as_wide and all(width[edge] == own for edge in op.inputs)
    return op.inputs if as_wide else None


def _widen(step, width, wide):
    """Give a step more outputs, and a layer as many inputs as its source has now."""
    op = step.op
    before = width[op.name]
    more = wide[op.name] - before
    depthwise = op.attributes.get("groups", 1) > 1
    if isinstance(step, Layer):
        inputs = step.codes.shape[1]
        source = op.inputs[0]
        columns = 0 if depthwise else inputs * wide[source] // width[source] - inputs
        kernel = [0, 0] * (step.codes.ndim - 2)
        step.codes = F.pad(step.codes, (*kernel, 0, columns, 0, more))
        step.bias = F.pad(step.bias, (0, more))
    if not more:
        return
    op.shape = (wide[op.name], *op.shape[1:])
    if depthwise:
        op.attributes["groups"] = wide[op.name]
    # The new channels repeat the last one.
    last_again = torch.arange(wide[op.name]).clamp(max=before - 1)
    for name in ("last", "weight_scale", "unit"):
        if hasattr(step, name):
            setattr(step, name, getattr(step, name)[last_again])
