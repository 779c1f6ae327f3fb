from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.quantization.fixed_point import FixedPointError, fixed_point, round_shift

SUMS = st.integers(-(2**31) + 1, 2**31 - 1)
FACTORS = st.floats(2.0**-40, 2.0**20)


@settings(max_examples=300, deadline=None)
@given(total=SUMS, factor=FACTORS)
def test_rescale_is_the_exact_rounded_product(total, factor):
    (multiplier,), shift = fixed_point(torch.tensor(factor, dtype=torch.float64))
    exact = round(Fraction(total) * Fraction(multiplier.item(), 2 ** shift.item()))
    assert round_shift(total * multiplier, shift).item() == exact


@settings(max_examples=200, deadline=None)
@given(factor=FACTORS)
def test_31_bits_are_kept(factor):
    (multiplier,), shift = fixed_point(torch.tensor(factor, dtype=torch.float64))
    multiplier, shift = multiplier.item(), shift.item()
    assert (2**30 <= multiplier < 2**31 and shift >= 1) or shift == 62
    if shift < 62:
        assert abs(Fraction(multiplier, 2**shift) - Fraction(factor)) <= Fraction(factor) / 2**31


@pytest.mark.parametrize("shift", [1, 2, 31])
def test_ties_go_to_the_even_neighbour(shift):
    half = 2 ** (shift - 1)
    product = torch.tensor([half * odd for odd in (-5, -3, -1, 1, 3, 5)])
    assert round_shift(product, torch.tensor(shift)).tolist() == [-2, -2, 0, 0, 2, 2]


def test_largest_sums_do_not_overflow():
    (multiplier,), shift = fixed_point(torch.tensor(1 - 2.0**-40, dtype=torch.float64))  # rounds up to 1
    assert (multiplier.item(), shift.item()) == (2**30, 30)
    largest = torch.tensor([2**31 - 1, -(2**31)])
    assert round_shift(largest * multiplier, shift).tolist() == largest.tolist()


@settings(max_examples=200, deadline=None)
@given(total=SUMS, code=st.integers(-255, 255), first=st.floats(2.0**-60, 2.0), second=st.floats(2.0**-8, 2.0**10))
def test_terms_meet_before_the_rounding_without_overflow(total, code, first, second):
    factors = [torch.tensor([value], dtype=torch.float64) for value in (first, second)]
    (m1, m2), shift = fixed_point(*factors)
    m1, m2, shift = m1.item(), m2.item(), shift.item()
    assert abs(total * m1) + abs(code * m2) + 2**shift < 2**63
    assert abs(Fraction(m2, 2**shift) - Fraction(second)) <= Fraction(second) / 2**20


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 2.0**30])
def test_refuses_factors_without_a_form(factor):
    with pytest.raises(FixedPointError, match="scales"):
        fixed_point(torch.tensor(factor, dtype=torch.float64))
