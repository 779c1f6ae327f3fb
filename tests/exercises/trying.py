"""Try answers to an exercise as a learner would write them, on top of the solution that its notebook folds away."""

import ast
import textwrap

import pytest

from course.publish import runner
from helpers import checks
from helpers.checks.lessons import GIVEN

TRIES = 3
checks.use(runner.NOTEBOOKS / "exercises" / "lesson_00.py")


def assert_judged(function: str, right: list, wrong: list, base: str = "") -> None:
    """Every right answer is accepted, and every wrong one rejected with a hint, on fresh inputs each time.

    Args:
        function: the exercise.
        right: answers unlike the course's, which is tried as well: a whole cell, the body of the function, or a tuple
            of what is replaced by what in `base`, in pairs.
        wrong: answers of the same forms.
        base: what tuples change; by default the solution of the course.
    """
    assert len(right) >= 2 - bool(base) and len(wrong) >= 5
    solution = checks.lessons().solution(function)
    for answer in (solution, base or solution, *right):
        for _ in range(TRIES):
            checks.check(define(function, changed(base or solution, answer)))
    for answer in wrong:
        for _ in range(TRIES):
            with pytest.raises(checks.NotRightYet, match=function) as rejected:
                checks.check(define(function, changed(base or solution, answer)))
                print("accepted:", answer)
            assert "NameError" not in str(rejected.value), answer


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
