"""The commands of `python -m course`: each file has `add_arguments(parser)`, `run(arguments)`."""

from collections.abc import Mapping
from typing import Any


def add(parser: Any, table: Mapping[str, tuple]) -> None:
    """Add options to a parser or a group of one: flag -> (default, what it does) or (default, what
    it does, choices).

    The default is one of: False (a switch), a plain value (its type is used), a type or a function
    that reads the word (no default), a pair (type, default).
    """
    for flag, (default, text, *choices) in table.items():
        if default is False:
            parser.add_argument(flag, action="store_true", help=text)
            continue
        kind, default = default if isinstance(default, tuple) else (None, default)
        kind, default = (default, None) if callable(default) else (kind or type(default), default)
        told = text if default is None else f"{text} (default: %(default)s)"
        letter = {
            "int": "N",
            "positive": "N",
            "float": "X",
            "Path": "FILE",
            "writable": "FILE",
        }.get(kind.__name__)
        few = list(choices[0]) if choices else None
        parser.add_argument(
            flag,
            type=kind,
            default=default,
            help=told,
            choices=few,
            metavar=None if few else letter,
        )
