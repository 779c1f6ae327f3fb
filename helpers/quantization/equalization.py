"""Cross-layer equalisation: move scale from one layer to the next until their channels have like ranges.

With one scale for a whole weight tensor, a channel whose weights are 100 times smaller than the largest loses all its
bits. A clamp at zero lets a positive factor pass, relu(x / s) = relu(x) / s, so for each channel

    W1 -> W1 / s     b1 -> b1 / s     upper clamp h -> h / s (ReLU6 becomes a limit per channel)     W2 -> W2 * s

leaves the network as it was. s = sqrt(range of W1 / range of W2) gives both layers the same range in that channel.

Edges that are added to each other, or joined by a pooling, must carry the same factors: together they are a *space*,
with all layers that write to it and all that read from it. A space that holds the network's input or output stays
as it is, and so does one with a lower clamp that is not zero.

After M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", arXiv:1906.04721;
the limit per channel is exact, where the paper replaces ReLU6 by ReLU.
"""

from dataclasses import dataclass

import torch

from helpers.quantization.plan import INPUT, Op, Plan

__all__ = ["Space", "equalize", "spaces"]

SWEEPS = 40
CONVERGED = 1e-3  # a sweep whose factors all lie so near to 1 is the last
WRITERS = ("conv", "linear")
CARRIERS = ("add", "average_pool", "max_pool", "clamp")


@dataclass
class Space:
    """Edges that share one factor per channel, the layers around them, and why they must stay as they are."""

    edges: set[str]
    writers: list[Op]
    readers: list[Op]
    reason: str | None = None


def equalize(plan: Plan) -> list[Space]:
    """Equalise every space of a plan, in place; the network computes the same function as before.

    Args:
        plan: a copy that belongs to the caller.

    Returns:
        All spaces; those with a `reason` were left alone.
    """
    found = spaces(plan)
    for _ in range(SWEEPS):
        strongest = max((_equalize_space(plan, space) for space in found if space.reason is None), default=0.0)
        if strongest < CONVERGED:
            break
    return found


def spaces(plan: Plan) -> list[Space]:
    """Group the edges of a plan into spaces, in the order in which the plan reaches them."""
    parent = {edge: edge for edge in [INPUT, *(op.name for op in plan.ops)]}

    def root(edge: str) -> str:
        while parent[edge] != edge:
            edge = parent[edge]
        return edge

    for op in plan.ops:
        for edge in _tied(plan, op):
            parent[root(edge)] = root(op.name)
    groups: dict[str, Space] = {}
    for edge in parent:
        groups.setdefault(root(edge), Space(set(), [], [])).edges.add(edge)
    for space in groups.values():
        space.writers = [op for op in plan.layers if op.name in space.edges]
        space.readers = [op for op in plan.layers if op.inputs[0] in space.edges]
        space.reason = _objection(plan, space)
    return list(groups.values())


def _tied(plan: Plan, op: Op) -> list[str]:
    """The inputs of an operation that must carry the same factors as its output."""
    if op.kind in CARRIERS or (op.kind == "reshape" and _keeps_channels(plan, op)):
        return list(op.inputs)
    return [op.residual] if op.residual else []


def _keeps_channels(plan: Plan, op: Op) -> bool:
    """Whether a reshape only drops dimensions of size 1 after the channels."""
    before = plan.input_shape if op.inputs[0] == INPUT else plan[op.inputs[0]].shape
    return before[0] == op.shape[0] and len(op.shape) == 1


def _objection(plan: Plan, space: Space) -> str | None:
    """Why a space must stay as it is, or None."""
    if INPUT in space.edges or plan.output in space.edges:
        return "it holds the network's input or output"
    for op in plan.ops:
        inside = op.name in space.edges
        if inside and op.clamp is not None and not (op.clamp[0] is None or _is_zero(op.clamp[0])):
            return f"the lower clamp of {op.name} is not zero"
        foreign = op.kind in ("float", "reshape") and not _tied(plan, op)
        if foreign and (inside or space.edges.intersection(op.inputs)):
            return f"{op.name} ({op.kind}) does not let a factor per channel pass"
    if not space.writers or not space.readers:
        return "no layer writes to it, or none reads from it"
    return None


def _is_zero(bound: float | torch.Tensor) -> bool:
    return bool((torch.as_tensor(bound) == 0).all())


def _equalize_space(plan: Plan, space: Space) -> float:
    """One step for one space; returns how far the strongest factor is from 1."""
    before = torch.stack([op.weight.abs().flatten(1).amax(1) for op in space.writers]).amax(0)
    after = torch.stack([input_view(op).abs().amax((1, 3)).flatten() for op in space.readers]).amax(0)
    alive = (before > 0) & (after > 0)  # the factor of a dead channel does not matter
    factor = torch.where(alive, (before / after.clamp(min=1e-30)).sqrt(), 1.0).clamp(1e-4, 1e4)
    for op in plan.ops:
        if op.name in space.edges:
            _divide_output(op, factor)
    for op in space.readers:
        view = input_view(op)
        op.weight = (view * factor.reshape(view.shape[0], 1, view.shape[2], 1)).view_as(op.weight)
    return float((factor - 1).abs().max())


def _divide_output(op: Op, factor: torch.Tensor) -> None:
    """Divide an operation's output: its weights, bias and limit."""
    if op.kind in WRITERS:
        op.weight = op.weight / factor.reshape(-1, *[1] * (op.weight.ndim - 1))
        op.bias = op.bias / factor
    if op.clamp is not None and op.clamp[1] is not None:
        op.clamp = (op.clamp[0], op.clamp[1] / factor)


def input_view(op: Op) -> torch.Tensor:
    """The weights seen from their input channels: (groups, outputs per group, inputs per group, kernel)."""
    groups = op.attributes.get("groups", 1)
    return op.weight.reshape(groups, op.weight.shape[0] // groups, op.weight.shape[1], -1)
