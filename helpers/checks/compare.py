"""Compare two answers and say in words where they differ.

An answer is a tree of dictionaries, lists, tensors, numbers, strings, booleans and None. Whole numbers are
compared as such: no float holds every integer.
This file knows no exercise, so it travels with the student's bundle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Tolerance:
    """Numbers agree when |got - expected| <= absolute + relative * max|expected|."""

    relative: float = 1e-6
    absolute: float = 1e-9


def difference(expected: Any, got: Any, tolerance: Tolerance | None = None, where: str = "the answer") -> str | None:
    """Return None when the two answers agree, else one sentence that names the first place where they differ.

    Args:
        expected: the right answer.
        got: what was handed in; it may be anything at all.
        tolerance: how far numbers may lie apart.
        where: how to name this part of the answer.

    Example:
        >>> difference({"a": 1.0}, {"a": 2.0})
        'the answer["a"] differs by 1 where at most 1e-06 is allowed'
    """
    found = _first_difference(expected, got, tolerance or Tolerance(), where)
    return found and found[0]


def expected_and_got(expected: Any, got: Any, tolerance: Tolerance | None = None) -> str | None:
    """The first value that differs, in both answers; None where the difference is not one of values."""
    found = _first_difference(expected, got, tolerance or Tolerance(), "")
    return found and found[1]


def _first_difference(expected: Any, got: Any, tolerance: Tolerance, where: str) -> tuple[str, str | None] | None:
    """What differs first in a tree: in words, and as values where both are of one kind."""
    if got is None and expected is not None:
        return f"{where} should be {_kind(expected)}, but is None: is a return missing?", None
    if isinstance(expected, dict):
        if not isinstance(got, dict):
            return f"{where} should be a dictionary, but is {_kind(got)}", None
        if set(expected) != set(got):
            return f"{where} should have the entries {_names(expected)}, but has {_names(got)}", None
        parts = [(f'{where}["{key}"]', expected[key], got[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        if not isinstance(got, list | tuple):
            return f"{where} should be a list or tuple of {len(expected)} parts, but is {_kind(got)}", None
        if len(expected) != len(got):
            return f"{where} should have {len(expected)} parts, but has {len(got)}", None
        parts = [(f"{where}[{i}]", e, g) for i, (e, g) in enumerate(zip(expected, got, strict=True))]
    else:
        return _difference_of_values(expected, got, tolerance, where)
    found = (_first_difference(e, g, tolerance, place) for place, e, g in parts)
    return next(filter(None, found), None)


def _difference_of_values(expected: Any, got: Any, tolerance: Tolerance, where: str) -> tuple[str, str | None] | None:
    if isinstance(expected, torch.Tensor):
        if expected.ndim == 0 and _is_number(got):
            if expected.is_floating_point() != isinstance(got, float):
                return f"{where} should hold numbers like {expected.dtype}, but is {_short(got)}", None
            return _difference_of_numbers([expected.item()], [got], (), tolerance, where)
        if not isinstance(got, torch.Tensor):
            return f"{where} should be a tensor, but is {_kind(got)}", None
        if expected.shape != got.shape:
            return f"{where} should have shape {tuple(expected.shape)}, but has {tuple(got.shape)}", None
        if expected.is_floating_point() != got.is_floating_point() or got.is_complex():
            return f"{where} should hold numbers like {expected.dtype}, but holds {got.dtype}", None
        return _difference_of_numbers(
            *(t.flatten().tolist() for t in (expected, got)), expected.shape, tolerance, where
        )
    values = f"expected {_short(expected)}, got {_short(got)}"
    if _is_number(expected) and _is_number(got):
        return _difference_of_numbers([expected], [got], (), tolerance, where)
    if type(expected) is not type(got):
        return f"{where} should be {_kind(expected)}, but is {_kind(got)}", None
    return (f"{where} is {_short(got)}, which is not right", values) if expected != got else None


def _difference_of_numbers(
    expected: list, got: list, shape: tuple[int, ...], tolerance: Tolerance, where: str
) -> tuple[str, str] | None:
    """The largest distance in words, and the first pair that lies too far apart."""
    if not all(isinstance(value, int) for value in (*expected, *got)):
        expected, got = (list(map(_double, values)) for values in (expected, got))
    # Infinite or undefined numbers must match exactly; nan counts as equal to nan.
    same = [e == g or (e != e and g != g) for e, g in zip(expected, got, strict=True)]
    apart = [0 if s else abs(e - g) for s, e, g in zip(same, expected, got, strict=True)]
    allowed = tolerance.absolute + tolerance.relative * max((abs(e) for e in expected if _is_finite(e)), default=0)
    first = next((place for place, distance in enumerate(apart) if not distance <= allowed), None)
    if first is None:
        return None
    index = [int(i) for i in torch.unravel_index(torch.tensor(first), shape)]
    values = f"{f'at {index}: ' if index else ''}expected {_number(expected[first])}, got {_number(got[first])}"
    if not all(map(_is_finite, apart)):
        return f"{where} holds values that are not finite", values
    bound = "" if isinstance(apart[first], int) and allowed < 1 else f" where at most {allowed:.3g} is allowed"
    return f"{where} differs by {_double(max(apart)):.3g}{bound}", values


def _number(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _short(value)


def _is_finite(value: float) -> bool:
    return isinstance(value, int) or math.isfinite(value)


def _double(value: float) -> float:
    """A number in double precision; an integer that is too large for it becomes infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    names = {type(None): "None", bool: "True or False", int: "a number", float: "a number", str: "a text"}
    return names.get(type(value), f"a {type(value).__name__}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _names(tree: dict) -> str:
    return _short(sorted(str(key) for key in tree))
