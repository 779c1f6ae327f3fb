"""Whether a hand-in holds most of a library function that its exercises forbid.

Code that shares a process with the guard can hide from it that it calls such a copy; from who reads
the hand-in it cannot.
"""

import inspect
import textwrap
from contextlib import suppress
from functools import lru_cache

from course.grading.guard import functions_of
from course.grading.tokens import runs_of, texts_in

LEAST_RUNS = 60  # of tokens; shorter functions look alike by themselves
MOST_ALIKE = 0.8
LONG = 200  # characters of a text that may be code


def copied(sources: list[str], patterns: tuple[str, ...]) -> list[str]:
    """The names of the functions, matching a pattern, of which these cells hold most."""
    texts = [text for source in sources for text in texts_in(source) if len(text) >= LONG]
    own = runs_of([*sources, *texts])
    return [
        name
        for name, runs in _runs_by_name(patterns).items()
        if len(runs & own) >= MOST_ALIKE * len(runs)
    ]


@lru_cache
def _runs_by_name(patterns: tuple[str, ...]) -> dict[str, set]:
    found = {}
    for name, function in functions_of(patterns):
        with suppress(OSError, TypeError):  # one without source
            runs = runs_of([textwrap.dedent(inspect.getsource(function))])
            if len(runs) >= LEAST_RUNS:
                found[name] = runs
    return found
