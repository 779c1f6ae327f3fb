"""The steps of a quantized network: what one operation does to codes, in float, in integers and with int8 kernels.

All three take codes and return codes (uint8), so that they can be compared and mixed step by step:

    simulated  decode the codes, compute in float32, encode the result
    integer    int32 sums; each has a real factor, which is a multiplier and a shift (`fixed_point.py`)
    kernel     the same with a kernel of oneDNN where there is one (`kernels.py`), otherwise integer

    code = clamp(round(sum_i sums_i * factor_i) + zero_point, first, last)        first and last are ReLU and ReLU6, too
"""

import copy
import dataclasses
import math
from typing import Any

import torch
from torch import nn

from helpers.quantization import kernels
from helpers.quantization.affine import Affine, QuantizationError, fixed_point, round_shift
from helpers.quantization.plan import HANDS_ON, Op
from helpers.quantization.weights import LayerWeights, nearest_codes, pack, per_row, unpack

PART = 8  # images: their 64-bit products stay in the processor's cache
LARGEST_SUM = 2**30  # for the bias and for the products each, so that together they fit int32


def make_step(op: Op, out: Affine | None, weights: LayerWeights | None = None, source: Affine | None = None) -> "Step":
    """The step for an operation whose output, and whose input if it is a layer, are coded like this."""
    if weights is not None:
        return Layer(op, weights, source, out)
    if op.kind in HANDS_ON:
        return _Rearrange(op, None)
    return _AveragePool(op, out) if op.kind == "average_pool" else Step(op, out)


class Step(nn.Module):
    """One operation on codes: an addition, a clamp, one without an integer form (in float), and what all others share.

    Attributes:
        op: what it computes, without tensors.
        sources: how its inputs are coded; None for an input that comes as float.
        out_scale, out_zero_point, first, last: how its output is coded; absent when it hands its input's codes on
            or returns floats. `last` holds one code per channel.
    """

    def __init__(self, op: Op, out: Affine | None) -> None:
        super().__init__()
        self.op = dataclasses.replace(op, weight=None, bias=None, clamp=None, module=None)
        self.module = copy.deepcopy(op.module)
        self.coded = out is not None
        if self.coded:
            bounds = (torch.as_tensor(bound, device=out.scale.device) for bound in op.clamp or (-math.inf, math.inf))
            first, last = (out.quantize(bound.float()).expand(op.channels).clone() for bound in bounds)
            self.register_buffer("out_scale", out.scale.clone())
            self.register_buffer("out_zero_point", out.zero_point.clone())
            self.register_buffer("first", first.amax())
            self.register_buffer("last", last)

    @property
    def out(self) -> Affine | None:
        """How the output is coded."""
        return Affine(self.out_scale, self.out_zero_point, 8, signed=False) if self.coded else None

    def settle(self, sources: list[Affine | None]) -> Affine | None:
        """Compute the integers that follow from the scales on both sides; returns how the output is coded."""
        self.sources = sources
        if self.coded and self.module is None:
            factors = [factor / self.out_scale.double() for factor in self.factors()]
            self.multipliers, self.shift = fixed_point(*factors)
        return self.out

    def factors(self) -> list[torch.Tensor]:
        """The real value of one unit of each of `sums`, float64."""
        return [source.scale.double() for source in self.sources]

    def sums(self, *codes: torch.Tensor) -> list[torch.Tensor]:
        """Integers that, times their factors, add up to the result."""
        return [code.to(torch.int32) - source.zero_point for code, source in zip(codes, self.sources, strict=True)]

    def integer(self, *codes: torch.Tensor) -> torch.Tensor:
        """Compute with integers only, a few images at a time; a network's last sums become real numbers."""
        if self.module is not None:
            return self.simulated(*codes)
        if not self.coded:
            return sum(part * factor.float() for part, factor in zip(self.sums(*codes), self.factors(), strict=True))
        return torch.cat([self._few(*part) for part in zip(*(c.split(PART) for c in codes), strict=True)])

    def _few(self, *codes: torch.Tensor) -> torch.Tensor:
        total, *others = (s.long() * m for s, m in zip(self.sums(*codes), self.multipliers, strict=True))
        for other in others:
            total += other
        total = round_shift(total, self.shift).add_(self.out_zero_point)
        return self.limit(total).to(torch.uint8)

    def limit(self, codes: torch.Tensor) -> torch.Tensor:
        """Clamp codes, of any type, in place."""
        return codes.clamp_(self.first.to(codes.dtype), self.op.along_channels(self.last).to(codes.dtype))

    def kernel(self, *codes: torch.Tensor) -> torch.Tensor:
        """Compute with int8 kernels where there are any."""
        return self.integer(*codes)

    def simulated(self, *values: torch.Tensor) -> torch.Tensor:
        """Compute in float32 what the codes stand for, and encode the result."""
        pairs = zip(values, self.sources, strict=True)
        y = self.float_op().run(*(value if source is None else source.dequantize(value) for value, source in pairs))
        return self.encode(y) if self.coded else y

    def encode(self, y: torch.Tensor) -> torch.Tensor:
        """Real numbers to this step's output codes."""
        return self.limit(torch.round(y / self.out_scale).add_(self.out_zero_point)).to(torch.uint8)

    def float_op(self) -> Op:
        """The float operation that `simulated` runs."""
        return dataclasses.replace(self.op, module=self.module)


class _AveragePool(Step):
    """The sum of a window; dividing by its size is part of the factor."""

    def factors(self) -> list[torch.Tensor]:
        return [self.sources[0].scale.double() / math.prod(self.op.attributes["kernel"])]

    def sums(self, codes: torch.Tensor) -> list[torch.Tensor]:
        (rows, columns), (down, right) = self.op.attributes["kernel"], self.op.attributes["stride"]
        if (rows, columns) == tuple(codes.shape[2:]):  # the same, and faster
            sums = codes.sum((2, 3), keepdim=True, dtype=torch.int32)
        else:
            sums = codes.unfold(2, rows, down).unfold(3, columns, right).sum((4, 5), dtype=torch.int32)
        return [(sums - rows * columns * self.sources[0].zero_point).reshape(len(codes), *self.op.shape)]


class _Rearrange(Step):
    """Reshaping, joining and max pooling: codes move, none is computed."""

    def settle(self, sources: list[Affine | None]) -> Affine | None:
        return sources[0]

    def integer(self, *codes: torch.Tensor) -> torch.Tensor:
        return self.op.run(*codes)

    simulated = integer


class Layer(Step):
    """A convolution or linear layer: integer weights, an integer bias, int32 sums.

        sum (code - zero_point) * weight = sum code * weight - zero_point * sum weight

    The second part is the same at every position when the border is filled with zero_point, the code of real 0; so it
    goes into the bias. The weight is saved in as few bytes as its bits need.
    """

    def __init__(self, op: Op, weights: LayerWeights, source: Affine, out: Affine | None) -> None:
        super().__init__(op, out)
        weights = make_room_for_bias(weights, source.scale)
        self.bits = weights.bits
        unit = source.scale.double() * weights.scale.double()
        self.register_buffer("weight", weights.codes.clone())
        self.register_buffer("weight_scale", weights.scale.clone())
        self.register_buffer("bias", torch.round(weights.bias.double() / unit).to(torch.int32))
        largest = self.weight.abs().flatten(1).sum(1, dtype=torch.int64).max() * 255
        if largest > LARGEST_SUM:
            reason = f"the sum of {self.weight[0].numel()} products may reach {largest}, which int32 cannot hold safely"
            raise QuantizationError(f"{op.name}: {reason}; give the layer fewer bits (layer_bits)")

    def settle(self, sources: list[Affine | None]) -> Affine | None:
        """Compute the unit of the sums and the folded bias, too."""
        self.packed: kernels.PackedConv | None = None  # made when first used
        self.limited = self.coded and (int(self.first) > 0 or int(self.last.min()) < 255)
        self.zero_point = int(sources[0].zero_point)
        self.unit = sources[0].scale.double() * self.weight_scale.double()
        self.folded_bias = self.bias - self.zero_point * self.weight.flatten(1).sum(1, dtype=torch.int32)
        return super().settle(sources)

    def factors(self) -> list[torch.Tensor]:
        """The unit of the sums, per output channel, and that of the residual."""
        return [self.op.along_channels(self.unit), *(source.scale.double() for source in self.sources[1:])]

    def sums(self, codes: torch.Tensor, *residual: torch.Tensor) -> list[torch.Tensor]:
        """The int32 sums of the layer, and the residual without its zero point."""
        if self.op.kind == "linear":
            sums = codes.flatten(0, -2).to(torch.int32) @ self.weight.to(torch.int32).T + self.folded_bias
            return [sums.unflatten(0, codes.shape[:-1])]
        sums = kernels.conv_sums(codes, self.weight, self.zero_point, **self.op.attributes)
        sums.add_(self.folded_bias[:, None, None])
        return [sums, *(codes.to(torch.int32) - self.sources[1].zero_point for codes in residual)]

    def float_op(self) -> Op:
        """The float layer that the integers stand for."""
        weight = self.weight * per_row(self.weight_scale, self.weight)
        return dataclasses.replace(self.op, weight=weight, bias=(self.bias * self.unit).float())

    def kernel(self, codes: torch.Tensor, *residual: torch.Tensor) -> torch.Tensor:
        """Compute with the int8 kernel; in integers where it could saturate."""
        self.packed = self.packed or self._pack()
        if not self.packed.usable:
            return self.integer(codes, *residual)
        if self.op.kind == "linear":
            y = self.packed(codes.reshape(-1, codes.shape[-1], 1, 1)).reshape(*codes.shape[:-1], -1)
        else:
            y = self.packed(codes, *residual)
        return self.limit(y) if self.limited else y

    def _pack(self) -> kernels.PackedConv:
        weight, geometry = self.weight, self.op.attributes or kernels.ONE_PIXEL
        weight = weight if weight.ndim == 4 else weight[:, :, None, None]
        out_scale, zero_out = (self.out_scale.double(), int(self.out_zero_point)) if self.coded else (1.0, None)
        factor = self.unit / out_scale
        bias = (self.folded_bias * factor).float()
        residual = [((other.scale.double() / out_scale).item(), int(other.zero_point)) for other in self.sources[1:]]
        return kernels.PackedConv(weight, factor.float(), bias, geometry, self.zero_point, zero_out, *residual)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "packed": None}  # kernels' own memory can be neither copied nor pickled

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.bits < 8:
            destination[prefix + "weight"] = pack(self.weight, self.bits)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if self.bits < 8 and prefix + "weight" in state_dict:
            state_dict[prefix + "weight"] = unpack(state_dict[prefix + "weight"], self.bits, tuple(self.weight.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


def make_room_for_bias(weights: LayerWeights, source_scale: torch.Tensor) -> LayerWeights:
    """Give a channel a larger weight scale where its bias, in units of input scale * weight scale, would not fit int32.

    That happens when pruning or training left a channel with weights of almost 0. Such a channel is its bias.
    """
    least = weights.bias.double().abs() / (source_scale.double() * LARGEST_SUM)
    tight = weights.scale.double() < least
    scale = torch.where(tight, least * 1.001, weights.scale.double()).float()
    codes = nearest_codes(weights.decode(), scale, weights.bits)
    return dataclasses.replace(weights, scale=scale, codes=torch.where(per_row(tight, codes), codes, weights.codes))
