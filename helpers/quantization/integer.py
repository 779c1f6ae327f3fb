"""The steps of a quantized network: what one operation does to codes, in float, in integers and
with int8 kernels.

All three take and return codes (uint8), or floats on an edge that has none, so that they can be
compared and mixed step by step:

    simulated  decode the codes, compute in float32, encode the result
    integer    int32 sums; each has a real factor, which is a multiplier and a shift (`affine.py`)
    kernel     the same with a kernel of oneDNN where there is one (`kernels.py`), otherwise integer

In integers a code is

    code = clamp(round(sum_i sums_i * factor_i) + zero_point, first, last)

where `first` and `last` are the bounds of the codes, or those of a ReLU or ReLU6.
"""

import copy
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from helpers.passes.fused_layer import counts_operations
from helpers.quantization import kernels
from helpers.quantization.affine import Affine, QuantizationError, fixed_point, round_shift
from helpers.quantization.plan import KEEPS_CODES, PlanOp
from helpers.quantization.weights import LARGEST_SUM, LayerWeights, pack, per_row, unpack

PART = 8  # images at a time, so that their 64-bit products stay in the processor's cache


class Step(nn.Module):
    """One operation on codes, computed in float; a subclass for each integer form.

    Attributes:
        op: what it computes, without weight, bias and clamp.
        module: what computes an operation in float; None for any other.
        sources: how its inputs are coded; None for an input that comes as float.
        has_codes: whether it encodes its output as `out` says; otherwise it returns floats, or, as
            a `Passthrough`, its input's codes.
        first, last: the bounds of its output's codes; `last` holds one code per channel.
    """

    def __init__(self, op: PlanOp, out: Affine | None) -> None:
        super().__init__()
        self.module = copy.deepcopy(op.module)
        self.op = replace(op, weight=None, bias=None, clamp=None, module=self.module)
        self.has_codes = out is not None
        if out is None:
            return
        self.out_bits = out.bits
        low, high = op.clamp or (-math.inf, math.inf)
        channels = (op.shape or (1,))[-1 if op.kind == "linear" else 0]
        last = out.quantize(torch.as_tensor(high).float())
        self.register_buffer("out_scale", out.scale.clone())
        self.register_buffer("out_zero_point", out.zero_point.clone())
        self.register_buffer("first", out.quantize(torch.tensor(low)))
        self.register_buffer("last", last.expand(channels).clone())

    @property
    def out(self) -> Affine | None:
        """How the output is coded. Scale and zero point are buffers, which a file fills."""
        if not self.has_codes:
            return None
        return Affine(self.out_scale, self.out_zero_point, self.out_bits, signed=False)

    def derive_integers(self) -> None:
        """Compute what follows from the buffers and from `sources`."""

    def encode(self, y: Tensor) -> Tensor:
        """Real numbers to this step's output codes; NaN, which a module may compute, is refused."""
        if self.module is not None and y.isnan().any():
            raise QuantizationError(
                f"{self.op.name}: computes NaN, which no code stands for; look at its inputs"
            )
        codes = torch.round(y.float() / self.out_scale).add_(self.out_zero_point)
        return self.clamp_codes(codes).to(torch.uint8)

    def clamp_codes(self, codes: Tensor) -> Tensor:
        """Clamp codes, of any type, in place."""
        last = self.op.along_channels(self.last)
        return codes.clamp_(self.first.to(codes.dtype), last.to(codes.dtype))

    def float_op(self) -> PlanOp:
        """The float operation that `simulated` runs."""
        return self.op

    def simulated(self, *values: Tensor) -> Tensor:
        """Compute in float32 what the codes stand for, and encode the result."""
        pairs = zip(values, self.sources, strict=True)
        inputs = (value if source is None else source.dequantize(value) for value, source in pairs)
        y = self.float_op().run(*inputs)
        return self.encode(y) if self.has_codes else y

    integer = kernel = simulated


class Passthrough(Step):
    """An operation that moves or compares codes, and computes none: they keep their scale."""

    @property
    def out(self) -> Affine | None:
        """How the output is coded: as the inputs are."""
        return self.sources[0]

    def simulated(self, *values: Tensor) -> Tensor:
        """Compute on codes, or on floats, as they are."""
        return self.op.run(*values)

    integer = kernel = simulated


class IntegerStep(Step):
    """An addition or a clamp: each input, without its zero point, is one of the sums."""

    def derive_integers(self) -> None:
        """Turn the factors between sums and output codes into multipliers and a shift."""
        if self.has_codes:
            factors = (unit / self.out_scale.double() for unit in self.factors())
            try:
                self.multipliers, self.shift = fixed_point(*factors)
            except QuantizationError as error:
                raise QuantizationError(f"{self.op.name}: {error}") from error

    def factors(self) -> list[Tensor]:
        """The real value of one unit of each of `sums`, float64."""
        return [source.scale.double() for source in self.sources]

    def sums(self, *codes: Tensor) -> list[Tensor]:
        """Integers that, times their factors, add up to the result."""
        pairs = zip(codes, self.sources, strict=True)
        return [code.to(torch.int32) - source.zero_point for code, source in pairs]

    def integer(self, *codes: Tensor) -> Tensor:
        """Compute with integers only; a network's last sums become real numbers."""
        if not self.has_codes:
            pairs = zip(self.sums(*codes), self.factors(), strict=True)
            return sum(part * factor.float() for part, factor in pairs)
        parts = zip(*(code.split(PART) for code in codes), strict=True)
        return torch.cat([self._requantized(*part) for part in parts])

    def _requantized(self, *codes):
        pairs = zip(self.sums(*codes), self.multipliers, strict=True)
        total = sum(part.long() * multiplier for part, multiplier in pairs)
        codes = round_shift(total, self.shift).add_(self.out_zero_point)
        return self.clamp_codes(codes).to(torch.uint8)

    kernel = integer  # there are int8 kernels for layers alone


class AveragePool(IntegerStep):
    """The sum of a window; dividing by its size is part of the factor."""

    def factors(self) -> list[Tensor]:
        """The unit of the input, divided by the number of places under the window."""
        return [self.sources[0].scale.double() / math.prod(self.op.attributes["kernel"])]

    def sums(self, codes: Tensor) -> list[Tensor]:
        """The sum of each window, without its zero points."""
        rows, columns = self.op.attributes["kernel"]
        down, right = self.op.attributes["stride"]
        windows = codes.unfold(2, rows, down).unfold(3, columns, right)
        zero_points = rows * columns * self.sources[0].zero_point
        sums = windows.sum((4, 5), dtype=torch.int32) - zero_points
        return [sums.reshape(len(codes), *self.op.shape)]


class Layer(IntegerStep):
    """A convolution or linear layer: integer weights, an integer bias, int32 sums.

        sum (code - zero_point) * weight = sum code * weight - zero_point * sum weight

    The second part is the same at every position when the border is filled with zero_point, the
    code of real 0; so it goes into the bias. The buffer `weight` takes as few bytes as its bits
    need; `codes` holds the same numbers as int8.
    """

    def __init__(self, op: PlanOp, weights: LayerWeights, source: Affine, out: Affine | None):
        super().__init__(op, out)
        weights = weights.with_room_for_bias(source.scale)
        unit = source.scale.double() * weights.scale.double()
        bias = torch.round(weights.bias.double() / unit).to(torch.int32)
        packed = pack(weights.codes, weights.bits) if weights.bits < 8 else weights.codes
        self.bits = weights.bits
        self.shape = weights.codes.shape
        self.geometry = op.attributes or kernels.ONE_PIXEL
        self.register_buffer("weight", packed)
        self.register_buffer("weight_scale", weights.scale)
        self.register_buffer("bias", bias)

    def derive_integers(self) -> None:
        """Compute the unit of the sums and the folded bias, too."""
        self.codes = unpack(self.weight, self.bits, self.shape) if self.bits < 8 else self.weight
        largest = self.codes.abs().flatten(1).sum(1, dtype=torch.int64).max() * 255
        if largest > LARGEST_SUM:
            raise QuantizationError(
                f"{self.op.name}: the sum of {self.shape[1:].numel()} products may reach {largest},"
                " which int32 cannot hold safely; give the layer fewer bits (layer_bits)"
            )
        self.packed = None  # made when first used
        self.needs_clamp = self.has_codes and (int(self.first) > 0 or int(self.last.min()) < 255)
        self.zero_point = int(self.sources[0].zero_point)
        self.unit = self.sources[0].scale.double() * self.weight_scale.double()
        row_sums = self.codes.flatten(1).sum(1, dtype=torch.int32)
        self.folded_bias = self.bias - self.zero_point * row_sums
        super().derive_integers()

    def factors(self) -> list[Tensor]:
        """The unit of the sums, per output channel, and that of the residual."""
        _, *residual = super().factors()
        return [self.op.along_channels(self.unit), *residual]

    def sums(self, codes: Tensor, *residual: Tensor) -> list[Tensor]:
        """The int32 sums of the layer, and the residual without its zero point."""
        if self.op.kind == "conv":
            sums = kernels.conv_sums(codes, self.codes, self.zero_point, **self.geometry)
        else:
            sums = codes.to(torch.int32) @ self.codes.to(torch.int32).t()
        sums = sums.reshape(len(codes), *self.op.shape)
        sums += self.op.along_channels(self.folded_bias)
        return [sums, *(code.to(torch.int32) - self.sources[1].zero_point for code in residual)]

    def float_op(self) -> PlanOp:
        """The float layer that the integers stand for: `simulated` runs this."""
        weight = self.codes * per_row(self.weight_scale, self.codes)
        return replace(self.op, weight=weight, bias=(self.bias * self.unit).float())

    def kernel(self, codes: Tensor, *residual: Tensor) -> Tensor:
        """Compute with the int8 kernel; in integers where it could saturate."""
        if self.packed is None:
            self.packed = self._pack()
        if not self.packed.usable or counts_operations():
            return self.integer(codes, *residual)
        if self.op.kind == "linear":
            pixels = codes.reshape(-1, codes.shape[-1], 1, 1)
            y = self.packed(pixels, *residual).reshape(len(codes), *self.op.shape)
        else:
            y = self.packed(codes, *residual)
        return self.clamp_codes(y) if self.needs_clamp else y

    def _pack(self):
        """The layer as a convolution of oneDNN; a linear one is that of images with one pixel."""
        unit = self.out_scale.double() if self.has_codes else 1.0
        factors = self.unit / unit
        residual = [
            ((source.scale.double() / unit).item(), int(source.zero_point))
            for source in self.sources[1:]
        ]
        weight = self.codes
        if self.op.kind == "linear":
            weight = weight[..., None, None]
        return kernels.PackedConv(
            weight,
            factors.float(),
            (self.folded_bias * factors).float(),
            self.geometry,
            self.zero_point,
            int(self.out_zero_point) if self.has_codes else None,
            *residual,
        )

    def __getstate__(self) -> dict[str, Any]:
        # The kernels' own memory can be neither copied nor pickled.
        return {**self.__dict__, "packed": None}


def make_step(
    op: PlanOp,
    out: Affine | None,
    weights: LayerWeights | None = None,
    source: Affine | None = None,
) -> Step:
    """The step for an operation.

    Args:
        out: how its output is coded; None for floats.
        weights, source: for a layer, its weights and how its input is coded.
    """
    if weights is not None:
        return Layer(op, weights, source, out)
    if op.kind in KEEPS_CODES:
        return Passthrough(op, None)
    kinds = {"average_pool": AveragePool, "float": Step}
    return kinds.get(op.kind, IntegerStep)(op, out)
