"""Multiplying an integer by a real factor without floating point.

The sum of a layer has the unit (input scale * weight scale), its output code the unit (output scale). The factor
between them, M = input scale * weight scale / output scale, becomes a whole number and a shift:

    M ~ multiplier * 2^-shift        2^30 <= multiplier < 2^31, so that M keeps 31 significant bits

    rescale(sum) = round(sum * multiplier / 2^shift)        in 64-bit integers

One rounding is used everywhere: to nearest, ties to even, as in the ONNX standard and in the int8 kernels. With the
product p = 2^shift * q + rest it is (p + half - 1 + (q & 1)) >> shift: a rest below half stays below the next multiple,
one above half crosses it, and exactly half crosses it only when q is odd. (The shift rounds down, for negative p too.)
"""

import torch

from helpers.quantization.affine import QuantizationError

__all__ = ["FixedPointError", "combine", "fixed_point", "rescale", "round_shift", "same_point"]

LARGEST_SHIFT = 62


class FixedPointError(QuantizationError):
    """A factor that has no fixed-point form."""


def fixed_point(factor: torch.Tensor, largest_shift: int = LARGEST_SHIFT) -> tuple[torch.Tensor, torch.Tensor]:
    """Write positive real factors as multiplier and shift.

    Args:
        factor: float64, 0 < factor < 2^30; any shape.
        largest_shift: a factor so small that it would need a larger shift keeps fewer bits instead.

    Returns:
        multiplier and shift, int64.

    Example:
        >>> multiplier, shift = fixed_point(torch.tensor(0.75, dtype=torch.float64))
        >>> multiplier.item() / 2 ** shift.item()
        0.75
    """
    factor = factor.double()
    if not ((factor > 0) & (factor < 2.0**30)).all():
        raise FixedPointError(
            f"fixed point: factors from {factor.min():.3g} to {factor.max():.3g} lie outside (0, 2^30); "
            "the scales before and after this layer do not belong together"
        )
    _, exponent = torch.frexp(factor)
    shift = (31 - exponent.long()).clamp(max=largest_shift)
    multiplier = torch.ldexp(factor, shift).round().long()
    rounded_up = multiplier == 2**31  # 0.99999999999 became 1.0
    return torch.where(rounded_up, multiplier // 2, multiplier), shift - rounded_up.long()


def same_point(factor: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """The multiplier of a second factor at a given shift, so that both products can be added before the rounding."""
    return torch.ldexp(factor.double().expand_as(shift), shift).round().long()


def rescale(total: torch.Tensor, multiplier: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """round(total * multiplier / 2^shift), ties to even; |total| < 2^31.

    Example:
        >>> rescale(torch.tensor([1, 2, 3, 5, -1, -3]), torch.tensor(2**30), torch.tensor(31)).tolist()
        [0, 1, 2, 2, 0, -2]
    """
    return round_shift(total.long() * multiplier, shift)


def round_shift(product: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """round(product / 2^shift), ties to even; the product is overwritten."""
    odd = (product >> shift).bitwise_and_(1)
    half = torch.ones_like(shift) << (shift - 1)
    return product.add_(odd).add_(half - 1).bitwise_right_shift_(shift)


def combine(factors: list[torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Multipliers for several terms that are added before one rounding: sum of term_i * factor_i.

    The first term may reach 2^31 (the sums of a layer), the others 2^8 (codes). The shift is the largest one at which
    no product leaves 62 bits.

    Returns:
        One multiplier per factor, and their common shift.
    """
    first, *others = factors
    room = LARGEST_SHIFT
    if others:
        _, exponent = torch.frexp(torch.stack([factor.amax() for factor in others]).amax())
        room = min(room, 52 - int(exponent))
    multiplier, shift = fixed_point(first, room)
    return [multiplier, *(same_point(factor, shift) for factor in others)], shift
