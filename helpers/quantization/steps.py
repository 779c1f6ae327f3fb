"""The steps of a quantized network: what one operation does to codes, in float, in integers and with int8 kernels.

All three take codes and return codes (uint8), so that they can be compared and mixed step by step:

    simulated  decode the codes, compute in float32, encode the result
    integer    sums of integers; each sum has a real factor, which is a multiplier and a shift (`fixed_point.py`)
    kernel     the same with a kernel of oneDNN where there is one (`kernels.py`), otherwise integer

    code = clamp(round(sum_i sums_i * factor_i) + zero_point, first, last)

ReLU and ReLU6 need no operation of their own: they are the codes `first` and `last`.
"""

import copy
import dataclasses
from dataclasses import dataclass

import torch
from torch import nn

from helpers.quantization import fixed_point, integer_ops
from helpers.quantization.affine import Affine
from helpers.quantization.plan import Bound, Op

__all__ = ["Edge", "Step", "make_step"]

PART = 8  # images: their 64-bit products stay in the processor's cache


@dataclass(frozen=True)
class Edge:
    """How the codes on an edge are read: scale (float32) and zero point (int32), both scalars."""

    scale: torch.Tensor
    zero_point: torch.Tensor

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Codes to real numbers."""
        return (codes.to(torch.int32) - self.zero_point) * self.scale


class Step(nn.Module):
    """One operation on codes.

    Attributes:
        op: what it computes, without tensors.
        out_scale, out_zero_point, first, last: how its output is coded; absent when it hands its input's codes on
            or returns floats. `last` holds one code per channel.
    """

    def __init__(self, op: Op, out: Affine | None) -> None:
        super().__init__()
        self.op = dataclasses.replace(op, weight=None, bias=None, clamp=None, module=None)
        self.coded = out is not None
        if self.coded:
            first, last = (_code_bound(bound, out, op, end) for end, bound in enumerate(op.clamp or (None, None)))
            self.register_buffer("out_scale", out.scale.clone())
            self.register_buffer("out_zero_point", out.zero_point.clone())
            self.register_buffer("first", first.amax())
            self.register_buffer("last", last)

    def settle(self, sources: list[Edge | None]) -> Edge | None:
        """Compute the integers that follow from the scales on both sides.

        Args:
            sources: how the inputs are coded; None for an input that comes as float.

        Returns:
            How the output is coded.
        """
        self.sources = sources
        if not self.coded:
            return None
        multipliers, shift = fixed_point.combine([factor / self.out_scale.double() for factor in self.factors()])
        self.multipliers = [multiplier.to(self.out_scale.device) for multiplier in multipliers]
        self.shift = shift.to(self.out_scale.device)
        return Edge(self.out_scale, self.out_zero_point)

    def factors(self) -> list[torch.Tensor]:
        """The real value of one unit of each of `sums`, float64."""
        return [source.scale.double() for source in self.sources]

    def sums(self, *codes: torch.Tensor) -> list[torch.Tensor]:
        """Integers that, times their factors, add up to the result."""
        return [code.to(torch.int32) - source.zero_point for code, source in zip(codes, self.sources, strict=True)]

    def integer(self, *codes: torch.Tensor) -> torch.Tensor:
        """Compute with integers only, a few images at a time."""
        return torch.cat([self.integer_part(*part) for part in zip(*(c.split(PART) for c in codes), strict=True)])

    def integer_part(self, *codes: torch.Tensor) -> torch.Tensor:
        """The same for few images."""
        first, *others = self.sums(*codes)
        total = first.long() * self.multipliers[0]
        for other, multiplier in zip(others, self.multipliers[1:], strict=True):
            total += other.long() * multiplier  # a scalar multiplier alone would leave the product in int32
        total = fixed_point.round_shift(total, self.shift).add_(self.out_zero_point)
        return self.limit(total).to(torch.uint8)

    def limit(self, codes: torch.Tensor) -> torch.Tensor:
        """Clamp codes (of any type, in place) to what the activation leaves."""
        last = self.last.reshape(-1, *[1] * (codes.ndim - 2))
        return codes.clamp_(self.first.to(codes.dtype), last.to(codes.dtype))

    def kernel(self, *codes: torch.Tensor) -> torch.Tensor:
        """Compute with int8 kernels where there are any."""
        return self.integer(*codes)

    def simulated(self, *values: torch.Tensor) -> torch.Tensor:
        """Compute in float32 what the codes stand for, and encode the result."""
        pairs = zip(values, self.sources, strict=True)
        y = self.float_op().run(*(value if source is None else source.decode(value) for value, source in pairs))
        return self.encode(y) if self.coded else y

    def encode(self, y: torch.Tensor) -> torch.Tensor:
        """Real numbers to this step's output codes."""
        return self.limit(torch.round(y / self.out_scale).add_(self.out_zero_point)).to(torch.uint8)

    def float_op(self) -> Op:
        """The float operation that `simulated` runs."""
        return self.op


class AveragePool(Step):
    """The sum of a window; dividing by its size is part of the factor."""

    def factors(self) -> list[torch.Tensor]:
        rows, columns = self.op.attributes["kernel"]
        return [self.sources[0].scale.double() / (rows * columns)]

    def sums(self, codes: torch.Tensor) -> list[torch.Tensor]:
        rows, columns = self.op.attributes["kernel"]
        sums = integer_ops.average_sums(codes, (rows, columns), self.op.attributes["stride"])
        return [(sums - rows * columns * self.sources[0].zero_point).reshape(len(codes), *self.op.shape)]


class Rearrange(Step):
    """Reshaping and max pooling: codes move, none is computed."""

    def __init__(self, op: Op) -> None:
        super().__init__(op, None)

    def settle(self, sources: list[Edge | None]) -> Edge | None:
        return sources[0]

    def integer(self, codes: torch.Tensor) -> torch.Tensor:
        return self.op.run(codes)

    simulated = integer


class Float(Step):
    """An operation that has no integer form: decode, compute in float, encode."""

    def __init__(self, op: Op, out: Affine | None) -> None:
        super().__init__(op, out)
        self.module = copy.deepcopy(op.module)

    def settle(self, sources: list[Edge | None]) -> Edge | None:
        self.sources = sources
        return Edge(self.out_scale, self.out_zero_point) if self.coded else None

    def float_op(self) -> Op:
        return dataclasses.replace(self.op, module=self.module)

    def integer(self, *values: torch.Tensor) -> torch.Tensor:
        return self.simulated(*values)


def make_step(op: Op, out: Affine | None) -> Step:
    """The step for an operation without weights.

    Args:
        op: from the plan.
        out: how its output is coded; None when it is not.
    """
    if op.kind in ("reshape", "max_pool"):
        return Rearrange(op)
    return {"float": Float, "average_pool": AveragePool}.get(op.kind, Step)(op, out)


def _code_bound(bound: Bound, out: Affine, op: Op, end: int) -> torch.Tensor:
    """The code of a clamp's bound, uint8, one per channel; without a bound the end of the code range."""
    code = torch.tensor(out.codes[end])
    if bound is not None:
        code = out.quantize(torch.as_tensor(bound, dtype=torch.float32, device=out.scale.device))
    return code.to(out.scale.device, torch.uint8).expand(op.shape[0]).clone()
