"""Options as a table: one line each, with the default, which also tells the kind, and what it does."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from helpers import data

# The options that several commands share.
DATA = {"--data": ("auto", "where CIFAR-10 comes from", data.SOURCES)}
IMAGES = "training images to look at, where any are"


def add(parser: Any, table: Mapping[str, tuple]) -> None:
    """Add options to a parser, or to a group of one.

    Args:
        parser: an `argparse.ArgumentParser`, or what its `add_mutually_exclusive_group` gives.
        table: flag -> (default, what it does) or (default, what it does, choices). A default of False makes a switch; a
            kind, such as `float`, or a function that reads the word makes an option without a default.
    """
    for flag, (default, text, *choices) in table.items():
        if default is False:
            parser.add_argument(flag, action="store_true", help=text)
        elif callable(default):
            parser.add_argument(flag, type=default, help=text, metavar=name_of(default), choices=first(choices))
        else:
            told = f"{text} (default: {default})"
            parser.add_argument(flag, type=type(default), default=default, help=told, choices=first(choices))


def first(choices: list[Iterable[str]]) -> list[str] | None:
    """The words that may be chosen, if they are few."""
    return list(choices[0]) if choices else None


def name_of(kind: Callable) -> str | None:
    """What a help text calls a value of a kind."""
    return {int: "N", float: "X", Path: "FILE"}.get(kind)


def positive(word: str) -> int:
    """A whole number of 1 or more; a negative one would count from the end of the images."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number of 1 or more")
    return int(word)
