"""The second hint speaks of what is wrong, for the wrong answers that learners give.

TRIALS of a lesson holds pairs: a word (a regular expression) that the hint must say, chosen before
the hints were written, and a wrong answer as in ANSWERS, with changes to the course's solution.
"""

import importlib
import re

import pytest

from helpers.checks.trying import first_failure
from tests.exercises.test_answers import COURSE, LESSONS, changed, define

TRIALS = {}
for lesson in LESSONS:
    TRIALS |= importlib.import_module(f"tests.exercises.{lesson}").TRIALS
SHARE = 0.7
TYPICAL = 2  # of each exercise; the others take longer than a quick test may


def second_hint(function, answer):
    """What `checks.check` says when the same answer is wrong for the second time."""
    item = COURSE.items[function]
    tried = define(function, changed(COURSE.solution(function), answer))
    failure = first_failure(item, tried)
    assert failure, f"{function}: this is right: {answer}"
    COURSE.misses[function] = 1
    return COURSE.hint(item, tried, failure)


def share_that_helps(trials):
    """The share of wrong answers whose hint has its word; prints those without."""
    missed = 0
    for function, (word, answer) in trials:
        hint = second_hint(function, answer)
        if not re.search(word, hint, re.IGNORECASE | re.DOTALL):
            missed += 1
            print(f"{function}: {answer}\n    should speak of {word}\n    {hint}")
    print(f"{len(trials) - missed} of {len(trials)} hints speak of the error")
    return 1 - missed / len(trials)


@pytest.mark.slow
@pytest.mark.ci
def test_second_hints_speak_of_the_error_in_typical_wrong_answers():
    trials = [(name, one) for name, some in TRIALS.items() for one in some[:TYPICAL]]
    assert len(trials) >= 80
    assert share_that_helps(trials) >= SHARE


@pytest.mark.slow
def test_second_hints_speak_of_the_error_in_all_wrong_answers_of_the_trial():
    assert share_that_helps([(name, one) for name, some in TRIALS.items() for one in some]) >= SHARE


def test_every_exercise_is_in_the_trial():
    assert TRIALS.keys() == COURSE.items.keys()
