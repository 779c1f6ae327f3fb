import math

import pytest
import torch

from helpers.checks.compare import Tolerance, difference

T = torch.tensor


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, 1.0),
        (T([1.0, 2.0]), T([1.0, 2.0 + 1e-9])),
        (T([1.0]), T([1.0], dtype=torch.float64)),
        (T(3.0), 3.0),
        ({"a": [1, None, "x", True]}, {"a": (1, None, "x", True)}),
        (T([math.inf, math.nan]), T([math.inf, math.nan])),
        (torch.zeros(0), torch.zeros(0)),
    ],
)
def test_equal_answers_have_no_difference(expected, got):
    assert difference(expected, got) is None


@pytest.mark.parametrize(
    ("expected", "got", "says"),
    [
        (1.0, 1.1, "differs by 0.1"),
        (1.0, math.nan, "not finite"),
        (1.0, True, "True or False"),
        (True, 1, "a number"),
        (T([1.0, 2.0]), T([[1.0, 2.0]]), "shape (2,)"),
        (T([1.0]), T([1]), "int64"),
        (T([1]), T([1.0]), "float32"),
        (T([1]), T([1 + 1j]), "complex64"),
        (T(1.0), 1, "but is 1"),
        (T(1), 1.0, "but is 1.0"),
        (T([1.0]), [1.0], "a list"),
        (T([1.0, 2.0]), T([1.0, math.nan]), "not finite"),
        (T([1.0, 2.0]), T([1.0, math.inf]), "not finite"),
        (T([math.inf]), T([-math.inf]), "not finite"),
        ([1, 2], [1], "2 parts"),
        ([1], [1, 2], "1 parts"),
        ([1], {"0": 1}, "a list"),
        ({"a": 1}, {"b": 1}, "entries"),
        ({"a": 1}, {"a": 1, "b": 1}, "entries"),
        ({"a": 1, "b": 1}, {"a": 1}, "entries"),
        ({"a": 1}, [1], "dictionary"),
        ("fold", "keep", "not right"),
        (None, 0, "None"),
        ([1], None, "is a return missing?"),
        ({"a": [T([1.0]), 2]}, {"a": [T([1.0]), 3]}, 'the answer["a"][1] differs'),
    ],
)
def test_a_difference_is_named(expected, got, says):
    assert says in difference(expected, got)


EXACT = Tolerance(relative=0.0, absolute=0.0)


@pytest.mark.parametrize("large", [2**24 + 1, 2**53 + 1, -(2**63) + 1])
def test_large_integers_are_compared_exactly(large):
    for wrap in (int, T, lambda value: [value], lambda value: T([0, value])):
        assert difference(wrap(large), wrap(large), EXACT) is None
        for wrong in (large - 1, large + 1):
            assert "differs by 1" in difference(wrap(large), wrap(wrong), EXACT)
    assert "differs by 1" in difference(T(large), large + 1, EXACT)
    assert difference(T(large), large, EXACT) is None


def test_integers_of_any_size_and_type_have_a_difference_in_words():
    assert "differs by inf" in difference(1, 10**400)
    assert "not finite" in difference(1.0, -(10**400))
    assert "differs by 1.84e+19" in difference(T(-(2**63)), T(2**63 - 1))
    assert "differs by 1.84e+19" in difference(T([-1]), T([2**64 - 1], dtype=torch.uint64))
    assert difference(T(2**62), T(2**62 + 1), Tolerance(absolute=1.0)) is None
    assert "differs by 2 " in difference(T(2**62), T(2**62 + 2), Tolerance(relative=0.0, absolute=1.0))


def test_numbers_are_compared_in_double_precision():
    assert difference(0.1, 0.1 + 1e-12, EXACT) is not None
    assert difference(T(0.1, dtype=torch.float64), 0.1 + 1e-12, EXACT) is not None


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_tolerance_is_relative_to_the_largest_value(scale):
    expected = T([1.0, 0.0], dtype=torch.float64) * scale
    tolerance = Tolerance(relative=1e-3, absolute=0.0)
    assert difference(expected, expected + 0.9e-3 * scale, tolerance) is None
    assert difference(expected, expected + 1.1e-3 * scale, tolerance) is not None


def test_what_is_allowed_follows_from_the_right_answer_and_not_from_the_given_one():
    expected, tolerance = T([1.0], dtype=torch.float64), Tolerance(relative=1e-3, absolute=0.0)
    assert difference(expected, expected + 1.0005e-3, tolerance) is not None
    assert difference(10**6, 10**6 + 1001, tolerance) is not None
    assert difference(10**6, 10**6 + 1000, tolerance) is None
