"""Instant feedback for the exercises inside the lessons.

def output_size(...): ...        # in the notebook
checks.check(output_size)        # prints that it is right, or raises with a hint

The inputs are new random numbers each time, the right answer comes from an independent oracle, and the learner's
function gets copies, so that nothing it does reaches its inputs or the next try.
"""

import importlib.util
import secrets
from collections.abc import Callable
from functools import cache
from pathlib import Path

from helpers.checks.specification import Item
from helpers.checks.specification import check as verdict_of

EXERCISES = Path("exercises")  # beside the notebook, whose folder is the current one


class NotRightYet(ValueError):
    """An exercise's answer is wrong; says on which input, how far off, and what to look at."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone, since the way through this file teaches nobody anything."""
        return [f"NotRightYet: {self}"]


def check(function: Callable) -> None:
    """Try a learner's function on fresh random inputs.

    Args:
        function: what the learner wrote; its name says which exercise it answers.

    Raises:
        NotRightYet: the answer is wrong.

    Example:
        >>> def output_size(size, kernel, stride, padding):
        ...     return (size + 2 * padding - kernel) // stride + 1
        >>> check(output_size)
        output_size: right
    """
    name = getattr(function, "__name__", type(function).__name__)
    item = find(name)
    verdict = verdict_of(item, {name: function}, seed=secrets.randbits(62), hidden=True)
    if verdict.share == 1.0:
        print(f"{name}: right")
    elif verdict.message == "not done yet":
        print(f"{name}: not done yet. Write it in the cell above, then run this cell again.")
    else:
        raise NotRightYet(f"{name}: not right yet. {verdict.message}")


def find(name: str) -> Item:
    """The exercise that a function of this name answers."""
    known = {item.function: item for items in by_lesson().values() for item in items}
    if name not in known:
        raise NotRightYet(f"there is no exercise called {name!r}; there are {', '.join(sorted(known))}")
    return known[name]


def by_lesson() -> dict[str, tuple[Item, ...]]:
    """All exercises: lesson_01 -> its items."""
    return {file.stem: load(file) for file in sorted(EXERCISES.glob("lesson_*.py"))}


@cache
def load(file: Path) -> tuple[Item, ...]:
    """The exercises that a file defines."""
    spec = importlib.util.spec_from_file_location(f"exercises_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ITEMS
