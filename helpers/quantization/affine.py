"""Affine quantization: one convention everywhere, x ~ scale * (code - zero_point).

`scale` is a positive float32, `zero_point` an integer inside the code range, so that the real number 0 always has a
code of its own (padding and ReLU depend on that). Codes are whole numbers of 2 to 8 bits:

    signed    -2^(b-1) .. 2^(b-1) - 1, kept in int8; narrow: -(2^(b-1) - 1) .. 2^(b-1) - 1, the same on both sides
    unsigned  0 .. 2^b - 1,            kept in uint8 (codes above 127 would wrap in int8)

Rounding is half to even, as in the ONNX standard and in the int8 kernels: code = clamp(round(x / scale) + zero_point).
One pair (scale, zero_point) serves a whole tensor or one channel (`axis`).
"""

from dataclasses import dataclass

import torch

_SMALLEST_SCALE = torch.finfo(torch.float32).tiny


class QuantizationError(ValueError):
    """Something that cannot be quantized as asked: names the thing, the place and the remedy."""


def code_range(bits: int, signed: bool, narrow: bool = False) -> tuple[int, int]:
    """The smallest and the largest code: -128 and 127 for 8 signed bits."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= 8:
        raise QuantizationError(f"bits: expected a whole number from 2 to 8, got {bits!r}")
    if not signed:
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1


def choose(
    low: torch.Tensor, high: torch.Tensor, bits: int, signed: bool = False, symmetric: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale (float32) and zero point (int32) for values between `low` and `high`, which are widened to take in 0.

        asymmetric  scale = (high - low) / (last - first)    zero_point = round(first - low / scale)
        symmetric   scale = max(-low, high) / last           zero_point = 0 (signed, narrow codes)

    A range that is only 0 gets scale 1.

    Example:
        >>> choose(torch.tensor(-1.0), torch.tensor(1.55), bits=8)
        (tensor(0.0100), tensor(100, dtype=torch.int32))
    """
    if symmetric and not signed:
        raise QuantizationError("symmetric codes are signed: pass signed=True, or symmetric=False")
    low, high = low.double().clamp(max=0), high.double().clamp(min=0)
    if not (torch.isfinite(low).all() and torch.isfinite(high).all()):
        raise QuantizationError("range: a bound is NaN or infinite; look for the layer that overflows first")
    first, last = code_range(bits, signed, narrow=symmetric)
    width = torch.maximum(-low, high) / last if symmetric else (high - low) / (last - first)
    scale = torch.where(width > 0, width.clamp(min=_SMALLEST_SCALE), 1.0).float()
    if symmetric:
        return scale, torch.zeros_like(scale, dtype=torch.int32)
    zero_point = (first - low / scale.double()).round().clamp(first, last)
    return scale, zero_point.to(torch.int32)


def decode(codes: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
    """Codes to the real numbers that they stand for: scale * (code - zero_point)."""
    return (codes.to(torch.int32) - zero_point) * scale


@dataclass(frozen=True)
class Affine:
    """How one tensor is quantized; scale and zero point are scalars, or (C,) along the channel dimension `axis`."""

    scale: torch.Tensor
    zero_point: torch.Tensor
    bits: int
    signed: bool
    narrow: bool = False
    axis: int | None = None

    @property
    def codes(self) -> tuple[int, int]:
        """The smallest and the largest code."""
        return code_range(self.bits, self.signed, self.narrow)

    def quantize(self, x: torch.Tensor) -> torch.Tensor:
        """Codes (int8 or uint8) of the shape of x; values outside the range saturate, NaN is refused."""
        if torch.isnan(x).any():
            raise QuantizationError(f"quantize: a tensor of shape {tuple(x.shape)} holds NaN; repair it first")
        scale, zero_point = self._spread(x)
        codes = torch.round(x / scale).add_(zero_point).clamp_(*self.codes)
        return codes.to(torch.int8 if self.signed else torch.uint8)

    def dequantize(self, codes: torch.Tensor) -> torch.Tensor:
        """The real numbers that the codes stand for."""
        return decode(codes, *self._spread(codes))

    def _spread(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale and zero point in a shape that broadcasts against x."""
        if self.axis is None:
            return self.scale, self.zero_point
        shape = [-1 if d == self.axis % x.ndim else 1 for d in range(x.ndim)]
        return self.scale.reshape(shape), self.zero_point.reshape(shape)


def fit(x: torch.Tensor, bits: int = 8, signed: bool = True, symmetric: bool = True, axis: int | None = None) -> Affine:
    """Parameters that cover the whole range of x (the min-max rule), or of each index along the dimension `axis`.

    Example:
        >>> affine = fit(torch.tensor([-1.27, 0.0, 0.5]))
        >>> affine.quantize(torch.tensor([-1.27, 0.0, 0.5, 9.0])).tolist()
        [-127, 0, 50, 127]
    """
    if x.numel() == 0 or not x.is_floating_point() or not torch.isfinite(x).all():
        raise QuantizationError(
            f"fit: a tensor of shape {tuple(x.shape)} and type {x.dtype} is empty, not floating, or holds NaN or "
            "infinity; check the checkpoint or the images that it came from"
        )
    bounds = torch.aminmax(x) if axis is None else torch.aminmax(x.movedim(axis, 0).reshape(x.shape[axis], -1), dim=1)
    return Affine(*choose(*bounds, bits, signed, symmetric), bits, signed, narrow=symmetric, axis=axis)


def sqnr(reference: torch.Tensor, approximation: torch.Tensor) -> float:
    """Signal to quantization noise in decibels, 10 log10(sum reference^2 / sum error^2); a bit is worth about 6 dB."""
    reference = reference.double()
    noise = (reference - approximation.double()).square().sum()
    return float(10 * torch.log10(reference.square().sum() / noise))
