"""No wrong answer earns an item's points; every right one earns all."""

from collections import Counter
from dataclasses import replace

import pytest

from course.grading import answers, course
from helpers.checks.specification import copy_tree
from tests.course.grading import trying
from tests.marks import IN_CI

EXERCISES = {name: course.load(name) for name in course.names()}

# On every machine all right answers, and each eighth wrong one. Those of a network see many images.
ANSWERS = [
    pytest.param(name, a, marks=IN_CI if a.item == "network" or not (a.right or n % 8 == 0) else [])
    for name, exercise in EXERCISES.items()
    for n, a in enumerate(answers.read(exercise))
]


@pytest.mark.parametrize(
    ("name", "answer"), ANSWERS, ids=lambda value: getattr(value, "label", value)
)
def test_only_right_answers_earn_points(name, answer):
    verdict = trying.try_out(EXERCISES[name], answer)
    assert "NameError" not in verdict.message, verdict.message
    assert verdict.share == (1.0 if answer.right else 0.0), verdict.message


@pytest.mark.parametrize("name", course.names())
def test_every_item_has_two_right_and_eight_wrong_answers_and_every_case_a_label_of_its_own(name):
    exercise = EXERCISES[name]
    for item in exercise.assignment.items:
        labels = [case.label for case in item.make_cases("any", hidden=True)]
        assert len(set(labels)) == len(labels), (item.name, labels)
    counts = Counter((answer.item, answer.right) for answer in answers.read(exercise))
    found = {
        item.name: (counts[item.name, True], counts[item.name, False])
        for item in exercise.assignment.items
    }
    assert {item: n for item, n in found.items() if n[0] < 2 or n[1] < 8} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", course.names())
def test_every_secret_decides(name):
    """Thirty secrets: each right answer is right on all cases of each of them, each wrong one is
    wrong on one.
    """
    exercise = EXERCISES[name]
    item = {item.name: item for item in exercise.assignment.items if item.name != "network"}
    functions = [
        (a, answers.execute(trying.sources_of(exercise, a)))
        for a in answers.read(exercise)
        if a.item in item
    ]
    wrong = []
    for secret in range(30):
        sheets = {
            n: [
                (c, one.oracle(c.inputs, c.probe))
                for c in one.make_cases("secret", secret, hidden=True)
            ]
            for n, one in item.items()
        }
        for answer, student in functions:
            guarded = trying.guarded(item[answer.item])
            verdicts = (trying.judge(guarded, student, *case) for case in sheets[answer.item])
            if all(verdict.share == 1.0 for verdict in verdicts) != answer.right:
                wrong.append((secret, answer.item, answer.label))
    assert wrong == []


@pytest.mark.parametrize("name", course.names())
def test_the_source_notebook_earns_everything(name, monkeypatch):
    exercise = EXERCISES[name]
    monkeypatch.chdir(exercise.folder)
    cells = answers.solution_cells(exercise)
    weight, student = trying.weight(exercise, cells), answers.execute(cells)
    for item in exercise.assignment.items:
        verdict = trying.check(item, student, "another seed", True, weight)
        assert verdict.share == 1.0, verdict.message
    assert exercise.assignment.points == 100


# A network is the same answer to every seed; what it is tried on is not.
WITH_INPUTS = [
    (name, item)
    for name, e in EXERCISES.items()
    for item in e.assignment.items
    if item.name != "network"
]


@pytest.mark.parametrize(
    ("name", "item"), WITH_INPUTS, ids=lambda value: getattr(value, "name", value)
)
def test_an_answer_learned_by_heart_from_the_visible_inputs_earns_nothing(name, item):
    student = answers.execute(answers.solution_cells(EXERCISES[name]))
    cases = item.make_cases("visible")
    learned = iter([item.answer(student, copy_tree(case.inputs)) for case in cases])
    reciting = replace(item, run=lambda student, inputs: next(learned))
    assert trying.check(reciting, {item.function: None}, "hidden").share == 0.0
