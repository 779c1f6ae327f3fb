"""Affine quantization: one convention everywhere, x ~ scale * (code - zero_point).

`scale` is a positive float32, `zero_point` an integer inside the code range, so that the real
number 0 always has a code of its own (padding and ReLU depend on that). Codes are whole numbers of
2 to 8 bits:

    signed    -(2^(b-1) - 1) .. 2^(b-1) - 1, the same on both sides, kept in int8
    unsigned  0 .. 2^b - 1, kept in uint8 (codes above 127 would wrap in int8)

Rounding is half to even, as in the ONNX standard and in the int8 kernels:

    code = clamp(round(x / scale) + zero_point)

One pair (scale, zero_point) serves a whole tensor or one channel (`axis`).

**Fixed point.** The sum of a layer has the unit (input scale * weight scale), its output code the
unit (output scale). The factor between them, M = input scale * weight scale / output scale, becomes
a whole number and a shift:

    M ~ multiplier * 2^-shift        2^30 <= multiplier < 2^31, so that M keeps 31 significant bits

    code = round(sum * multiplier / 2^shift)        in 64-bit integers

Write the product as p = 2^shift * q + rest, and let half = 2^(shift - 1). Then the rounding is
(p + half - 1 + (q & 1)) >> shift: a rest below half stays below the next multiple, one above half
crosses it, and exactly half crosses it only when q is odd. (The shift rounds down, for negative p
too.)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST_SCALE = torch.finfo(torch.float32).tiny
LARGEST_SHIFT = 62


class QuantizationError(ValueError):
    """Something that cannot be quantized as asked: names the thing, the place and the remedy."""


def code_range(bits: int, signed: bool) -> tuple[int, int]:
    """The smallest and the largest code: -127 and 127 for 8 signed bits, 0 and 255 for unsigned."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= 8:
        raise QuantizationError(f"bits: expected a whole number from 2 to 8, got {bits!r}")
    last = 2 ** (bits - signed) - 1
    return -last * signed, last


def choose(low: Tensor, high: Tensor, bits: int, signed: bool = False) -> tuple[Tensor, Tensor]:
    """Scale (float32) and zero point (int32) for values from `low` to `high`, widened to take in 0.

        unsigned  scale = (high - low) / (last - first)    zero_point = round(first - low / scale)
        signed    scale = max(-low, high) / last           zero_point = 0

    Unsigned codes are asymmetric, signed ones symmetric. If both bounds are 0, the scale is 1.

    Example:
        >>> choose(torch.tensor(-1.0), torch.tensor(1.55), bits=8)
        (tensor(0.0100), tensor(100, dtype=torch.int32))
    """
    low = low.double().clamp(max=0)
    high = high.double().clamp(min=0)
    if not (torch.isfinite(low).all() and torch.isfinite(high).all()):
        raise QuantizationError(
            "range: a bound is NaN or infinite; look for the layer that overflows first"
        )
    first, last = code_range(bits, signed)
    width = torch.maximum(-low, high) / last if signed else (high - low) / (last - first)
    scale = torch.where(width > 0, width.clamp(min=SMALLEST_SCALE), 1.0).float()
    if signed:
        return scale, torch.zeros_like(scale, dtype=torch.int32)
    zero_point = (first - low / scale.double()).round().clamp(first, last)
    return scale, zero_point.to(torch.int32)


def decode(codes: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Codes to the real numbers that they stand for: scale * (code - zero_point)."""
    return (codes.to(torch.int32) - zero_point) * scale


@dataclass(frozen=True)
class Affine:
    """How one tensor is quantized.

    Scale and zero point are scalars, or (C,) along the channel dimension `axis`.
    """

    scale: Tensor
    zero_point: Tensor
    bits: int
    signed: bool
    axis: int | None = None

    @property
    def codes(self) -> tuple[int, int]:
        """The smallest and the largest code."""
        return code_range(self.bits, self.signed)

    def quantize(self, x: Tensor) -> Tensor:
        """Codes (int8 or uint8) of the shape of x; values outside the range saturate."""
        if torch.isnan(x).any():
            raise QuantizationError(
                f"quantize: a tensor of shape {tuple(x.shape)} holds NaN; repair it first"
            )
        scale, zero_point = self._spread(x)
        # Expanded to a tensor: a bfloat16 tensor divided by a scalar is rounded to bfloat16.
        codes = torch.round(x / scale.expand(x.shape)).add_(zero_point).clamp_(*self.codes)
        return codes.to(torch.int8 if self.signed else torch.uint8)

    def dequantize(self, codes: Tensor) -> Tensor:
        """The real numbers that the codes stand for."""
        return decode(codes, *self._spread(codes))

    def _spread(self, x):
        """Scale and zero point in a shape that broadcasts against x."""
        if self.axis is None:
            return self.scale, self.zero_point
        shape = [1] * x.ndim
        shape[self.axis] = -1
        return self.scale.reshape(shape), self.zero_point.reshape(shape)


def fit(x: Tensor, bits: int = 8, signed: bool = True, axis: int | None = None) -> Affine:
    """Parameters that cover the whole range of x (the min-max rule), or of each index along `axis`.

    Example:
        >>> affine = fit(torch.tensor([-1.27, 0.0, 0.5]))
        >>> affine.quantize(torch.tensor([-1.27, 0.0, 0.5, 9.0])).tolist()
        [-127, 0, 50, 127]
    """
    if axis is None:
        low, high = torch.aminmax(x)
    else:
        low, high = torch.aminmax(x.movedim(axis, 0).reshape(x.shape[axis], -1), dim=1)
    return Affine(*choose(low, high, bits, signed), bits, signed, axis)


def sqnr(reference: Tensor, approximation: Tensor) -> float:
    """Signal to quantization noise in decibels; a bit is worth about 6 dB.

    10 log10(sum reference^2 / sum error^2)
    """
    noise = (reference.double() - approximation.double()).square().sum()
    return float(10 * torch.log10(reference.double().square().sum() / noise))


def fixed_point(factor: Tensor, *others: Tensor) -> tuple[list[Tensor], Tensor]:
    """Multipliers (int64) and their common shift for a sum of term_i * factor_i with one rounding.

    Args:
        factor: for a term that may reach 2^31 (the sums of a layer); float64, 0 < factor < 2^29,
            any shape.
        others: for terms that may reach 2^8 (codes). The shift is kept so small that every product
            fits 62 bits; a factor that would need a larger shift keeps fewer bits.
    """
    largest_shift = LARGEST_SHIFT
    for other in others:
        exponent = int(torch.frexp(other.amax()).exponent)
        largest_shift = min(largest_shift, 52 - exponent)
    if largest_shift < 1 or not ((factor > 0) & (factor < 2.0**29)).all():
        raise QuantizationError(
            f"fixed point: factors from {factor.min():.3g} to {factor.max():.3g} lie outside"
            " (0, 2^29), or a second factor is too large: the scales do not fit together"
        )
    shift = (31 - torch.frexp(factor).exponent.long()).clamp(max=largest_shift)
    multiplier = torch.ldexp(factor, shift).round().long()
    rounded_up = multiplier == 2**31  # 0.99999999999 became 1.0
    multiplier = torch.where(rounded_up, multiplier // 2, multiplier)
    shift = shift - rounded_up.long()
    multipliers = [torch.ldexp(other.expand_as(shift), shift).round().long() for other in others]
    return [multiplier, *multipliers], shift


def round_shift(product: Tensor, shift: Tensor) -> Tensor:
    """round(product / 2^shift), ties to even; the product, 64-bit integers, is overwritten.

    Example:
        >>> round_shift(torch.tensor([1, 2, 3, 5, -1, -3]), torch.tensor(1)).tolist()
        [0, 1, 2, 2, 0, -2]
    """
    odd = (product >> shift).bitwise_and_(1)
    half = torch.ones_like(shift) << (shift - 1)
    return product.add_(odd).add_(half - 1).bitwise_right_shift_(shift)
