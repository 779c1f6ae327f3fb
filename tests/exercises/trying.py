"""Try answers to an exercise as a learner would write them, on top of the solution that its notebook folds away."""

import ast
import textwrap
from typing import NamedTuple

from course.publish import runner
from helpers import checks
from helpers.checks.lessons import GIVEN

checks.use(runner.NOTEBOOKS / "exercises" / "lesson_00.py")


class Answers(NamedTuple):
    """Answers to an exercise, right ones (besides the course's own) and wrong ones.

    Each is a whole cell, the body of the function, or a tuple of what is replaced by what in `base`, in pairs.
    `base` is one more right answer, unless it is the course's own.
    """

    right: list
    wrong: list
    base: str = ""


def changed(base: str, answer: str | tuple[str, ...]) -> str:
    if isinstance(answer, str):
        return answer
    for part, other in zip(answer[::2], answer[1::2], strict=True):
        assert part in base, f"{part!r} is nowhere in the answer that it should change"
        base = base.replace(part, other)
    return base


def define(function: str, answer: str):
    """A function from its body, or a whole cell; other exercises are solved as the course does."""
    others = (name for name in checks.lessons().items if name != function and name in answer)
    names = GIVEN | {name: checks.lessons().define(name) for name in others}
    if f"def {function}(" not in answer:
        solution = ast.parse(checks.lessons().solution(function)).body
        (arguments,) = (node.args for node in solution if getattr(node, "name", "") == function)
        answer = f"def {function}({ast.unparse(arguments)}):\n{textwrap.indent(answer, '    ')}"
    exec(answer, names)
    return names[function]
