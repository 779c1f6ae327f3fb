"""Exercises inside the lessons: checked at once, with hints in steps; right answers are kept.

    checks.use("exercises/lesson_05.py")      # once per notebook: where its exercises are
    def output_size(...): ...                 # the learner's cell
    checks.check(output_size)                 # right, and kept; or an error with a hint
    fold = checks.yours("fold_conv_bn")       # later: the learner's own, or the course's
    checks.keep_network(tiny, "tiny-trained")
    tiny = checks.your_network("tiny-trained")

Read in this order:

    specification   an exercise: inputs from a seed, an independent oracle, hints, known mistakes
    compare         where two answers differ, in words
    trying          one try: what is wrong, in terms of the learner's own lines
    lessons         the exercises of all lessons, the answers in mine.py, the course's solutions
    alone           whether an answer also works where no cell of the notebook has run
    networks        the networks that a learner has trained, for later lessons
"""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.checks.lessons import Lessons, NotRightYet
from helpers.checks.networks import keep_network, your_network
from helpers.checks.trying import first_failure

_lessons: list[Lessons] = []  # those in use, if any


def use(file: str | Path) -> None:
    """Say where the exercises of this notebook are; those of the other lessons lie beside them.

    Args:
        file: the lesson's exercises; answers that are right are kept in `mine.py`, beside the
            notebooks.
    """
    path = Path(file).resolve()
    if not path.is_file():
        raise NotRightYet(
            f"there are no exercises at {path}; give the path from the folder of the notebook"
        )
    for before in _lessons:
        before.spare.stop()
    _lessons[:] = [Lessons(path.parent)]
    if not headless():
        _lessons[0].spare.start()


def lessons() -> Lessons:
    """The exercises in use."""
    if not _lessons:
        raise NotRightYet('say first where the exercises are: checks.use("exercises/lesson_00.py")')
    return _lessons[0]


def check(function: Callable) -> None:
    """Try a learner's function on fresh random inputs.

    The more often it was wrong, the more the hint says.

    Args:
        function: what the learner wrote; its name says which exercise it answers.

    Example:
        >>> def output_size(size, kernel, stride, padding):
        ...     return (size + 2 * padding - kernel) // stride + 1
        >>> check(output_size)
        output_size: right
    """
    name = getattr(function, "__name__", type(function).__name__)
    item = lessons().find(name)
    try:
        failure = first_failure(item, function)
    except NotImplementedError as problem:
        # It may call an earlier exercise, which is the one that is not done.
        names = [frame.name for frame in traceback.extract_tb(problem.__traceback__)]
        empty = next((one for one in reversed(names) if one in lessons().items), name)
        print(f"{empty}: not done yet. Write it, then run the cell again.")
        return
    if failure:
        hint = lessons().hint(item, function, failure)
        raise NotRightYet(f"{name}: not right yet. {failure.message}\n{hint}")
    print(f"{name}: right", end="", flush=True)
    print("" if headless() else lessons().keep(function))


def yours(name: str) -> Any:
    """The learner's own function of this name, or the course's where there is none; says which."""
    lessons().find(name)
    blocks = {} if headless() else lessons().blocks()
    print(f"{name}: {'your own, from mine.py' if name in blocks else 'the solution of the course'}")
    return lessons().define(name, blocks if name in blocks else {})


def headless() -> bool:
    """Whether the notebooks run without a learner: then no file of a learner is read or written."""
    return "COURSE_HEADLESS" in os.environ
