"""The steps of a quantized network: what one operation does to codes, in float, in integers and
with int8 kernels.

All three take codes and return codes (uint8), so that they can be compared and mixed step by step:

    simulated  decode the codes, compute in float32, encode the result
    integer    int32 sums; each has a real factor, which is a multiplier and a shift (`affine.py`)
    kernel     the same with a kernel of oneDNN where there is one (`kernels.py`), otherwise integer

    code = clamp(round(sum_i sums_i * factor_i) + zero_point, first, last)        first and last are
    ReLU and ReLU6, too
"""

import copy
import dataclasses
import math
from typing import Any

import torch
from torch import nn

from helpers.passes.fused_layer import counts_operations
from helpers.quantization import kernels
from helpers.quantization.affine import Affine, QuantizationError, fixed_point, round_shift
from helpers.quantization.plan import HANDS_ON, Op
from helpers.quantization.weights import LayerWeights, pack, per_row, unpack

PART = 8  # images: their 64-bit products stay in the processor's cache
LARGEST_SUM = 2**30  # for the bias and for the products each, so that together they fit int32


class Step(nn.Module):
    """One operation on codes; a subclass says what is different for a layer and for a pool.

    Attributes:
        op: what it computes, without tensors.
        sources: how its inputs are coded; None for an input that comes as float.
        out_scale, out_zero_point, first, last: how its output is coded; absent when it hands its
            input's codes on or returns floats. `last` holds one code per channel.
    """

    def __init__(self, op: Op, out: Affine | None) -> None:
        super().__init__()
        self.op = dataclasses.replace(op, weight=None, bias=None, clamp=None, module=None)
        self.module, self.moves = (
            copy.deepcopy(op.module),
            op.kind in HANDS_ON,
        )  # codes, and computes none
        self.coded = out is not None and not self.moves
        if self.coded:
            bounds = (torch.as_tensor(bound).float() for bound in op.clamp or (-math.inf, math.inf))
            channels = (op.shape or (1,))[-1 if op.kind == "linear" else 0]
            first, last = (out.quantize(bound).expand(channels).clone() for bound in bounds)
            self.register_buffer("out_scale", out.scale.clone())
            self.register_buffer("out_zero_point", out.zero_point.clone())
            self.register_buffer("first", first.amax())
            self.register_buffer("last", last)

    @property
    def out(self) -> Affine | None:
        """How the output is coded by this step itself."""
        return Affine(self.out_scale, self.out_zero_point, 8, signed=False) if self.coded else None

    def settle(self, sources: list[Affine | None]) -> Affine | None:
        """Compute the integers that follow from the scales on both sides; returns how the output is
        coded.
        """
        self.sources = sources
        if self.coded and self.module is None:
            try:
                self.multipliers, self.shift = fixed_point(
                    *(unit / self.out_scale.double() for unit in self.factors())
                )
            except QuantizationError as error:
                raise QuantizationError(f"{self.op.name}: {error}") from error
        return sources[0] if self.moves else self.out

    def factors(self) -> list[torch.Tensor]:
        """The real value of one unit of each of `sums`, float64."""
        return [source.scale.double() for source in self.sources]

    def sums(self, *codes: torch.Tensor) -> list[torch.Tensor]:
        """Integers that, times their factors, add up to the result."""
        return [
            code.to(torch.int32) - source.zero_point
            for code, source in zip(codes, self.sources, strict=True)
        ]

    def integer(self, *codes: torch.Tensor) -> torch.Tensor:
        """Compute with integers only, a few images at a time; a network's last sums become real
        numbers.
        """
        if self.moves or self.module is not None:
            return self.simulated(*codes)
        if not self.coded:
            return sum(
                part * factor.float()
                for part, factor in zip(self.sums(*codes), self.factors(), strict=True)
            )
        return torch.cat(
            [self._few(*part) for part in zip(*(c.split(PART) for c in codes), strict=True)]
        )

    def _few(self, *codes: torch.Tensor) -> torch.Tensor:
        total = sum(s.long() * m for s, m in zip(self.sums(*codes), self.multipliers, strict=True))
        return self.limit(round_shift(total, self.shift).add_(self.out_zero_point)).to(torch.uint8)

    def limit(self, codes: torch.Tensor) -> torch.Tensor:
        """Clamp codes, of any type, in place."""
        return codes.clamp_(
            self.first.to(codes.dtype), self.op.along_channels(self.last).to(codes.dtype)
        )

    kernel = integer  # there are int8 kernels for layers alone

    def simulated(self, *values: torch.Tensor) -> torch.Tensor:
        """Compute in float32 what the codes stand for, and encode the result."""
        if self.moves:
            return self.op.run(*values)
        pairs = zip(values, self.sources, strict=True)
        y = self.float_op().run(
            *(value if source is None else source.dequantize(value) for value, source in pairs)
        )
        return self.encode(y) if self.coded else y

    def encode(self, y: torch.Tensor) -> torch.Tensor:
        """Real numbers to this step's output codes."""
        if self.op.kind == "float" and y.isnan().any():
            raise QuantizationError(
                f"{self.op.name}: computes NaN, which no code stands for; look at its inputs"
            )
        return self.limit(torch.round(y.float() / self.out_scale).add_(self.out_zero_point)).to(
            torch.uint8
        )

    def float_op(self) -> Op:
        """The float operation that `simulated` runs."""
        return dataclasses.replace(self.op, module=self.module)


class _AveragePool(Step):
    """The sum of a window; dividing by its size is part of the factor."""

    def factors(self) -> list[torch.Tensor]:
        return [self.sources[0].scale.double() / math.prod(self.op.attributes["kernel"])]

    def sums(self, codes: torch.Tensor) -> list[torch.Tensor]:
        (rows, columns), (down, right) = self.op.attributes["kernel"], self.op.attributes["stride"]
        sums = codes.unfold(2, rows, down).unfold(3, columns, right).sum((4, 5), dtype=torch.int32)
        return [
            (sums - rows * columns * self.sources[0].zero_point).reshape(len(codes), *self.op.shape)
        ]


class Layer(Step):
    """A convolution or linear layer: integer weights, an integer bias, int32 sums.

        sum (code - zero_point) * weight = sum code * weight - zero_point * sum weight

    The second part is the same at every position when the border is filled with zero_point, the
    code of real 0; so it goes into the bias. The buffer `weight` takes as few bytes as its bits
    need, `codes` are the same in int8.
    """

    def __init__(self, op: Op, weights: LayerWeights, source: Affine, out: Affine | None) -> None:
        super().__init__(op, out)
        # What pruning or training left with weights of almost 0 is its bias, which has to fit int32
        # in its own units.
        some = weights.codes.flatten(1).any(
            1
        )  # a channel that has none takes any scale: one with 16 bits for its bias
        least = weights.bias.double().abs() / (
            source.scale.double() * torch.where(some, LARGEST_SUM / 1.001, 2.0**16)
        )
        scale = torch.maximum(
            weights.scale.double() * some, torch.where(some | (least > 1e-12), least, 1.0)
        ).float()
        codes = torch.round(weights.codes * per_row(weights.scale / scale, weights.codes)).to(
            torch.int8
        )
        self.bits, self.shape, self.geometry = (
            weights.bits,
            codes.shape,
            op.attributes or kernels.ONE_PIXEL,
        )
        self.register_buffer("weight", pack(codes, self.bits) if self.bits < 8 else codes)
        self.register_buffer("weight_scale", scale)
        bias = weights.bias.double() / (source.scale.double() * scale.double())
        self.register_buffer("bias", torch.round(bias).to(torch.int32))

    def settle(self, sources: list[Affine | None]) -> Affine | None:
        """Compute the unit of the sums and the folded bias, too."""
        self.codes = unpack(self.weight, self.bits, self.shape) if self.bits < 8 else self.weight
        largest = self.codes.abs().flatten(1).sum(1, dtype=torch.int64).max() * 255
        if largest > LARGEST_SUM:
            reason = (
                f"the sum of {self.shape[1:].numel()} products may reach {largest}, which int32"
                " cannot hold safely"
            )
            raise QuantizationError(
                f"{self.op.name}: {reason}; give the layer fewer bits (layer_bits)"
            )
        self.packed = None  # made when first used
        self.limited = self.coded and (int(self.first) > 0 or int(self.last.min()) < 255)
        self.zero_point = int(sources[0].zero_point)
        self.unit = sources[0].scale.double() * self.weight_scale.double()
        self.folded_bias = self.bias - self.zero_point * self.codes.flatten(1).sum(
            1, dtype=torch.int32
        )
        return super().settle(sources)

    def factors(self) -> list[torch.Tensor]:
        """The unit of the sums, per output channel, and that of the residual."""
        return [
            self.op.along_channels(self.unit),
            *(source.scale.double() for source in self.sources[1:]),
        ]

    def sums(self, codes: torch.Tensor, *residual: torch.Tensor) -> list[torch.Tensor]:
        """The int32 sums of the layer, and the residual without its zero point."""
        sums = kernels.conv_sums(*self._as_conv(codes), self.zero_point, **self.geometry)
        sums = sums.add_(self.folded_bias[:, None, None]).reshape(len(codes), *self.op.shape)
        return [sums, *(codes.to(torch.int32) - self.sources[1].zero_point for codes in residual)]

    def _as_conv(self, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Input and weight of a convolution; for a linear layer of images with one pixel."""
        if self.op.kind == "conv":
            return codes, self.codes
        return codes.reshape(-1, codes.shape[-1], 1, 1), self.codes[..., None, None]

    def float_op(self) -> Op:
        """The float layer that the integers stand for."""
        weight = self.codes * per_row(self.weight_scale, self.codes)
        return dataclasses.replace(self.op, weight=weight, bias=(self.bias * self.unit).float())

    def kernel(self, codes: torch.Tensor, *residual: torch.Tensor) -> torch.Tensor:
        """Compute with the int8 kernel; in integers where it could saturate."""
        maps, weight = self._as_conv(codes)
        if self.packed is None:
            unit, zero_out = (
                (self.out_scale.double(), int(self.out_zero_point)) if self.coded else (1.0, None)
            )
            factors, others = self.unit / unit, self.sources[1:]
            numbers = (
                factors.float(),
                (self.folded_bias * factors).float(),
                self.geometry,
                self.zero_point,
                zero_out,
            )
            second = [
                ((other.scale.double() / unit).item(), int(other.zero_point)) for other in others
            ]
            self.packed = kernels.PackedConv(weight, *numbers, *second)
        if not self.packed.usable or counts_operations():
            return self.integer(codes, *residual)
        y = self.packed(maps, *residual)
        y = (
            y if maps is codes else y.reshape(len(codes), *self.op.shape)
        )  # a view costs as much as a small layer
        return self.limit(y) if self.limited else y

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "packed": None,
        }  # kernels' own memory can be neither copied nor pickled


def make_step(
    op: Op, out: Affine | None, weights: LayerWeights | None = None, source: Affine | None = None
) -> Step:
    """The step for an operation whose output, and whose input if it is a layer, are coded like
    this.
    """
    if weights is not None:
        return Layer(op, weights, source, out)
    return (_AveragePool if op.kind == "average_pool" else Step)(op, out)
