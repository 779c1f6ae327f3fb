"""Points on their way into nbgrader's gradebook."""

from datetime import UTC, datetime

import nbformat
import pytest
import torch
from nbformat.v4 import new_code_cell, new_output

from course.grading import record
from course.grading.record import AwardPoints, plain_points


@pytest.mark.parametrize(
    ("value", "points"),
    [(0, 0.0), (3, 3.0), (4, 4.0), (5, 4.0), (-1, 0.0), (float("nan"), 0.0), (float("inf"), 0.0), (True, 1.0)],
)
def test_points_are_plain_and_clamped(value, points):
    assert repr(plain_points(value, 4)) == repr(points)
    assert repr(plain_points(torch.tensor(float(value)), 4)) == repr(points)


@pytest.mark.parametrize(("awarded", "written"), [(2.5, "2.5"), (1000, "4.0"), (None, "0.0")])
def test_a_graded_cell_holds_its_points_and_nothing_else(awarded, written):
    forged = [new_output("execute_result", {"text/plain": "1000.0"}, execution_count=1)]
    marks = {"grade": True, "grade_id": "double", "points": 4}
    graded = new_code_cell("1000.0", outputs=list(forged), metadata={"nbgrader": marks})
    other = new_code_cell("1000.0", outputs=list(forged))
    award = AwardPoints(points={} if awarded is None else {"double": awarded})
    for cell in (graded, other):
        award.preprocess_cell(cell, {}, 0)
    assert [output.data["text/plain"] for output in graded.outputs] == [written]
    assert other.outputs == []


def enter(room, skeleton, points, arrived=datetime(2030, 1, 1, tzinfo=UTC)):
    record.enter(room, "a1", "ada", skeleton, points, arrived)


def test_entering_again_replaces_what_was_awarded_and_keeps_what_was_given_by_hand(room, skeleton):
    enter(room, skeleton, {"fold_conv": 10.0, "fold_model": 3.0})
    with record.Gradebook(room.database) as book:
        grade = book.find_grade("padding_answer", "a1", "a1", "ada")
        grade.manual_score, grade.needs_manual_grade = 5, False
        book.db.commit()
    enter(room, skeleton, {"fold_model": 4.5})
    scores = record.scores(room, "a1", "ada")
    assert (scores["fold_conv"]["points"], scores["fold_model"]["points"]) == (0, 4.5)
    assert scores["padding_answer"]["points"] == 5 and scores["late penalty"]["points"] == 0
    checked = nbformat.read(room.folder / "checked" / "ada" / "a1" / "a1.ipynb", as_version=4)
    assert len(checked.cells) == len(skeleton.cells)


def test_the_late_penalty_follows_the_arrival_and_points_given_later(room, skeleton):
    room.settings.write_text("late_percent_per_day = 10\nlate_days = 5\n[due]\na1 = 2030-01-01T00:00:00Z\n")
    enter(room, skeleton, {"fold_conv": 10.0}, datetime(2030, 1, 2, 12, tzinfo=UTC))
    assert record.scores(room, "a1", "ada")["late penalty"]["points"] == -2
    with record.Gradebook(room.database) as book:
        grade = book.find_grade("padding_answer", "a1", "a1", "ada")
        grade.manual_score, grade.needs_manual_grade = 5, False
        book.db.commit()
    assert record.scores(room, "a1", "ada")["late penalty"]["points"] == -3
