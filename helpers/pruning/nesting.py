"""Values inside nested lists, tuples, slices and dicts."""

from collections.abc import Callable
from typing import Any

NESTS = (tuple, list, dict, slice)


def leaves(value: Any) -> list:
    """The values, in order."""
    found: list = []
    collect(value, found)
    return found


def collect(value: Any, found: list) -> None:
    """Append the values to those found so far."""
    if not isinstance(value, NESTS):  # by far the most frequent, so it is asked first, here and below
        found.append(value)
    elif isinstance(value, list | tuple):
        for item in value:
            collect(item, found)
    elif isinstance(value, dict):
        collect(list(value.values()), found)
    else:
        collect((value.start, value.stop, value.step), found)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The same nest with another value in the place of each; all kinds of tuples, lists and dicts become plain ones."""
    if not isinstance(value, NESTS):
        return function(value)
    if isinstance(value, tuple):
        return tuple([mapped(function, item) for item in value])
    if isinstance(value, list):
        return [mapped(function, item) for item in value]
    if isinstance(value, dict):
        return {name: mapped(function, item) for name, item in value.items()}
    return slice(*[mapped(function, bound) for bound in (value.start, value.stop, value.step)])
