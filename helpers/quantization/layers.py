"""Convolution and linear layers on codes: integer weights, an integer bias, int32 sums."""

import dataclasses
from typing import Any

import torch

from helpers.quantization import integer_ops, kernels
from helpers.quantization.affine import Affine, QuantizationError, code_range, encode
from helpers.quantization.packing import pack, unpack
from helpers.quantization.plan import Op
from helpers.quantization.steps import Edge, Step
from helpers.quantization.weights import LayerWeights, per_row

__all__ = ["Layer"]

LARGEST_SUM = 2**30  # for the bias and for the products each, so that together they fit int32


class Layer(Step):
    """A convolution or linear layer.

    Attributes:
        weight: int8 codes, zero point 0; saved in as few bytes as its bits need.
        weight_scale: float32, per output channel.
        bias: int32, in units of input scale * weight scale.
        packed: what the int8 kernel needs, made when first used.
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
            raise QuantizationError(
                f"{op.name}: the sum of {self.weight[0].numel()} products may reach {largest}, which int32 cannot hold "
                "safely; give the layer fewer bits (layer_bits)"
            )

    def settle(self, sources: list[Edge | None]) -> Edge | None:
        """Compute the unit of the sums, the folded bias, and the multipliers."""
        self.packed: kernels.PackedConv | None = None
        self.zero_point = int(sources[0].zero_point)
        self.unit = sources[0].scale.double() * self.weight_scale.double()
        row_sums = self.weight.flatten(1).sum(1, dtype=torch.int32)
        self.folded_bias = self.bias - self.zero_point * row_sums
        return super().settle(sources)

    def factors(self) -> list[torch.Tensor]:
        """The unit of the sums, per output channel, and that of the residual."""
        unit = self.unit.reshape(-1, *[1] * (len(self.op.shape) - 1))
        return [unit, *(source.scale.double() for source in self.sources[1:])]

    def sums(self, codes: torch.Tensor, *residual: torch.Tensor) -> list[torch.Tensor]:
        """The int32 sums of the layer and the residual without its zero point."""
        if self.op.kind == "linear":
            return [integer_ops.linear_sums(codes, self.weight, self.folded_bias)]
        sums = integer_ops.conv_sums(codes, self.weight, self.folded_bias, self.zero_point, **self.op.attributes)
        return [sums, *(code.to(torch.int32) - self.sources[1].zero_point for code in residual)]

    def integer(self, *codes: torch.Tensor) -> torch.Tensor:
        """Codes in, codes out; the last layer of a network turns its sums into real numbers."""
        if self.coded:
            return super().integer(*codes)
        return self.sums(*codes)[0] * self.factors()[0].float()

    def float_op(self) -> Op:
        """The float layer that the integers stand for."""
        weight = self.weight * per_row(self.weight_scale, self.weight)
        return dataclasses.replace(self.op, weight=weight, bias=(self.bias * self.unit).float())

    def kernel(self, codes: torch.Tensor, *residual: torch.Tensor) -> torch.Tensor:
        """Compute with the int8 kernel; in integers where it could saturate."""
        packed = self.packed or self.prepare_kernel()
        return packed(codes, *residual) if packed.usable else self.integer(codes, *residual)

    def prepare_kernel(self) -> kernels.PackedConv:
        """Bring the weights into the kernel's own order."""
        self.packed = kernels.PackedConv(self)
        return self.packed

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "packed": None}  # kernels' own memory can be neither copied nor pickled

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.bits < 8:
            destination[prefix + "weight"] = pack(self.weight, self.bits)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        key = prefix + "weight"
        if self.bits < 8 and key in state_dict:
            state_dict[key] = unpack(state_dict[key], self.bits, tuple(self.weight.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


def make_room_for_bias(weights: LayerWeights, source_scale: torch.Tensor) -> LayerWeights:
    """Give a channel a larger weight scale where its bias would not fit int32.

    That happens when pruning or training left a channel with weights of almost 0: its scale is tiny, and the bias,
    counted in units of input scale * weight scale, huge. Such a channel is its bias; its weights round to 0.
    """
    least = weights.bias.double().abs() / (source_scale.double() * LARGEST_SUM)
    tight = weights.scale.double() < least
    if not tight.any():
        return weights
    scale = torch.where(tight, least * 1.001, weights.scale.double()).float()
    first, last = code_range(weights.bits, signed=True, narrow=True)
    codes = encode(weights.decode(), per_row(scale, weights.codes), torch.tensor(0), first, last)
    return dataclasses.replace(weights, scale=scale, codes=torch.where(per_row(tight, codes), codes, weights.codes))
