"""The plan: a folded network as a short list of operations, still in float.

A graph says how the network was written; the plan says what an integer engine has to do. An activation that follows
an operation is that operation's `clamp`, and (for residual="fused") an addition belongs to the convolution before it.
"""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from helpers.quantization.affine import QuantizationError

__all__ = ["INPUT", "Bound", "Op", "Plan", "PlanError", "last_uses"]

INPUT = "input"  # the edge that the network's input travels on
Bound = float | torch.Tensor | None  # one number, one number per channel, or no bound


class PlanError(QuantizationError):
    """A network that cannot be written as a plan."""


@dataclass
class Op:
    """One operation.

    Attributes:
        name: of the operation and of the edge that carries its output.
        kind: "conv", "linear", "add", "average_pool", "max_pool", "reshape", "clamp" or "float".
        inputs: names of the edges it reads; a conv with two inputs adds the second one (the residual) to its output.
        weight, bias: float parameters of conv and linear; the bias is never None there.
        clamp: (low, high), applied last; high may be one number per channel.
        attributes: stride, padding, dilation, groups of a conv; kernel, stride, padding of a pool; shape of a reshape.
        shape: of one output, without the batch.
        module: what computes a "float" operation.
        normal: mean and deviation per channel of a layer's output, before residual and clamp, as its BatchNorm had
            them; None when nobody recorded them (see `normals.py`).
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    clamp: tuple[Bound, Bound] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    module: nn.Module | None = None
    normal: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def residual(self) -> str | None:
        """The edge that a convolution adds to its output, or None."""
        return self.inputs[1] if self.kind == "conv" and len(self.inputs) == 2 else None

    def run(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Compute the operation in float."""
        return clamp(_FLOAT[self.kind](self, *inputs), self.clamp)


def clamp(x: torch.Tensor, bounds: tuple[Bound, Bound] | None) -> torch.Tensor:
    """Limit x to (low, high), each a number, one number per channel (dimension 1), or None."""
    if bounds is None:
        return x
    if all(isinstance(bound, int | float) for bound in bounds):
        return F.hardtanh(x, *bounds)  # the same numbers, and a much faster way back
    low, high = (_along_channels(bound, x) for bound in bounds)
    if low is not None:
        x = torch.clamp(x, min=low)
    return x if high is None else torch.clamp(x, max=high)


def _along_channels(bound: Bound, x: torch.Tensor) -> Bound:
    if not isinstance(bound, torch.Tensor):
        return bound
    return bound.to(x).reshape(-1, *[1] * (x.ndim - 2))


def _conv(op: Op, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    y = F.conv2d(x, op.weight, op.bias, **op.attributes)
    return y if residual is None else y + residual


def _average(op: Op, x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(x, op.attributes["kernel"], op.attributes["stride"])


def _maximum(op: Op, x: torch.Tensor) -> torch.Tensor:
    # In channels_last PyTorch counts the places of an image in the image's own type, which ends at 255 for codes.
    x = x if x.is_floating_point() else x.contiguous()
    return F.max_pool2d(x, *(op.attributes[name] for name in ("kernel", "stride", "padding", "dilation")))


_FLOAT: dict[str, Callable[..., torch.Tensor]] = {
    "conv": _conv,
    "linear": lambda op, x: F.linear(x, op.weight, op.bias),
    "add": lambda op, x, y: x + y,
    "average_pool": lambda op, x: _average(op, x).reshape(x.shape[0], *op.shape),
    "max_pool": _maximum,
    "reshape": lambda op, x: x.reshape(x.shape[0], *op.shape),
    "clamp": lambda op, x: x,
    "float": lambda op, *inputs: op.module(*inputs),
}


@dataclass
class Plan:
    """The operations in the order in which they run; the last one makes the network's output.

    Example:
        >>> double = Op("double", "add", (INPUT, INPUT), shape=(2,))
        >>> Plan([double], input_shape=(2,)).run(torch.ones(1, 2))
        tensor([[2., 2.]])
    """

    ops: list[Op]
    input_shape: tuple[int, ...]

    def __getitem__(self, name: str) -> Op:
        for op in self.ops:
            if op.name == name:
                return op
        raise PlanError(f"plan: there is no operation {name!r}; there are {[op.name for op in self.ops]}")

    @property
    def layers(self) -> list[Op]:
        """The operations that have weights."""
        return [op for op in self.ops if op.weight is not None]

    @property
    def output(self) -> str:
        """The edge that carries the network's output."""
        return self.ops[-1].name

    def users(self, edge: str) -> list[Op]:
        """The operations that read an edge."""
        return [op for op in self.ops if edge in op.inputs]

    def copy(self) -> "Plan":
        """A plan with tensors of its own, to change freely."""
        return Plan([_copy_op(op) for op in self.ops], self.input_shape)

    @torch.no_grad()
    def run(self, x: torch.Tensor, watch: Callable[[str, torch.Tensor], None] | None = None) -> torch.Tensor:
        """Compute the network in float.

        Args:
            x: normalised input, (N, ...).
            watch: called with the name and the value of every edge, the input's first.
        """
        edges = {INPUT: x}
        if watch:
            watch(INPUT, x)
        for op, done in zip(self.ops, last_uses(self.ops), strict=True):
            edges[op.name] = op.run(*(edges[name] for name in op.inputs))
            if watch:
                watch(op.name, edges[op.name])
            for name in done:
                del edges[name]
        return edges[self.output]


def _copy_op(op: Op) -> Op:
    copied = {f.name: copy.deepcopy(getattr(op, f.name)) for f in dataclasses.fields(op) if f.name != "module"}
    return Op(**copied, module=op.module)


def last_uses(ops: list[Op]) -> list[list[str]]:
    """For each operation, the edges that nobody reads after it, so that their memory can go."""
    seen: set[str] = set()
    result = []
    for op in reversed(ops):
        result.append([name for name in dict.fromkeys(op.inputs) if name not in seen])
        seen.update(op.inputs)
    return result[::-1]
