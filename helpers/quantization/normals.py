"""What BatchNorm knows about a layer's output, and what follows for the input of the next layer.

A BatchNorm layer's output has, in each channel, mean beta and deviation |gamma|: that is what it was trained to do.
Folding hides both in the convolution, so they are recorded on the plan first. With the output taken as normally
distributed, the mean behind an activation that clamps to [l, h] is, with a = (l - beta) / gamma and
b = (h - beta) / gamma, phi the density and Phi the distribution function of the standard normal distribution,

    E[clamp(x, l, h)] = beta (Phi(b) - Phi(a)) + gamma (phi(a) - phi(b)) + l Phi(a) + h (1 - Phi(b))
"""

import math
from collections.abc import Iterator

import torch
from torch import fx, nn

from helpers.quantization.plan import INPUT, Plan

__all__ = ["batch_norms", "clamped_mean", "expected", "record_normals"]

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
PASSES_MEAN_ON = ("average_pool", "reshape")


def record_normals(plan: Plan, model: nn.Module) -> None:
    """Note on each layer of a plan what the BatchNorm behind it knows, in place.

    Args:
        plan: read from the folded `model`; its layers carry the names of the model's modules.
        model: the network before folding. A layer without an affine BatchNorm of its own gets no note.
    """
    for name, batch_norm in batch_norms(plan, model):
        if batch_norm.affine:
            plan[name].normal = (batch_norm.bias.detach().clone(), batch_norm.weight.detach().abs())


def batch_norms(plan: Plan, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each layer of a plan that had a BatchNorm folded into it, by name, with that BatchNorm."""
    modules, layers, left = dict(model.named_modules()), {op.name for op in plan.layers}, {op.name for op in plan.ops}
    for node in fx.symbolic_trace(model).graph.nodes:
        if node.op == "call_module" and isinstance(modules[node.target], BATCH_NORMS) and node.target not in left:
            source = node.args[0]
            if source.op == "call_module" and source.target in layers and len(source.users) == 1:
                yield source.target, modules[node.target]


def expected(plan: Plan, edge: str) -> torch.Tensor | None:
    """The mean per channel of what an edge carries, or None when it cannot be told.

    Normalised images have mean 0. A residual adds its own mean; behind a sum no clamp can be computed.
    """
    if edge == INPUT:
        return torch.zeros(plan.input_shape[0])
    op = plan[edge]
    if op.kind in PASSES_MEAN_ON:
        mean = expected(plan, op.inputs[0])
        return mean if mean is None or len(mean) == op.shape[0] else None
    if op.kind == "add" and op.clamp is None:
        parts = [expected(plan, source) for source in op.inputs]
    elif op.normal is None or (op.residual and op.clamp):
        return None
    elif op.residual:
        parts = [op.normal[0], expected(plan, op.residual)]
    else:
        low, high = op.clamp or (None, None)
        parts = [clamped_mean(*op.normal, low, high)]
    return None if any(part is None for part in parts) else sum(parts)


def clamped_mean(
    mean: torch.Tensor, deviation: torch.Tensor, low: torch.Tensor | float | None, high: torch.Tensor | float | None
) -> torch.Tensor:
    """The mean of a normal variable after clamping to [low, high]; None is no bound.

    Example:
        >>> clamped_mean(torch.zeros(1), torch.ones(1), 0.0, None)  # 1 / sqrt(2 pi)
        tensor([0.3989])
    """
    mean, deviation = mean.double(), deviation.double().clamp(min=1e-12)
    below, density_low, term_low = _tail(mean, deviation, low, -math.inf)
    under_high, density_high, term_high = _tail(mean, deviation, high, math.inf)
    inside = mean * (under_high - below) + deviation * (density_low - density_high)
    return (inside + term_low * below + term_high * (1 - under_high)).float()


def _tail(
    mean: torch.Tensor, deviation: torch.Tensor, bound: torch.Tensor | float | None, missing: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Phi and phi at a bound, and the bound itself (0 in place of an infinite one, whose share is 0)."""
    bound = torch.as_tensor(missing if bound is None else bound, dtype=torch.float64).expand_as(mean)
    at = (bound - mean) / deviation
    density = torch.exp(-at.square() / 2) / math.sqrt(2 * math.pi)
    return torch.special.ndtr(at), density, torch.where(bound.isinf(), 0.0, bound)
