import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.quantization import Affine, QuantizationError, Recipe
from helpers.quantization.affine import choose, code_range, fit, fixed_point, round_shift, sqnr


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 8), st.floats(-1e6, 1e6), st.floats(0, 1e6), st.booleans())
def test_zero_is_exact_and_the_error_at_most_half_a_step(bits, low, width, signed):
    x = torch.linspace(low, low + width, 97)
    affine = fit(x, bits, signed)
    first, last = affine.codes
    assert first <= affine.zero_point <= last
    assert affine.dequantize(affine.quantize(torch.zeros(1))).item() == 0.0
    error = (affine.dequantize(affine.quantize(x)) - x).double().abs().max()
    # asymmetric: the zero point is rounded too, so an end of the range may be half a step further
    # out
    assert error <= affine.scale.double() * 1.001 * (0.5 if signed else 1.0) + 1e-6 * x.abs().max()


def test_asymmetric_worked_example():
    scale, zero_point = choose(torch.tensor(-1.0), torch.tensor(1.55), bits=8)
    assert (scale.item(), zero_point.item()) == (pytest.approx(0.01), 100)
    affine = Affine(torch.tensor(0.01), zero_point, 8, signed=False)
    codes = affine.quantize(torch.tensor([-math.inf, -1.0, 0.0, 0.005, 0.015, 1.55, 9.0]))
    assert codes.tolist() == [0, 0, 100, 100, 102, 255, 255]  # 0.5 and 1.5 go to the even neighbour
    assert codes.dtype == torch.uint8
    for x in (
        torch.randn(1000).half(),
        torch.randn(1000).bfloat16(),
    ):  # the quotient is not rounded to that dtype
        assert torch.equal(affine.quantize(x), affine.quantize(x.float()))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_each_channel_gets_what_it_would_get_alone(axis):
    x = torch.randn(3, 4, 5) * torch.rand(3, 4, 5).exp()
    affine = fit(x, bits=6, axis=axis)
    codes = affine.quantize(x)
    for i in range(x.shape[axis]):
        assert torch.equal(
            codes.select(axis, i), fit(x.select(axis, i), bits=6).quantize(x.select(axis, i))
        )
    assert torch.equal(affine.quantize(affine.dequantize(codes)), codes)


@pytest.mark.parametrize("value", [1e-38, 1e-45, 3e38])
def test_extreme_magnitudes(value):
    x = torch.tensor([-value, value])
    affine = fit(x)
    assert torch.isfinite(affine.scale) and affine.scale > 0
    assert torch.isfinite(affine.dequantize(affine.quantize(x))).all()


NAN, INF, ONE = torch.tensor([1.0, math.nan]), torch.tensor([math.inf]), torch.tensor(1.0)
WRONG_BITS = [{"weight_bits": 1}, {"activation_bits": 9}, {"layer_bits": {"fc": 0}}]
CHOICES = ["observer", "weight_observer", "residual", "rounding"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((lambda x=x: fit(x), "a bound is NaN or infinite") for x in (NAN, INF)),
        *((lambda b=b: code_range(b, True), "from 2 to 8") for b in (1, 9, 0, -3, 8.0, True, None)),
        *((lambda choice=choice: Recipe(**choice), "from 2 to 8") for choice in WRONG_BITS),
        *((lambda name=name: Recipe(**{name: "nonsense"}), name) for name in CHOICES),
        (lambda: Affine(ONE, torch.tensor(0), 8, signed=True).quantize(NAN), "holds NaN"),
        (lambda: choose(-ONE, INF, 8), "overflows"),
        *((lambda f=f: parts(f), "scales") for f in (0.0, -1.0, math.nan, math.inf, 2.0**30)),
    ],
)
def test_refusals(call, message):
    with pytest.raises(QuantizationError, match=message):
        call()


def test_sqnr_is_six_decibels_a_bit():
    x = torch.rand(20000) * 2 - 1
    levels = [sqnr(x, (a := fit(x, bits)).dequantize(a.quantize(x))) for bits in (4, 6, 8)]
    assert levels[1] - levels[0] == pytest.approx(12, abs=1)
    assert levels[2] - levels[1] == pytest.approx(12, abs=1)
    assert sqnr(x, x) == math.inf


SUMS = st.integers(-(2**31) + 1, 2**31 - 1)


def parts(*factors):
    multipliers, shift = fixed_point(
        *(torch.tensor([factor], dtype=torch.float64) for factor in factors)
    )
    return [multiplier.item() for multiplier in multipliers], shift


@settings(max_examples=300, deadline=None, derandomize=True)
@given(total=SUMS, factor=st.floats(2.0**-40, 2.0**20))
def test_rescale_is_the_exact_rounded_product_with_31_bits_of_the_factor(total, factor):
    (multiplier,), shift = parts(factor)
    kept = Fraction(multiplier, 2 ** shift.item())
    assert round_shift(torch.tensor([total * multiplier]), shift).item() == round(total * kept)
    assert (2**30 <= multiplier < 2**31 and shift >= 1) or shift == 62
    assert shift == 62 or abs(kept - Fraction(factor)) <= Fraction(factor) / 2**31


@pytest.mark.parametrize("shift", [1, 2, 31])
def test_ties_go_to_the_even_neighbour(shift):
    product = torch.tensor([2 ** (shift - 1) * odd for odd in (-5, -3, -1, 1, 3, 5)])
    assert round_shift(product, torch.tensor(shift)).tolist() == [-2, -2, 0, 0, 2, 2]


def test_largest_sums_do_not_overflow():
    (multiplier,), shift = parts(1 - 2.0**-40)  # rounds up to 1
    assert (multiplier, shift.item()) == (2**30, 30)
    largest = torch.tensor([2**31 - 1, -(2**31)])
    assert round_shift(largest * multiplier, shift).tolist() == largest.tolist()


@pytest.mark.parametrize("factors", [(2.0**29,), (0.0,), (1.0, 2.0**51)])
def test_factors_that_no_shift_fits_are_refused(factors):
    with pytest.raises(
        QuantizationError, match=r"fixed point: factors .* or a second factor is too large"
    ):
        parts(*factors)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    total=SUMS,
    code=st.integers(-255, 255),
    first=st.floats(2.0**-60, 2.0),
    second=st.floats(2.0**-8, 2.0**10),
)
def test_terms_meet_before_the_rounding_without_overflow(total, code, first, second):
    (m1, m2), shift = parts(first, second)
    assert abs(total * m1) + abs(code * m2) + 2 ** shift.item() < 2**63
    assert abs(Fraction(m2, 2 ** shift.item()) - Fraction(second)) <= Fraction(second) / 2**20
