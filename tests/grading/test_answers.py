"""No wrong answer earns an item's points; every right one earns all."""

from collections import Counter
from dataclasses import replace

import pytest

from helpers.grading import answers, course
from helpers.grading.specification import check, copy_tree

EVERY = [(name, answer) for name in course.names() for answer in answers.read(course.load(name))]
ITEMS = [(name, item) for name in course.names() for item in course.load(name).assignment.items]


@pytest.mark.parametrize(("name", "answer"), EVERY, ids=lambda value: getattr(value, "label", value))
def test_only_right_answers_earn_points(name, answer):
    verdict = answers.try_out(course.load(name), answer)
    assert verdict.share == (1.0 if answer.right else 0.0), verdict.message


@pytest.mark.parametrize("name", course.names())
def test_every_item_has_two_right_and_five_wrong_answers(name):
    exercise = course.load(name)
    counts = Counter((answer.item, answer.right) for answer in answers.read(exercise))
    for item in exercise.assignment.items:
        assert counts[item.name, True] >= 2 and counts[item.name, False] >= 5, item.name


@pytest.mark.parametrize("name", course.names())
def test_the_source_notebook_earns_everything(name):
    exercise, student = course.load(name), {}
    for source in answers.solution_cells(exercise).values():
        exec(source.replace("from instant import check", ""), student)
    for item in exercise.assignment.items:
        assert check(item, student, "another seed", hidden=True).share == 1.0, item.name
    assert exercise.assignment.points == 100


@pytest.mark.parametrize(("name", "item"), ITEMS, ids=lambda value: getattr(value, "name", value))
def test_an_answer_learned_by_heart_from_the_visible_inputs_earns_nothing(name, item):
    exercise, student = course.load(name), {}
    for source in answers.solution_cells(exercise).values():
        exec(source.replace("from instant import check", ""), student)
    learned = [item.answer(student, copy_tree(case.inputs)) for case in item.make_cases("visible")]

    reciting = replace(item, run=lambda student, inputs: learned[0])
    assert check(reciting, {item.function: None}, "hidden").share == 0.0
