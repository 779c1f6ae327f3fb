"""Integer weights of the layers: symmetric codes (-127 to 127 for 8 bits), one scale per output
channel or per layer.

Why neighbours matter. Without VNNI, x86 processors multiply int8 with the instruction `vpmaddubsw`:
it multiplies two neighbouring input channels (2i, 2i+1), unsigned activation times signed weight,
and adds the two products into *16 bits, saturating*. The sum is exact as long as 255 * (w0 + w1)
fits, that is, as long as the weights of one sign in a pair add up to at most 128. Many channels
have a pair with more. So when the scale of 8 bits is chosen, the sum of a pair counts like a
weight: divided by the scale it is at most 127. Rounded one by one, its two codes add up to at most
128, and the int8 kernels are exact on every processor.

Not every layer gets such a scale: one whose scales would grow by more than half keeps its own, and
learned rounding or training may choose other codes. Where kernels could saturate, such a layer is
computed in integers. Up to 7 bits every pair fits (63 + 63 = 126).

In a file, codes of fewer than 8 bits are packed without gaps: they become one stream of bits,
lowest bit first, in two's complement, cut into bytes; only the last byte may carry padding (zeros).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from helpers.quantization.affine import Affine, QuantizationError, choose, code_range
from helpers.quantization.plan import Plan, PlanOp, Recipe

PAIR_LIMIT = 128  # 255 * 128 = 32,640 fits into 16 bits, 255 * 129 does not
MOST_GROWTH = 1.5  # how much larger the scales of a layer may become to make its pairs fit
# The bounds that "mse" tries, as shares of a row's largest value.
SHARES = torch.linspace(0.4, 1.0, 61, dtype=torch.float64)
LARGEST_SUM = 2**30  # for the bias and for the products, each: together they fit int32


@dataclass
class LayerWeights:
    """The weights of one layer: int8 codes of `bits` bits; scale and bias are float32, one number
    per output channel.
    """

    codes: Tensor
    scale: Tensor
    bias: Tensor
    bits: int

    def decode(self) -> Tensor:
        """The float weights that the codes stand for."""
        return self.codes * per_row(self.scale, self.codes)

    def with_room_for_bias(self, source_scale: Tensor) -> "LayerWeights":
        """The same weights with scales so large that the bias fits int32.

        The bias is counted in units of input scale * weight scale. In a channel whose weights are
        almost 0, as pruning or training may leave them, this unit is too small for the bias. A
        channel without any weight may have any scale: it gets one in which its bias is 2^16.
        """
        has_weights = self.codes.flatten(1).any(1)
        largest_bias = torch.where(has_weights, LARGEST_SUM / 1.001, 2.0**16)
        least_scale = self.bias.double().abs() / (source_scale.double() * largest_bias)
        least_scale = torch.where(has_weights | (least_scale > 1e-12), least_scale, 1.0)
        scale = torch.maximum(self.scale.double() * has_weights, least_scale).float()
        codes = torch.round(self.codes * per_row(self.scale / scale, self.codes))
        return replace(self, codes=codes.to(torch.int8), scale=scale)


def per_row(scale: Tensor, weight: Tensor) -> Tensor:
    """Shape one number per output channel so that it broadcasts against the weight."""
    return scale.reshape(-1, *[1] * (weight.ndim - 1))


def nearest(weight: Tensor, scale: Tensor, bias: Tensor, bits: int) -> LayerWeights:
    """Round a weight to the nearest codes."""
    affine = Affine(scale, torch.tensor(0), bits, signed=True, axis=0)
    return LayerWeights(affine.quantize(weight), scale, bias, bits)


def encode_weights(plan: Plan, recipe: Recipe) -> dict[str, LayerWeights]:
    """Round the weights of every layer of a plan to the nearest code."""
    names = [op.name for op in plan.layers]
    if not names:
        raise QuantizationError(
            "no layer of the network has an integer form; Conv2d and Linear have one"
        )
    unknown = sorted({*recipe.layer_bits} - {*names})
    if unknown:
        raise QuantizationError(f"layer_bits: no layer is called {unknown}; the layers are {names}")
    return {op.name: encode_layer(op, recipe) for op in plan.layers}


def encode_layer(op: PlanOp, recipe: Recipe) -> LayerWeights:
    """Round the weights of one layer to the nearest code."""
    bits = recipe.bits_of(op.name)
    weight = op.weight.detach()
    n_scales = len(weight) if recipe.per_channel else 1
    rows = weight.double().reshape(n_scales, -1)
    largest = rows.abs().amax(1)
    if recipe.weight_observer == "mse":
        _, last = code_range(bits, signed=True)
        largest = _bounds_of_least_error(rows, largest, last)
    if bits == 8:
        sums = pair_sums(weight.double()).reshape(n_scales, -1).amax(1)
        with_pairs = torch.maximum(largest, sums)
        if with_pairs.sum() <= MOST_GROWTH * largest.sum():
            largest = with_pairs
    scale, _ = choose(-largest, largest, bits, signed=True)
    return nearest(weight, scale.expand(len(weight)), op.bias.detach().clone(), bits)


def _bounds_of_least_error(rows, largest, last):
    """For each row the bound to clip at that leaves the least squared error."""
    best_bound = largest
    least_error = torch.full_like(largest, torch.inf)
    smallest = torch.finfo(torch.float64).tiny
    for share in SHARES:
        bound = share * largest
        scale = (bound / last).clamp(min=smallest).unsqueeze(1)
        rounded = (rows / scale).round().clamp(-last, last) * scale
        error = (rounded - rows).square().sum(1)
        best_bound = torch.where(error <= least_error, bound, best_bound)
        least_error = torch.minimum(error, least_error)
    return best_bound


def pair_sums(weight: Tensor) -> Tensor:
    """For each pair (2i, 2i+1) of input channels, the larger sum of the weights of one sign."""
    if weight.shape[1] % 2:
        weight = torch.cat([weight, torch.zeros_like(weight[:, :1])], dim=1)
    pairs = weight.unflatten(1, (-1, 2))
    positive = pairs.clamp(min=0).sum(2)
    negative = pairs.clamp(max=0).sum(2)
    return torch.maximum(positive, -negative)


def pairs_fit(codes: Tensor) -> bool:
    """Whether no pair of codes can overflow 16 bits."""
    return int(pair_sums(codes.to(torch.int16)).max()) <= PAIR_LIMIT


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack signed integer codes of 2 to 8 bits, of any shape, into a row of bytes (uint8)."""
    signed = codes.reshape(-1, 1).to(torch.int16).numpy()
    bytes_ = signed.astype(np.uint8)  # two's complement wraps
    stream = np.unpackbits(bytes_, axis=1, count=bits, bitorder="little")
    return torch.from_numpy(np.packbits(stream, bitorder="little"))


def unpack(packed: Tensor, bits: int, shape: tuple[int, ...]) -> Tensor:
    """Undo `pack`: int8 codes of the given shape."""
    count = math.prod(shape)
    stream = np.unpackbits(packed.numpy().reshape(-1), count=count * bits, bitorder="little")
    bytes_ = np.packbits(stream.reshape(count, bits), axis=1, bitorder="little")
    # The highest bit of a code is its sign: shifted to the highest of the byte, it is repeated by
    # the shift back.
    unused = 8 - bits
    left = torch.from_numpy(bytes_).reshape(shape) << unused
    return left.view(torch.int8) >> unused
