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
    tolerance = tolerance or Tolerance()
    if got is None and expected is not None:
        return f"{where} should be {_kind(expected)}, but is None: is a return missing?"
    if isinstance(expected, dict):
        return _difference_of_dicts(expected, got, tolerance, where)
    if isinstance(expected, list | tuple):
        return _difference_of_lists(expected, got, tolerance, where)
    if isinstance(expected, torch.Tensor):
        return _difference_of_tensors(expected, got, tolerance, where)
    if _is_number(expected) and _is_number(got):
        return _difference_of_scalars(expected, got, tolerance, where)
    if type(expected) is not type(got):
        return f"{where} should be {_kind(expected)}, but is {_kind(got)}"
    if expected != got:
        return f"{where} is {_short(got)}, which is not right"
    return None


def expected_and_got(expected: Any, got: Any, tolerance: Tolerance | None = None) -> str | None:
    """The first value that differs, in both answers; None where the difference is not one of values."""
    tolerance = tolerance or Tolerance()
    if isinstance(expected, dict | list | tuple) and type(expected) is type(got) and len(expected) == len(got):
        keys = expected if isinstance(expected, dict) else range(len(expected))
        wrong = (key for key in keys if difference(expected[key], got[key], tolerance))
        return next((expected_and_got(expected[key], got[key], tolerance) for key in wrong), None)
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        return _first_wrong_number(expected, got, tolerance) if expected.shape == got.shape else None
    alike = type(expected) is type(got) or (_is_number(expected) and _is_number(got))
    return f"expected {_short(expected)}, got {_short(got)}" if alike else None


def _first_wrong_number(expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> str | None:
    if expected.is_complex() or got.is_complex():
        return None
    right, mine = expected.double(), got.double()
    allowed = tolerance.absolute + tolerance.relative * max(right[right.isfinite()].abs().flatten().tolist(), default=0)
    same = (right == mine) | (right.isnan() & mine.isnan()) | ((right - mine).abs() <= allowed)
    for index in (~same).nonzero().tolist():
        place = f"at {index}: " if index else ""
        return f"{place}expected {right[tuple(index)].item():.6g}, got {mine[tuple(index)].item():.6g}"
    return None


def _difference_of_dicts(expected: dict, got: Any, tolerance: Tolerance, where: str) -> str | None:
    if not isinstance(got, dict):
        return f"{where} should be a dictionary, but is {_kind(got)}"
    if set(expected) != set(got):
        return f"{where} should have the entries {_names(expected)}, but has {_names(got)}"
    found = (difference(expected[key], got[key], tolerance, f'{where}["{key}"]') for key in expected)
    return next((words for words in found if words), None)


def _difference_of_lists(expected: Any, got: Any, tolerance: Tolerance, where: str) -> str | None:
    if not isinstance(got, list | tuple):
        return f"{where} should be a list or tuple of {len(expected)} parts, but is {_kind(got)}"
    if len(expected) != len(got):
        return f"{where} should have {len(expected)} parts, but has {len(got)}"
    found = (difference(e, g, tolerance, f"{where}[{i}]") for i, (e, g) in enumerate(zip(expected, got, strict=True)))
    return next((words for words in found if words), None)


def _difference_of_tensors(expected: torch.Tensor, got: Any, tolerance: Tolerance, where: str) -> str | None:
    if expected.ndim == 0 and _is_number(got):
        if expected.is_floating_point() != isinstance(got, float):
            return f"{where} should hold numbers like {expected.dtype}, but is {_short(got)}"
        return _difference_of_scalars(expected.item(), got, tolerance, where)
    if not isinstance(got, torch.Tensor):
        return f"{where} should be a tensor, but is {_kind(got)}"
    if expected.shape != got.shape:
        return f"{where} should have shape {tuple(expected.shape)}, but has {tuple(got.shape)}"
    if expected.is_floating_point() != got.is_floating_point() or got.is_complex():
        return f"{where} should hold numbers like {expected.dtype}, but holds {got.dtype}"
    if expected.is_floating_point():
        return _difference_of_floats(expected.double(), got.double(), tolerance, where)
    return _difference_of_integers(expected.flatten().tolist(), got.flatten().tolist(), tolerance, where)


def _difference_of_scalars(expected: float, got: float, tolerance: Tolerance, where: str) -> str | None:
    if isinstance(expected, int) and isinstance(got, int):
        return _difference_of_integers([expected], [got], tolerance, where)
    return _difference_of_floats(_double(expected), _double(got), tolerance, where)


def _difference_of_integers(expected: list[int], got: list[int], tolerance: Tolerance, where: str) -> str | None:
    worst = max((abs(e - g) for e, g in zip(expected, got, strict=True)), default=0)
    return _too_far(worst, max(map(abs, expected), default=0), tolerance, where)


def _difference_of_floats(expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance, where: str) -> str | None:
    # Positions where the right answer is infinite or undefined must match exactly; nan counts as equal to nan.
    same = (expected == got) | (expected.isnan() & got.isnan())
    apart = torch.where(same, 0.0, (expected - got).abs()).flatten()
    if not apart.isfinite().all():
        return f"{where} holds values that are not finite"
    finite = expected[expected.isfinite()].abs()
    return _too_far(max(apart.tolist(), default=0.0), max(finite.tolist(), default=0.0), tolerance, where)


def _too_far(worst: float, largest: float, tolerance: Tolerance, where: str) -> str | None:
    allowed = tolerance.absolute + tolerance.relative * largest
    if worst <= allowed:
        return None
    return f"{where} differs by {_double(worst).item():.3g} where at most {allowed:.3g} is allowed"


def _double(value: float) -> torch.Tensor:
    """A number in float64; an integer that is too large for it becomes infinite."""
    try:
        return torch.tensor(float(value), dtype=torch.float64)
    except OverflowError:
        return torch.tensor(math.inf if value > 0 else -math.inf, dtype=torch.float64)


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
