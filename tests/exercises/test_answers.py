"""Every right answer to an exercise is accepted, and every wrong one rejected, on fresh inputs each time."""

import importlib
from pathlib import Path

import pytest

from helpers import checks
from tests.exercises.trying import changed, define

TRIES = 3
LESSONS = sorted(path.stem for path in Path(__file__).parent.glob("lesson_*.py"))
ANSWERS = {lesson: importlib.import_module(f"tests.exercises.{lesson}").ANSWERS for lesson in LESSONS}
EXERCISES = [(lesson, function) for lesson, answers in ANSWERS.items() for function in answers]


@pytest.mark.parametrize(("lesson", "function"), EXERCISES)
def test_right_answers_are_accepted_and_wrong_ones_rejected(lesson, function, monkeypatch):
    monkeypatch.setenv("COURSE_HEADLESS", "1")  # answers that are tried here are not kept
    right, wrong, base = ANSWERS[lesson][function]
    assert len(right) >= 2 - bool(base) and len(wrong) >= 5
    solution = checks.lessons().solution(function)
    base = base or solution
    for answer in [solution, base, *right] * TRIES:
        checks.check(define(function, changed(base, answer)))
    for answer in wrong * TRIES:
        with pytest.raises(checks.NotRightYet, match=function) as rejected:
            checks.check(define(function, changed(base, answer)))
            print("accepted:", answer)
        assert "NameError" not in str(rejected.value), answer


def test_every_exercise_has_answers_that_try_it():
    assert sorted(function for _, function in EXERCISES) == sorted(checks.lessons().items)
    assert len(EXERCISES) == sum(map(len, checks.lessons().by_lesson.values())) >= 50
