"""Try answers to an exercise as a learner would write them; find the solution that its notebook folds away."""

import re
import textwrap

import nbformat
import pytest

from course.publish import runner
from helpers import checks
from helpers.checks.exercises import answers
from helpers.checks.keeping import GIVEN

TRIES = 3
checks.use(runner.NOTEBOOKS / "exercises" / "lesson_00.py")


def try_answers(function: str, arguments: str, right: list[str], wrong: list[str]) -> None:
    """Check that every right body is accepted, and every wrong one rejected with a hint, on fresh inputs each time."""
    for body in right:
        for _ in range(TRIES):
            checks.check(define(function, arguments, body))
    for body in wrong:
        for _ in range(TRIES):
            with pytest.raises(checks.NotRightYet, match=function):
                checks.check(define(function, arguments, body))
                print("accepted:", body)


def define(function: str, arguments: str, body: str):
    """A function from its arguments and its body, or a whole cell; other exercises are solved as the course does."""
    others = (item.function for lesson in checks.by_lesson().values() for item in lesson)
    used = {name: answers().reference(name) for name in others if name != function and name in body}
    names = GIVEN | used
    whole = body if f"def {function}(" in body else f"def {function}({arguments}):\n{textwrap.indent(body, '    ')}"
    exec(whole, names)
    return names[function]


def solution_of(lesson: str, function: str) -> str:
    """The solution cell that the notebook shows in its folded part."""
    (path,) = runner.lessons([lesson])
    for cell in nbformat.read(path, as_version=4).cells:
        for code in re.findall(r"```python\n(.*?)```", cell.source, re.S):
            if cell.cell_type == "markdown" and f"def {function}(" in code:
                return code
    raise AssertionError(f"{path.name} shows no solution for {function}")
