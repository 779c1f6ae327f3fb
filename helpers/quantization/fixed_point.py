"""Multiplying an integer by a real factor without floating point.

The sum of a layer has the unit (input scale * weight scale), its output code the unit (output scale). The factor
between them, M = input scale * weight scale / output scale, becomes a whole number and a shift:

    M ~ multiplier * 2^-shift        2^30 <= multiplier < 2^31, so that M keeps 31 significant bits

    code = round(sum * multiplier / 2^shift)        in 64-bit integers

One rounding is used everywhere: to nearest, ties to even, as in the ONNX standard and in the int8 kernels. With the
product p = 2^shift * q + rest it is (p + half - 1 + (q & 1)) >> shift: a rest below half stays below the next multiple,
one above half crosses it, and exactly half crosses it only when q is odd. (The shift rounds down, for negative p too.)
"""

import torch

from helpers.quantization.affine import QuantizationError

LARGEST_SHIFT = 62


def fixed_point(factor: torch.Tensor, *others: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Multipliers (int64) and a common shift for terms that are added before one rounding: sum of term_i * factor_i.

    Args:
        factor: of a term that may reach 2^31 (the sums of a layer); float64, 0 < factor < 2^30, any shape.
        others: of terms that may reach 2^8 (codes). The shift is so small that no product leaves 62 bits; a factor for
            which it would have to be larger keeps fewer bits.

    Example:
        >>> (multiplier,), shift = fixed_point(torch.tensor(0.75, dtype=torch.float64))
        >>> multiplier.item() / 2 ** shift.item()
        0.75
    """
    if not ((factor > 0) & (factor < 2.0**30)).all():
        raise QuantizationError(
            f"fixed point: factors from {factor.min():.3g} to {factor.max():.3g} lie outside (0, 2^30); "
            "the scales before and after this layer do not belong together"
        )
    room = min([LARGEST_SHIFT, *(52 - int(torch.frexp(other.amax()).exponent) for other in others)])
    shift = (31 - torch.frexp(factor).exponent.long()).clamp(max=room)
    multiplier = torch.ldexp(factor, shift).round().long()
    rounded_up = multiplier == 2**31  # 0.99999999999 became 1.0
    multiplier, shift = torch.where(rounded_up, multiplier // 2, multiplier), shift - rounded_up.long()
    return [multiplier, *(torch.ldexp(other.expand_as(shift), shift).round().long() for other in others)], shift


def round_shift(product: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """round(product / 2^shift), ties to even; the product, 64-bit integers, is overwritten.

    Example:
        >>> round_shift(torch.tensor([1, 2, 3, 5, -1, -3]), torch.tensor(1)).tolist()
        [0, 1, 2, 2, 0, -2]
    """
    odd = (product >> shift).bitwise_and_(1)
    half = torch.ones_like(shift) << (shift - 1)
    return product.add_(odd).add_(half - 1).bitwise_right_shift_(shift)
