"""The exercises of a lesson: which there are, checking an answer, using it again later."""

import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from helpers.checks.keeping import Answers, NotKept
from helpers.checks.specification import Item
from helpers.checks.trying import NotDone, first_failure


class NotRightYet(ValueError):
    """An exercise's answer is wrong; says on which input, how far off, and what to look at."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone, since the way through this file teaches nobody anything."""
        return [f"NotRightYet: {self}"]


class Lessons:
    """Where the exercises are, and how often each was answered wrongly since the notebook was started."""

    folder: ClassVar[Path | None] = None
    misses: ClassVar[Counter[str]] = Counter()


def use(file: str | Path) -> None:
    """Say where the exercises of this notebook are; those of the other lessons lie beside them.

    Args:
        file: the lesson's exercises; answers that are right are kept in `mine.py`, two folders up from it.
    """
    path = Path(file).resolve()
    if not path.is_file():
        raise NotRightYet(f"there are no exercises at {path}; give the path from the folder of the notebook")
    Lessons.folder = path.parent
    Lessons.misses.clear()


def check(function: Callable) -> None:
    """Try a learner's function on fresh random inputs. The more often it was wrong, the more the hint says.

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
    try:
        failure = first_failure(item, function)
    except NotDone:
        print(f"{name}: not done yet. Write it, then run the cell again.")
        return
    if failure:
        Lessons.misses[name] += 1
        raise NotRightYet(f"{name}: not right yet. {failure}\n{hint(item, Lessons.misses[name])}".rstrip())
    print(f"{name}: right{'' if headless() else kept(function)}")


def hint(item: Item, misses: int) -> str:
    """The first time nothing beside the difference, then a nudge, then the way, then the solution."""
    if misses == 1:
        return "Read this first; the next try gets a hint."
    if misses == 2 and item.nudge:
        return f"Hint: {item.nudge}"
    if misses <= 3:
        return f"Hint: {item.hint}"
    return f"Hint: {item.hint}\nThe solution:\n{answers().solution(item.function)}"


def kept(function: Callable) -> str:
    """Keep an answer that is right for later lessons, and say so."""
    try:
        answers().keep(function, source_of(function.__name__))
    except NotKept as reason:
        return f", but not kept for later lessons: {reason}"
    return " (kept in mine.py for later lessons)"


def main(file: str, name: str) -> None:
    """Check a kept answer where nothing else is defined; the process ends with an error if it is wrong."""
    use(file)
    if failure := first_failure(find(name), answers().own(name)):
        sys.exit(failure.replace("\n", " "))


def yours(name: str) -> Any:
    """The learner's own answer to an exercise of an earlier lesson, or the course's where there is none; says which.

    Args:
        name: the function that the exercise asked for.
    """
    find(name)
    own = None if headless() else answers().own(name)
    print(f"{name}: {'the solution of the course' if own is None else 'your own, from mine.py'}")
    return answers().reference(name) if own is None else own


def progress() -> list[dict[str, Any]]:
    """One row per exercise of all lessons: minutes, difficulty, and whether an answer was kept."""
    done = {} if headless() else answers().blocks()
    return [
        {
            "lesson": lesson.removeprefix("lesson_"),
            "exercise": item.function,
            "minutes": item.minutes,
            "difficulty": "●" * item.dots + "○" * (3 - item.dots),
            "passed": "✓" if item.function in done else "",
        }
        for lesson, items in by_lesson().items()
        for item in items
    ]


def find(name: str) -> Item:
    """The exercise that a function of this name answers."""
    known = {item.function: item for items in by_lesson().values() for item in items}
    if name not in known:
        said = "use def, for a lambda has no name" if name == "<lambda>" else f"there is no exercise called {name!r}"
        raise NotRightYet(f"{said}; there are {', '.join(sorted(known))}")
    return known[name]


def by_lesson() -> dict[str, tuple[Item, ...]]:
    """All exercises: lesson_01 -> its items."""
    return {file.stem: load(file) for file in sorted(folder().glob("lesson_*.py"))}


def source_of(name: str) -> Path:
    """The file that holds an exercise."""
    return next(
        folder() / f"{lesson}.py" for lesson, items in by_lesson().items() if name in {i.function for i in items}
    )


@cache
def load(file: Path) -> tuple[Item, ...]:
    """The exercises that a file defines."""
    spec = importlib.util.spec_from_file_location(f"exercises_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ITEMS


def folder() -> Path:
    """The folder that `use` named."""
    if Lessons.folder is None:
        raise NotRightYet('say first where the exercises are: checks.use("exercises/lesson_00.py")')
    return Lessons.folder


def answers() -> Answers:
    """The answers that belong to these exercises."""
    names = {item.function for items in by_lesson().values() for item in items}
    return Answers(folder().parent, frozenset(names))


def headless() -> bool:
    """Whether the notebooks run without a learner: then no file of a learner is read or written."""
    return "COURSE_HEADLESS" in os.environ
