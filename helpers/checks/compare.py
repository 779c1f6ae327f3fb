"""Compare two answers and say in words where they differ.

An answer is a tree of dictionaries, lists, tensors, numbers, strings, booleans and None. Whole
numbers are compared as such: no float holds every integer. This file knows no exercise, so it
travels with the student's bundle.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

Found = tuple[str, str] | None  # what differs in words, and the two values where values differ
KINDS = {
    bool: "True or False",
    int | float: "a number",
    dict: "a dictionary",
    list | tuple: "a list or tuple",
}
KINDS |= {torch.Tensor: "a tensor", str: "a text", type(None): "None"}


@dataclass(frozen=True)
class Tolerance:
    """Numbers agree when |got - expected| <= absolute + relative * max|expected|.

    With `same_types`, tensors must be of one type, too: as an index, uint8 would be a mask.
    """

    relative: float = 1e-6
    absolute: float = 1e-9
    same_types: bool = False


def difference(expected: Any, got: Any, tolerance: Tolerance, path: str = "") -> Found:
    """Return None when the two answers agree, else the first place where they differ.

    Args:
        expected: the right answer.
        got: what was handed in; it may be anything at all.
        tolerance: how far numbers may lie apart.
        path: which part of the answer this is, such as "[0]"; empty for all of it.

    Returns:
        One sentence, and both answers' values where these first differ; empty where kinds or shapes
        differ.

    Example:
        >>> difference({"a": 1.0}, {"a": 2.0}, Tolerance())[0]
        'part ["a"] of the answer differs by 1 from the right one, where at most 1e-06 is allowed'
    """
    where = _called(path)
    if isinstance(expected, torch.Tensor) and expected.ndim == 0 and _kind(got) == int | float:
        if expected.is_floating_point() != isinstance(got, float):
            return f"{where} should hold numbers like {expected.dtype}, but is {_short(got)}", ""
        expected = expected.item()
    dtype = getattr(got, "dtype", None)
    if isinstance(expected, int | float) and getattr(got, "ndim", None) == 0:
        got = got.item()  # a number of torch or NumPy
    kind, parts = _kind(expected), []
    if kind != _kind(got):
        hint = " (is a return missing?)" if got is None and not path else ""
        return f"{where} should be {_named(expected)}, but is {_named(got)}{hint}", ""
    if kind is dict:
        if set(expected) != set(got):
            wanted, found = (_short(sorted(map(str, tree))) for tree in (expected, got))
            return f"{where} should have the entries {wanted}, but has {found}", ""
        parts = [
            (value, got[key], tolerance, f'{path}["{key}"]') for key, value in expected.items()
        ]
    elif kind == list | tuple:
        if len(expected) != len(got):
            return f"{where} should be of length {len(expected)}, but is of {len(got)}", ""
        parts = [
            (value, got[place], tolerance, f"{path}[{place}]")
            for place, value in enumerate(expected)
        ]
    elif kind is torch.Tensor:
        if expected.shape != got.shape:
            return (
                f"{where} should have shape {tuple(expected.shape)}, but has {tuple(got.shape)}",
                "",
            )
        other = expected.is_floating_point() != got.is_floating_point() or got.is_complex()
        if other or (tolerance.same_types and expected.dtype != got.dtype):
            return f"{where} should hold numbers like {expected.dtype}, but holds {got.dtype}", ""
        flat = (tensor.flatten().tolist() for tensor in (expected, got))
        found = _difference_of_numbers(*flat, expected.shape, tolerance, path)
        return _with_types(found, expected.dtype, dtype)
    elif kind == int | float:
        found = _difference_of_numbers([expected], [got], (), tolerance, path)
        return _with_types(found, torch.float64, dtype)
    elif expected != got:
        return (
            f"{where} is {_short(got)}, which is not right",
            f"expected {_short(expected)}, got {_short(got)}",
        )
    return next(filter(None, (difference(*part) for part in parts)), None)


def _difference_of_numbers(
    expected: list, got: list, shape: tuple, tolerance: Tolerance, path: str
) -> Found:
    """The largest distance in words, and the first pair that lies too far apart."""
    if not all(isinstance(value, int) for value in (*expected, *got)):
        expected, got = (list(map(_double, values)) for values in (expected, got))
    # Infinite or undefined numbers must match exactly; nan counts as equal to nan.
    same = [e == g or (e != e and g != g) for e, g in zip(expected, got, strict=True)]
    apart = [0 if s else abs(e - g) for s, e, g in zip(same, expected, got, strict=True)]
    largest = max((abs(e) for e in expected if abs(e) < math.inf), default=0)
    allowed = tolerance.absolute + tolerance.relative * largest
    first = next((place for place, distance in enumerate(apart) if not distance <= allowed), None)
    if first is None:
        return None
    index = [int(i) for i in torch.unravel_index(torch.tensor(first), shape)]
    spots = [f"part {path}"] * bool(path) + [f"at {index}"] * bool(index)
    place = ", ".join(spots) + ": " * bool(spots)
    wanted, found = _digits(expected[first]), _digits(got[first])
    if wanted == found:
        wanted, found = repr(expected[first]), repr(got[first])
    values = f"{place}expected {wanted}, got {found}"
    if not all(distance < math.inf for distance in apart):
        return f"{_called(path)} differs from the right one where one of them is not finite", values
    bound = f", where at most {allowed:.3g} is allowed"
    if isinstance(apart[first], int) and allowed < 1:
        bound = ""
    return f"{_called(path)} differs by {_double(max(apart)):.3g} from the right one{bound}", values


def _with_types(found: Found, expected: torch.dtype, got: torch.dtype | None) -> Found:
    """Adds the types where floating-point numbers have another type than expected."""
    if found is None or got == expected or not getattr(got, "is_floating_point", False):
        return found
    words, values = found
    return f"{words}; it is in {got}, the right one in {expected}", values


def _called(path: str) -> str:
    return f"part {path} of the answer" if path else "the answer"


def _digits(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _short(value)


def _double(value: float) -> float:
    """A number in double precision; an integer that is too large for it becomes infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _kind(value: Any) -> Any:
    return next((kind for kind in KINDS if isinstance(value, kind)), type(value))


def _named(value: Any) -> str:
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else ""
    return KINDS.get(_kind(value), f"a {type(value).__name__}") + shape


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
