"""What the header of a network's file may say.

A file may come from anybody, so it is checked before anything is built.

Each value of a header is of a *kind*:

    str, bool, type(None)          exactly of this type
    range(1, 9), Between(0, 4)     a whole number, or a number, among these
    [kind]                         a list of values of this kind
    {"a": kind, "b?": kind}        a table; what has a question mark may be missing
    {...: kind}                    a table that has other names as well
    (kind, kind)                   of one of these kinds
    ...                            anything
    a function                     what it answers True to; its docstring says what that is
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class ModelError(ValueError):
    """A network cannot be built, saved or loaded; names the file or module and what to do."""


@dataclass(frozen=True)
class Between:
    """A number from low to high."""

    low: float
    high: float


def problem(value: Any, kind: Any, where: str = "") -> str | None:
    """What is wrong with a value that should be of a kind, or None.

    Args:
        where: the place of the value, for the message.
    """
    if kind is ...:
        return None
    if isinstance(kind, dict) and isinstance(value, dict):
        return _problem_in_table(value, kind, where)
    if isinstance(kind, list) and isinstance(value, list):
        problems = (problem(item, kind[0], f"{where}[{at}]") for at, item in enumerate(value))
        return next(filter(None, problems), None)
    fits, expected = _judge(value, kind)
    return None if fits else f"{where} is {value!r:.40}, expected {expected}"


def _judge(value: Any, kind: Any) -> tuple[bool, str | None]:
    """Whether a value is of a kind, and the kind in words. A kind that is a table or a list comes
    here only with a value that is not one.
    """
    match kind:
        case dict():
            return False, "a table"
        case list():
            return False, "a list"
        case tuple():
            return any(problem(value, choice) is None for choice in kind), "of a known kind"
        case type():
            return type(value) is kind, f"of the type {kind.__name__}"
        case range():
            fits = type(value) is int and value in kind
            return fits, f"a whole number from {kind[0]} to {kind[-1]}"
        case Between(low, high):
            fits = type(value) in (int, float) and low <= value <= high
            return fits, f"a number from {low} to {high}"
    return kind(value), kind.__doc__


def _problem_in_table(table: dict, kinds: dict, where: str) -> str | None:
    """The first name that is missing or not known, or the first value of another kind."""
    kind_of_others = kinds.get(...)
    known = {name.rstrip("?"): kind for name, kind in kinds.items() if name is not ...}
    for name in known:
        is_required = name in kinds  # without a question mark
        if is_required and name not in table:
            return f"{where} lacks {name!r}"
    for name, value in table.items():
        kind = known.get(name, kind_of_others)
        if kind is None:
            return f"{where} has {name!r:.80}, which is not known"
        found = problem(value, kind, f"{where}.{name:.80}")
        if found:
            return found
    return None


def _sizes(value: Any) -> bool:
    """a list of sizes of at most 16 million numbers in all"""
    return problem(value, [SIZE]) is None and math.prod(value) <= 2**24


def _plain(value: Any) -> bool:
    """a plain value, or a list or table of these"""
    return problem(value, (*PLAIN, [_plain], {...: _plain})) is None


def _normalization(value: Any) -> bool:
    """as many means as deviations, of which none is 0"""
    rows = [[Between(-1e3, 1e3)], [Between(1e-6, 1e3)]]
    fits = isinstance(value, list) and len(value) == 2 and not any(map(problem, value, rows))
    return fits and 0 < len(value[0]) == len(value[1]) <= 2**12


AT_LEAST = 2**12  # numbers that a tensor counts for
SIZE = range(1, 2**24 + 1)
BITS = range(2, 9)
PLAIN = (bool, str, type(None), range(2**31), Between(-1e6, 1e6))
RECIPE = {
    **dict.fromkeys(("weight_bits?", "activation_bits?"), BITS),
    **dict.fromkeys(("per_channel?", "equalize?"), bool),
    "layer_bits?": {...: BITS},
    ...: (str, bool, type(None)),  # names, which `Recipe` knows; older files have more
}
STEPS = {
    "resize": {"changes": {...: {...: SIZE}}},
    "bypass": {"blocks": [str]},
    "optimize": {"level": str, "route": str, "shapes": [_plain]},
    "quantize": {"recipe": RECIPE, "input_shape": _sizes},
}
ARGUMENTS = {
    "num_classes?": SIZE,
    "width_mult?": Between(0.01, 100),
    "dropout?": Between(0, 1),
    ...: _plain,
}
SPEC = {
    "builder": str,
    "arguments": ARGUMENTS,
    "steps": [{"step": str, ...: ...}],
    "normalization?": _normalization,
}
METADATA = {
    "metrics?": {"test_accuracy?": Between(0.0, 1.0), ...: ...},
    "provenance?": {"command?": (str, type(None)), ...: ...},
    ...: ...,
}


def checked(header: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The specification and the metadata in a header.

    Raises:
        ModelError: there is something in it that no network has; names the place.
    """
    try:
        spec = json.loads(header["spec"])
        metadata = json.loads(header.get("metadata", "{}"))
        found = (
            problem(spec, SPEC, "spec")
            or problem(metadata, METADATA, "metadata")
            or next(filter(None, map(_problem_in_step, spec["steps"])), None)
        )
    except (KeyError, ValueError, RecursionError) as error:
        raise ModelError(f"{type(error).__name__}: {error}") from error
    if found:
        raise ModelError(found)
    return spec, metadata


def _problem_in_step(step: dict[str, Any]) -> str | None:
    name = step["step"]
    if name not in STEPS:
        return f"unknown step {name!r:.40}; a newer version of the course wrote it"
    return problem(step, {"step": str} | STEPS[name], f"the step {name}")


class Budget(TorchDispatchMode):
    """Refuses to make new tensors, before they are made, once all of them together would have more
    numbers than allowed. A small one counts as larger than it is: its layer takes memory, too.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.left = numbers

    def __torch_dispatch__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        """Count what `torch.empty` and the like are asked for."""
        sizes = args[0] if args and isinstance(args[0], list | tuple) else ()
        if sizes and all(isinstance(size, int) for size in sizes):
            self.left -= max(math.prod(sizes), AT_LEAST)
        if self.left < 0:
            raise ModelError(
                f"a tensor of the sizes {list(sizes)} has more numbers than such a file may ask for"
            )
        return func(*args, **(kwargs or {}))
