"""High-bias absorption: a constant that nearly every activation contains moves on into the next layer's bias.

Equalisation can leave a channel with a large bias and so with a wide range of activations. If a ReLU's input lies above
c in nearly all cases, relu(x) = relu(x - c) + c there, so

    b1 -> b1 - c     upper clamp h -> h - c     b2 -> b2 + W2 c        with c = max(0, beta - 3 gamma)

changes almost nothing (0.1 % of a normal distribution lie more than 3 deviations under its mean) and narrows the range
by c. beta and gamma come from the layer's BatchNorm.

The next layer must not pad: next to a border of zeros it would need another bias than inside.
"""

from dataclasses import dataclass

import torch

from helpers.quantization.equalization import input_view
from helpers.quantization.plan import Op, Plan

__all__ = ["Absorbed", "absorb_high_biases"]

DEVIATIONS = 3


@dataclass(frozen=True)
class Absorbed:
    """What happened to the layer `name`: the constants that moved, or the reason why none did."""

    name: str
    constants: torch.Tensor | None
    reason: str | None = None


def absorb_high_biases(plan: Plan) -> list[Absorbed]:
    """Move high biases of every layer that is followed by a ReLU, in place.

    Args:
        plan: a copy that belongs to the caller, with `normal` recorded.

    Returns:
        One row for each layer with a lower clamp.
    """
    return [_absorb(plan, op) for op in plan.layers if op.clamp is not None and op.clamp[0] is not None]


def _absorb(plan: Plan, op: Op) -> Absorbed:
    reason = _objection(plan, op)
    if reason is not None:
        return Absorbed(op.name, None, reason)
    mean, deviation = op.normal
    low, high = op.clamp
    constants = (mean - DEVIATIONS * deviation).clamp(min=0)
    if high is not None:
        constants = torch.minimum(constants, torch.as_tensor(high))  # a channel pinned to its limit
    (reader,) = plan.users(op.name)
    op.bias = op.bias - constants
    op.normal = (mean - constants, deviation)
    op.clamp = (low, None if high is None else high - constants)
    view = input_view(reader)
    moved = view * constants.reshape(view.shape[0], 1, view.shape[2], 1)
    reader.bias = reader.bias + moved.sum((2, 3)).flatten()
    return Absorbed(op.name, constants)


def _objection(plan: Plan, op: Op) -> str | None:
    """Why a layer's biases stay, or None."""
    if op.normal is None:
        return "no BatchNorm statistics are recorded"
    if op.residual or op.clamp[0] != 0:
        return "its clamp is not a plain ReLU"
    users = plan.users(op.name)
    if op.name == plan.output or len(users) != 1 or users[0].weight is None or users[0].residual == op.name:
        return "its output is not read by one layer alone"
    if any(users[0].attributes.get("padding", (0, 0))):
        return f"{users[0].name} pads with zeros"
    return None
