"""All passes by name. A registered pass does nothing until a list names it."""

import difflib
from collections.abc import Iterable

from helpers.passes.folder import Pass

_PASSES: dict[str, type[Pass]] = {}


class UnknownPass(ValueError):
    """No pass or pipeline is registered under this name."""


class BadRegistration(ValueError):
    """A class that cannot be registered as a pass."""


def register(cls: type[Pass]) -> type[Pass]:
    """Class decorator: make a pass known under its `name`.

    Raises:
        BadRegistration: it is no `Pass`, has no name, or the name is taken.
    """
    where = f"{cls.__module__}.{cls.__qualname__}"
    if not issubclass(cls, Pass) or not getattr(cls, "name", ""):
        raise BadRegistration(f'{where} must derive from helpers.passes.folder.Pass, and have a `name = "..."`')
    taken = _PASSES.get(cls.name)
    if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
        raise BadRegistration(f"{where} wants the name {cls.name!r}, which {taken.__module__} has: choose another")
    _PASSES[cls.name] = cls
    return cls


def get(name: str) -> Pass:
    """A fresh instance of the pass that is registered under `name`."""
    if name not in _PASSES:
        raise UnknownPass(f"there is no pass {name!r}{did_you_mean(name, _PASSES)}")
    return _PASSES[name]()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of an error message: the near matches of a misspelt name, or all there is."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f": did you mean {' or '.join(near)}?" if near else f": there are {', '.join(known)}"
