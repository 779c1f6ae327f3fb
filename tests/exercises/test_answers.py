"""Every right answer to an exercise is accepted, and every wrong one rejected, on fresh inputs each
time.

Each is a whole cell, the body of the function, or a tuple of what is replaced by what in `base`, in
pairs. `base` is one more right answer, unless it is the course's own.
"""

import ast
import importlib
import textwrap
from pathlib import Path

import pytest

from course.publish import runner
from helpers import checks
from helpers.checks.lessons import GIVEN, Lessons, changed_solution
from helpers.checks.trying import first_failure
from tests.marks import IN_CI

TRIES = 3  # so that an answer that is right only by chance is found
EFFORT = [1, pytest.param(TRIES, marks=IN_CI)]
LESSONS = sorted(path.stem for path in Path(__file__).parent.glob("lesson_*.py"))
ANSWERS = {
    lesson: importlib.import_module(f"tests.exercises.{lesson}").ANSWERS for lesson in LESSONS
}
EXERCISES = [(lesson, function) for lesson, answers in ANSWERS.items() for function in answers]
COURSE = Lessons(runner.NOTEBOOKS / "exercises")


def changed(base: str, answer: str | tuple[str, ...]) -> str:
    if isinstance(answer, str):
        return answer
    for part, other in zip(answer[::2], answer[1::2], strict=True):
        assert part in base, f"{part!r} is nowhere in the answer that it should change"
        base = base.replace(part, other)
    return base


def source_of(function: str, answer: str) -> str:
    """A function from its body; a whole cell as it is."""
    if f"def {function}(" in answer:
        return answer
    solution = ast.parse(COURSE.solution(function)).body
    (arguments,) = (node.args for node in solution if getattr(node, "name", "") == function)
    return f"def {function}({ast.unparse(arguments)}):\n{textwrap.indent(answer, '    ')}"


def define(function: str, answer: str):
    """The function that an answer defines; other exercises are solved as the course does."""
    others = (name for name in COURSE.items if name != function and name in answer)
    names = GIVEN | {name: COURSE.define(name, {}) for name in others}
    exec(source_of(function, answer), names)
    return names[function]


@pytest.mark.parametrize(("lesson", "function"), EXERCISES)
@pytest.mark.parametrize("tries", EFFORT)
def test_right_answers_are_accepted_and_wrong_ones_rejected(lesson, function, tries, monkeypatch):
    monkeypatch.setattr(checks, "_lessons", [COURSE])
    monkeypatch.setenv("COURSE_HEADLESS", "1")  # answers that are tried here are not kept
    right, wrong, base = map(
        ({"base": ""} | ANSWERS[lesson][function]).get, ("right", "wrong", "base")
    )
    assert len(right) >= 2 - bool(base) and len(wrong) >= 5
    solution = COURSE.solution(function)
    base = base or solution
    for answer in [solution, base, *right] * tries:
        checks.check(define(function, changed(base, answer)))
    for answer in wrong * tries:
        with pytest.raises(checks.NotRightYet, match=function) as rejected:
            checks.check(define(function, changed(base, answer)))
            print("accepted:", answer)
        assert "NameError" not in str(rejected.value), answer


MISTAKES = [
    # The first of each is enough at home.
    pytest.param(item, mistake, marks=IN_CI if number else [])
    for item in COURSE.items.values()
    for number, mistake in enumerate(item.mistakes)
]


@pytest.mark.parametrize(
    ("item", "mistake"), MISTAKES, ids=lambda value: getattr(value, "name", "")
)
def test_a_mistake_is_wrong_and_its_hint_is_what_its_author_gets(item, mistake):
    code = changed_solution(COURSE.solution(item.function), item.function, mistake)
    function = COURSE.define(item.function, {item.function: code})
    for _ in range(TRIES):
        assert first_failure(item, function) is not None, mistake.hint
        assert COURSE.hint_for_mistake(item, function) == mistake.hint


def test_every_exercise_has_answers_that_try_it():
    assert sorted(function for _, function in EXERCISES) == sorted(COURSE.items)
    assert len(EXERCISES) == sum(map(len, COURSE.by_lesson.values())) >= 60
