"""Points on their way into nbgrader's gradebook, and what a teacher adds to them by hand."""

from datetime import UTC, datetime

import nbformat
import torch
from nbformat.v4 import new_code_cell, new_output

from course.grading import answers, record
from course.grading.record import AwardPoints


def enter(room, skeleton, points, arrived=datetime(2030, 1, 1, tzinfo=UTC)):
    record.enter(room, "a1", "ada", skeleton, points, arrived)


def give_by_hand(room, points, *names, comment=None):
    """What a teacher does in the Formgrader."""
    with record.Gradebook(room.database) as book:
        for name in names:
            grade = book.find_grade(name, "a1", "a1", "ada")
            grade.manual_score, grade.needs_manual_grade = points, False
            book.find_comment(name, "a1", "a1", "ada").manual_comment = comment
        book.db.commit()


def points_of(room):
    return {name: row["points"] for name, row in record.scores(room, "a1", "ada").items()}


def test_points_are_plain_and_clamped_whatever_was_awarded_and_whatever_a_cell_shows(room, a1, skeleton):
    odd = [-1, float("nan"), float("inf"), True, torch.tensor(2.5), torch.tensor(float("nan")), 1e9]
    items = a1.assignment.items
    assert len(items) >= len(odd)
    forged = answers.fill(skeleton, {})
    for cell in forged.cells:
        if cell.cell_type == "code":
            cell.outputs = [new_output("execute_result", {"text/plain": "1000.0"}, execution_count=1)]
    enter(room, forged, {item.name: value for item, value in zip(items, odd, strict=False)})
    found = [points_of(room)[item.name] for item in items]
    assert found[: len(odd)] == [0, 0, 0, 1, 2.5, 0, items[len(odd) - 1].points] and not any(found[len(odd) :])
    other = new_code_cell("1000.0", outputs=[new_output("execute_result", {"text/plain": "1000.0"})])
    AwardPoints(points={}).preprocess_cell(other, {}, 0)
    assert other.outputs == []


def test_entering_again_replaces_what_was_awarded_and_keeps_what_was_given_by_hand(room, skeleton):
    room.settings.write_text("late_percent_per_day = 10\nlate_days = 5\n[due]\na1 = 2030-01-01T00:00:00Z\n")
    enter(room, skeleton, {"fold_conv": 10.0, "fold_model": 3.0})
    give_by_hand(room, 5, "padding_answer")
    enter(room, skeleton, {"fold_model": 4.5})
    found = points_of(room)
    assert [found[name] for name in ("fold_conv", "fold_model", "padding_answer", "late penalty")] == [0, 4.5, 5, 0]
    checked = nbformat.read(room.folder / "checked" / "ada" / "a1" / "a1.ipynb", as_version=4)
    assert len(checked.cells) == len(skeleton.cells)
    enter(room, skeleton, {"fold_model": 5.0}, datetime(2030, 1, 2, 12, tzinfo=UTC))
    assert points_of(room)["late penalty"] == -2
    give_by_hand(room, 15, "padding_answer")  # of which a late hand-in loses its share as well
    assert points_of(room)["late penalty"] == -4
