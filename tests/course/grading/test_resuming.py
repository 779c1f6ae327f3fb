"""What a run grades and what it leaves alone. The grading itself is made up, so no box is opened here."""

import json

import pytest

from course.grading import feedback, runner
from course.grading.classroom import write
from tests.course.grading.conftest import points_of


@pytest.fixture
def graded(monkeypatch):
    """The items of every submission that is graded, in order; each earns one point."""
    calls = []

    def grade(exercise, submission, sheets, limits=None, boxed=True):
        calls.append([sheet.item.name for sheet in sheets])
        rows = {sheet.item.name: {"points": 1.0, "of": sheet.item.points, "message": ""} for sheet in sheets}
        return {"items": rows, "notes": [], "printed": "", "boxed": boxed}

    monkeypatch.setattr(runner.judge, "grade", grade)
    monkeypatch.setattr(runner.machine, "require_box", lambda: None)
    return calls


def test_whatever_marks_depend_on_has_everything_graded_again(room, a1, hand_in, graded):
    for student in ("ada", "ben"):
        hand_in(student, {})
    assert runner.run(room, a1) == {"graded": 2, "kept": 0}
    assert runner.run(room, a1) == {"graded": 0, "kept": 2}
    hand_in("ben", {"own": "x = 1"})
    assert runner.run(room, a1) == {"graded": 1, "kept": 1}
    (room.folder / "secret").write_text("another secret")
    assert runner.run(room, a1) == {"graded": 2, "kept": 0}
    assert runner.run(room, a1, boxed=False) == {"graded": 2, "kept": 0}
    assert len(graded) == 7


def test_a_run_for_one_item_does_not_pass_for_a_full_one(room, a1, hand_in, graded):
    hand_in("ada", {})
    assert runner.run(room, a1, only_item="fold_conv") == {"graded": 1, "kept": 0}
    assert list(room.result("a1", "ada")["items"]) == ["fold_conv"]
    assert runner.run(room, a1) == {"graded": 1, "kept": 0}
    assert len(room.result("a1", "ada")["items"]) == len(a1.assignment.items)
    assert runner.run(room, a1, only_item="fold_conv") == {"graded": 1, "kept": 0}
    assert runner.run(room, a1) == {"graded": 0, "kept": 1}
    assert len(room.result("a1", "ada")["items"]) == len(a1.assignment.items)


def test_a_grader_that_fails_costs_only_the_one_submission(room, a1, hand_in, graded, monkeypatch):
    real = runner.judge.grade

    def fail(exercise, submission, *rest, **named):
        if any("strange" in cell.source for cell in submission.notebook.cells):
            raise RuntimeError("something odd")
        return real(exercise, submission, *rest, **named)

    monkeypatch.setattr(runner.judge, "grade", fail)
    hand_in("ada", {})
    hand_in("ben", {"own": "strange = 1"})
    assert runner.run(room, a1) == {"graded": 2, "kept": 0}
    assert points_of(room, "ada", "ben") == {"ada": len(a1.assignment.items), "ben": 0}
    assert "something odd" in room.result("a1", "ben")["notes"][0]


def test_nothing_that_a_student_wrote_steers_the_terminal_or_stops_the_pages(room, a1, hand_in, graded):
    hand_in("ada", {})
    runner.run(room, a1)
    result = room.result("a1", "ada")
    result["items"]["fold_conv"] |= {"refused": True, "message": "Not allowed: line 1 (x \x1b[2J\rben \ud800) calls it"}
    write(room.result_path("a1", "ada"), json.dumps(result))
    _, line = runner.noteworthy(room, a1)
    assert line.isprintable() and "fold_conv earned nothing" in line
    (page,) = feedback.write_all(room, a1)  # a half character, which no file can hold, comes out as its number
    assert "ben \\ud800) calls it" in page.read_text()
