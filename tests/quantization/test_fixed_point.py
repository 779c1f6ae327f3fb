from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.quantization.affine import QuantizationError, fixed_point, round_shift

SUMS = st.integers(-(2**31) + 1, 2**31 - 1)


def parts(*factors):
    multipliers, shift = fixed_point(*(torch.tensor([factor], dtype=torch.float64) for factor in factors))
    return [multiplier.item() for multiplier in multipliers], shift


@settings(max_examples=300, deadline=None)
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


@settings(max_examples=200, deadline=None)
@given(total=SUMS, code=st.integers(-255, 255), first=st.floats(2.0**-60, 2.0), second=st.floats(2.0**-8, 2.0**10))
def test_terms_meet_before_the_rounding_without_overflow(total, code, first, second):
    (m1, m2), shift = parts(first, second)
    assert abs(total * m1) + abs(code * m2) + 2 ** shift.item() < 2**63
    assert abs(Fraction(m2, 2 ** shift.item()) - Fraction(second)) <= Fraction(second) / 2**20


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 2.0**30])
def test_refuses_factors_without_a_form(factor):
    with pytest.raises(QuantizationError, match="scales"):
        parts(factor)
