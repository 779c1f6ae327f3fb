"""What a run grades and what it leaves alone, with made-up grading, so no box is opened."""

import json
import linecache
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import nbformat
import pytest

from course.__main__ import main
from course.grading import (
    answers,
    arrivals,
    box,
    export,
    feedback,
    handout,
    job,
    machine,
    record,
    release,
    roster,
    runner,
    stats,
    wire,
)
from course.grading import collect as collecting
from course.grading.classroom import ClassroomError, pseudonym, write
from course.grading.noteworthy import calls_of_what_is_wrong, noteworthy, strays
from tests.course.grading.conftest import points_of
from tests.course.grading.test_teachers import give_by_hand


@pytest.fixture
def graded(monkeypatch):
    """The items of every submission that is graded, in order; each earns one point."""
    calls = []

    def grade(exercise, submissions, sheets, limits=None, boxed=True, container=False):
        calls.extend([sheet.item.name for sheet in sheets] for _ in submissions)
        rows = {
            sheet.item.name: {"points": 1.0, "of": sheet.item.points, "message": ""}
            for sheet in sheets
        }
        return [{"items": rows, "notes": [], "printed": "", "boxed": boxed} for _ in submissions]

    monkeypatch.setattr(runner.judge, "grade", grade)
    monkeypatch.setattr(runner.machine, "obstacle", lambda: None)
    return calls


@pytest.mark.slow
@pytest.mark.ci
def test_whatever_marks_depend_on_has_everything_graded_again(room, a1, hand_in, graded):
    for student in ("ada", "ben"):
        hand_in(student, {})
    assert runner.run(room, a1) == {"graded": 2, "kept": 0}
    assert runner.run(room, a1) == {"graded": 0, "kept": 2}
    hand_in("ben", {"own": "x = 1"})
    assert runner.pending(room, a1) and runner.run(room, a1) == {"graded": 1, "kept": 1}
    (room.folder / "secret").write_text("another secret")
    assert runner.run(room, a1) == {"graded": 2, "kept": 0}
    assert runner.run(room, a1, boxed=False) == {"graded": 2, "kept": 0}
    assert len(graded) == 7 and runner.pending(room, a1) == []


def test_where_no_program_starts_in_the_box_nobody_gets_marks(room, a1, hand_in, monkeypatch):
    hand_in("ada", {})
    build = job.Place.build

    def without_a_package(place, folder, *others):
        build(place, folder, *others)
        (folder / "lib" / "wire.py").write_text("import torch_of_another_environment")

    monkeypatch.setattr(job.Place, "build", without_a_package)
    remedy = rf"'torch_of_another_environment'.*the environment of {sys.executable} itself"
    with pytest.raises(machine.BoxError, match=remedy):
        runner.run(room, a1, boxed=False)
    assert room.result("a1", "ada") is None and runner.pending(room, a1)
    monkeypatch.setattr(job.box, "run", lambda *_: box.BoxResult(reason="it took longer than 9 s"))
    with pytest.raises(machine.BoxError, match=r"longer than 9 s.*fewer --workers"):
        runner.run(room, a1, boxed=False)


@pytest.mark.slow
@pytest.mark.ci
def test_one_item_is_graded_again_and_the_marks_of_the_others_stay(
    room, a1, hand_in, graded, monkeypatch
):
    for student in ("ada", "ben", "cy"):
        hand_in(student, {})
    runner.run(room, a1)
    result = room.result("a1", "ada")
    result["items"]["fold_conv"]["points"] = 7.0  # of the grader as it was
    write(room.result_path("a1", "ada"), json.dumps(result))
    with record.Gradebook(f"sqlite:///{room.gradebook}") as book:
        book.find_grade("fold_conv", "a1", "a1", "ada").auto_score = 7.0
        book.db.commit()
    give_by_hand(room, 5, "padding_answer")
    assert runner.run(room, a1, item="bn_affine") == {"graded": 0, "kept": 3}  # nothing changed
    monkeypatch.setattr(runner, "version", lambda name: "corrected")
    hand_in("ben", {"own": "x = 1"})
    graded.clear()
    assert runner.run(room, a1, item="bn_affine") == {"graded": 2, "kept": 0}
    assert graded == [["bn_affine"], ["bn_affine"]]
    marks = record.scores(room, "a1", "ada")
    assert marks["fold_conv"]["points"] == 7 and marks["padding_answer"]["points"] == 5
    assert room.result("a1", "ada")["items"].keys() == {item.name for item in a1.assignment.items}
    monkeypatch.setattr(runner, "version", lambda name: "as before")
    assert "up-to-date mark: 3." in runner.pending(room, a1)[0]  # a correction that is taken back
    monkeypatch.setattr(runner, "version", lambda name: "corrected")
    waiting = runner.pending(room, a1)  # the other items, which only a whole run grades
    assert "up-to-date mark: 3." in waiting[0]
    told = []
    assert runner.run(room, a1, changed=told) == {"graded": 3, "kept": 0} and len(graded[-1]) > 1
    assert told == ["ada: fold_conv had 7 points, now 1"]
    assert record.scores(room, "a1", "ada")["fold_conv"]["points"] == 1 and (
        runner.pending(room, a1) == []
    )
    with pytest.raises(ClassroomError, match="no item 'fold'; there are bn_affine, "):
        runner.run(room, a1, item="fold")


def with_items(exercise, *items):
    return replace(exercise, assignment=replace(exercise.assignment, items=items))


def test_changed_points_and_items_are_released_before_anything_is_graded(room, a1, hand_in, graded):
    hand_in("ada", {})
    first, *rest = a1.assignment.items
    more = with_items(a1, replace(first, points=first.points + 2), *rest)
    numbers = f"{first.name}: {first.points + 2:g} points in specification.py, {first.points:g}"
    remedy = ".*`grade release a1`, then `grade run a1` again"
    for item in (None, rest[0].name):
        with pytest.raises(ClassroomError, match=f"{numbers} in the released notebook{remedy}"):
            runner.run(room, more, item=item)
    with pytest.raises(ClassroomError, match=f"written answers: 5 .*{remedy}"):
        runner.run(room, replace(a1, assignment=replace(a1.assignment, manual_points=5)))
    added = with_items(a1, *a1.assignment.items, replace(first, name="added"))
    said = f"added: {first.points:g} points in specification.py, none in the released notebook"
    with pytest.raises(ClassroomError, match=said + remedy):
        runner.run(room, added)
    assert graded == [] and runner.run(room, a1) == {"graded": 1, "kept": 0}
    with pytest.raises(ClassroomError, match=f"{said}.* once hand-ins were graded"):
        runner.run(room, added)
    with pytest.raises(
        ClassroomError, match=r"not released, for its items changed \(added\): once"
    ):
        release.require_same_items(room, added)
    text = nbformat.read(a1.notebook, as_version=4)
    text.cells = [
        c for c in text.cells if c.metadata.get("nbgrader", {}).get("grade_id") != "conv_text"
    ]
    fewer = replace(a1, folder=room.folder / "fewer")
    write(fewer.notebook, nbformat.writes(text))
    with pytest.raises(ClassroomError, match=r"its cells changed \(conv_text\): texts may change"):
        release.require_same_items(room, fewer)
    with record.Gradebook(f"sqlite:///{room.gradebook}") as book:  # one from an older backup
        book.find_grade_cell(first.name, "a1", "a1").max_score = 3
        book.db.commit()
    said = f"{first.name}: {first.points:g} points in specification.py, 3 in the gradebook"
    with pytest.raises(ClassroomError, match=said + remedy):
        runner.run(room, a1)
    folder = shutil.copytree(a1.folder, room.folder / "mine" / "a1")
    shutil.copy(a1.folder.parent / handout.GUIDE, folder.parent)
    notebook = nbformat.read(folder / "a1.ipynb", as_version=4)
    check = next(cell for cell in notebook.cells if cell.metadata.nbgrader.grade_id == first.name)
    check.metadata.nbgrader.points += 2
    nbformat.write(notebook, folder / "a1.ipynb")
    more = replace(more, folder=folder)
    release.release(room, more)
    assert runner.run(room, more) == {"graded": 1, "kept": 0}
    assert record.scores(room, "a1", "ada")[first.name]["of"] == first.points + 2


def test_a_gradebook_from_a_backup_is_filled_again(room, a1, hand_in, graded):
    for student in ("ada", "ben", "cy"):
        hand_in(student, {})
    runner.run(room, a1)
    give_by_hand(room, 5, "padding_answer")
    assert runner.pending(room, a1) == []
    with record.Gradebook(f"sqlite:///{room.gradebook}") as book:
        book.find_grade("fold_conv", "a1", "a1", "ada").auto_score = 0
        book.remove_submission("a1", "ben")
        book.db.commit()
    assert "up-to-date mark: 2." in runner.pending(room, a1)[0]
    assert runner.run(room, a1) == {"graded": 2, "kept": 1}
    assert record.scores(room, "a1", "ada")["fold_conv"]["points"] == 1
    assert record.scores(room, "a1", "ben")["fold_conv"]["points"] == 1
    assert record.scores(room, "a1", "ada")["padding_answer"]["waiting"]  # of which words?


def test_pages_have_the_name_in_the_class_list_and_collect_names_who_is_late(
    room, a1, hand_in, graded, capsys
):
    room.settings.write_text("late_percent_per_day = 10\n[due]\na1 = 2020-01-01T00:00:00Z\n")
    hand_in("ada", {})
    hand_in("ben", {})
    (room.folder / roster.FILE).write_text("student,name\nada,Ada Lovelace\nben,\n")
    runner.run(room, a1)
    pages = [page.read_text() for page in feedback.write_all(room, a1)]
    assert "Ada Lovelace, handed in" in pages[0] and "ben, handed in" in pages[1]
    pages = [page.read_text() for page in feedback.write_all(room, a1, pseudonyms=True)]
    assert not any("Ada Lovelace, handed in" in page for page in pages)
    (room.folder / "incoming" / "a1").mkdir(parents=True)
    assert main(["grade", "collect", "a1", "--folder", str(room.folder)]) == 0
    assert "2 late (ada, ben); see" in capsys.readouterr().out
    due = datetime.now(UTC) - timedelta(hours=1)  # which costs less than a hundredth of a point
    room.settings.write_text(f"late_percent_per_day = 0.4\n[due]\na1 = {due.isoformat()}\n")
    assert main(["grade", "collect", "a1", "--folder", str(room.folder)]) == 0
    assert "2 late (ada, ben); see" in capsys.readouterr().out


def test_points_for_words_do_not_count_for_other_words(room, a1, hand_in, graded):
    hand_in("ada", {"padding_answer": "At the border."})
    runner.run(room, a1)
    give_by_hand(room, 5, "padding_answer")
    before = record.scores(room, "a1", "ada")
    assert before["padding_answer"]["points"] == 5
    hand_in("ada", {"padding_answer": "Nowhere."})
    runner.run(room, a1)
    row = record.scores(room, "a1", "ada")["padding_answer"]
    assert row["waiting"] and row["points"] == 0
    table = export.table(room, ["a1"])
    assert table["points"].sum() == sum(one["points"] for one in before.values()) - 5
    give_by_hand(room, 5, "padding_answer")  # read again, and they hold
    assert record.scores(room, "a1", "ada")["padding_answer"]["points"] == 5


@pytest.mark.slow
@pytest.mark.ci
def test_points_given_by_hand_to_code_stay_settled_unless_the_hand_in_changes(
    room, a1, hand_in, graded, monkeypatch, capsys
):
    def row():
        return record.scores(room, "a1", "ada")["fold_conv"]

    hand_in("ada", {})
    hand_in("ben", {})
    runner.run(room, a1)
    give_by_hand(room, 5, "fold_conv")
    for version, item in (("corrected", None), ("again", "fold_conv"), ("once more", "bn_affine")):
        monkeypatch.setattr(runner, "version", lambda name, version=version: version)
        assert runner.run(room, a1, item=item)["graded"] == 2
        assert row()["points"] == 5 and not row()["waiting"]
    hand_in("ada", {"padding_answer": "At the border.", "own": "x = 1"})
    runner.run(room, a1)
    assert row()["points"] == 5 and row()["waiting"]
    assert "to be looked at again" in feedback.write_all(room, a1)[0].read_text()
    give_by_hand(room, 5, "padding_answer")
    (moodle, *remarks) = export.export_for("moodle", room, [a1])
    said = "the points given by hand, as the hand-in changed: ada's fold_conv"
    assert any(said in remark for remark in remarks) and "ada,\n" in moodle.read_text()
    assert not any("written answers" in remark for remark in remarks)
    said = "ada's fold_conv: the hand-in changed, so look again at the points given by hand"
    assert any(said in line for line in noteworthy(room, a1))
    assert not any("written answers" in line for line in noteworthy(room, a1))
    assert main(["grade", "export", "a1", "--folder", str(room.folder)]) == 0
    assert f"a1: {said}" in capsys.readouterr().out
    (page, _) = feedback.write_all(room, a1)
    assert "Written answers are still waiting" not in page.read_text()
    csv, page = stats.draw(room, a1)[1:]
    assert "fold_conv,0." in csv.read_text() and "Written answers" not in page.read_text()
    give_by_hand(room, 6, "fold_conv")
    assert runner.run(room, a1, boxed=False)["graded"] == 2
    assert row()["points"] == 6 and not row()["waiting"]


def test_nothing_is_written_in_an_order_that_gives_pseudonyms_away(room, a1, hand_in, monkeypatch):
    room.settings.write_text("anonymous = true\n")
    students = [f"student{number}" for number in range(10)]
    for student in students:
        hand_in(student, {})
    todo, _ = runner._to_do(room, a1, boxed=True)
    by_pseudonym = sorted(students, key=lambda student: pseudonym(room, student))
    assert [task.student for task in todo] == by_pseudonym != students
    for student in students:
        write(room.result_path("a1", student), '{"items": {}}')
    monkeypatch.setattr(feedback, "render", lambda *_: "a page")
    pages = [page.stem for page in feedback.write_all(room, a1, pseudonyms=True)]
    assert pages == [pseudonym(room, student) for student in by_pseudonym]


@pytest.mark.slow
@pytest.mark.ci
def test_whoever_reads_anonymous_answers_finds_no_name_and_points_come_home(
    room, a1, hand_in, graded
):
    def anonymous(value):
        room.settings.write_text(f"anonymous = {value}\n")

    anonymous("true")
    hand_in("zebulon", {"padding_answer": "At the border."})
    runner.run(room, a1)
    with record.Gradebook(f"sqlite:///{room.gradebook}") as book:
        known = [submission.student_id for submission in book.assignment_submissions("a1")]
        assert known == [pseudonym(room, "zebulon")]
        grade = book.find_grade("padding_answer", "a1", "a1", known[0])
        grade.manual_score, grade.needs_manual_grade = 5, False
        book.find_grade("fold_conv", "a1", "a1", known[0]).manual_score = 1
        book.db.commit()
    seen = [room.gradebook, room.folder / "checked", room.folder / "autograded"]
    files = [path for place in seen for path in (place, *place.rglob("*"))]
    assert len(files) > 6 and not any("zebulon" in str(path) for path in files)
    assert not any(b"zebulon" in path.read_bytes() for path in files if path.is_file())
    (page,) = feedback.write_all(room, a1, pseudonyms=True)
    assert "zebulon" not in str(page) + page.read_text() and known[0] in page.read_text()
    write(room.folder / "feedback" / "a1" / "left.html", "of somebody who has left")
    (page,) = feedback.write_all(room, a1)
    assert [path.name for path in page.parent.iterdir()] == ["zebulon.html"]
    assert "zebulon, handed in" in page.read_text()
    for days, words in (("1", "in on time<"), ("2", "in 1 day late<"), ("3", "in 2 days late<")):
        listed = f"student,extra_days,late_days_a1\nzebulon,1,{days}\n"
        (room.folder / "class_list.csv").write_text(listed)
        assert words in feedback.write_all(room, a1)[0].read_text()
    (room.folder / "class_list.csv").write_text("student,extra_days\nzebulon,1\n")
    due = "anonymous = true\n[due]\na1 = 2019-01-01T00:00:00Z\n"
    room.settings.write_text(due)
    assert "UTC; it was due 2019-01-02 00:00:00 UTC<" in feedback.write_all(room, a1)[0].read_text()
    room.settings.write_text(due.replace("Z", "+01:00"))
    words = "UTC+01:00; it was due 2019-01-02 00:00:00 UTC+01:00<"
    assert words in feedback.write_all(room, a1)[0].read_text()
    arrivals.note(room.submission("zebulon", "a1"), datetime(2030, 1, 1, tzinfo=UTC), "in-time")
    assert "handed in on time<" in feedback.write_all(room, a1)[0].read_text()  # Canvas says so
    anonymous("true")
    (page,) = feedback.write_all(room, a1)
    points = len(a1.assignment.items) + 5
    assert f"{points} of 100 points" in page.read_text()
    assert export.table(room, ["a1"])["student"].unique().tolist() == ["zebulon"]
    hand_in("zebulon", {"padding_answer": "At the border.", "own": "x = 1"})
    runner.run(room, a1)
    assert record.scores(room, "a1", "zebulon")["padding_answer"]["points"] == 5  # not read again
    assert any(f"{known[0]}'s fold_conv: the hand-in changed" in e for e in noteworthy(room, a1))
    anonymous("false")
    with pytest.raises(ClassroomError, match="graded with true: set it back"):
        record.scores(room, "a1", "zebulon")
    anonymous("1")
    with pytest.raises(ClassroomError, match="anonymous is 1; use true or false"):
        record.scores(room, "a1", "zebulon")


def test_the_list_before_the_marks_names_what_cost_points_by_a_slip(room, a1, hand_in, graded):
    lost = {"bn_affine": {"points": 0.0, "of": 8.0, "message": ""}}
    slips = {"notes": ["f is defined again in a cell of your own, and that one counts."]}
    slips["printed"] = "grading installs nothing, so this was left out: pip install einops"
    for student, items in (("ada", lost), ("ben", {})):
        hand_in(student, {})
        result = slips | {"items": items, "readable": True}
        write(room.result_path("a1", student), json.dumps(result))
    said = "\n".join(noteworthy(room, a1))
    assert "ada: f is defined again" in said and "ada: a cell wanted to install" in said
    assert "ben" not in said


@pytest.mark.slow
@pytest.mark.ci
def test_a_grader_that_fails_on_one_item_leaves_the_rest_and_is_tried_again(
    room, a1, hand_in, graded, monkeypatch
):
    hand_in("ada", {})
    runner.run(room, a1)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "version", lambda name: "corrected")
        patch.setattr(runner.judge, "grade", Mock(side_effect=RuntimeError("something odd")))
        runner.run(room, a1, item="bn_affine")
        runner.run(room, a1)
        assert "something odd" in room.result("a1", "ada")["notes"][0]
        assert any("ada: The grader failed" in line for line in noteworthy(room, a1))
        every = len(a1.assignment.items)  # of which each has the point that it had
        marks = record.scores(room, "a1", "ada").values()
        assert points_of(room, "ada") == {"ada": every} and sum(r["points"] for r in marks) == every
        patch.setattr(runner.judge, "grade", Mock(side_effect=AssertionError))
        assert runner.run(room, a1, item="bn_affine") == {"graded": 0, "kept": 0}
    assert runner.run(room, a1) == {"graded": 1, "kept": 0}
    assert not any("failed" in line for line in noteworthy(room, a1))


def test_a_grader_that_fails_costs_only_the_one_submission(room, a1, hand_in, graded, monkeypatch):
    real = runner.judge.grade

    def fail(exercise, submissions, *rest, **named):
        if any(
            "strange" in cell.source
            for submission in submissions
            for cell in submission.notebook.cells
        ):
            raise RuntimeError("something odd")
        return real(exercise, submissions, *rest, **named)

    monkeypatch.setattr(runner.judge, "grade", fail)
    hand_in("ada", {})
    hand_in("ben", {"own": "strange = 1"})
    assert runner.run(room, a1) == {"graded": 2, "kept": 0}
    assert points_of(room, "ada", "ben") == {"ada": len(a1.assignment.items), "ben": 0}
    assert "something odd" in room.result("a1", "ben")["notes"][0]
    monkeypatch.setattr(runner.judge, "grade", real)
    assert runner.run(room, a1) == {"graded": 1, "kept": 1}  # a failure is not kept
    assert points_of(room, "ben") == {"ben": len(a1.assignment.items)}


@pytest.mark.slow
@pytest.mark.ci
def test_a_changed_answer_waits_to_be_read_also_after_a_stopped_run(
    room, a1, hand_in, skeleton, graded, monkeypatch
):
    def waits():
        return record.scores(room, "a1", "ada")["padding_answer"]["waiting"]

    hand_in("ada", {"padding_answer": "first"})
    runner.run(room, a1)
    give_by_hand(room, 5, "padding_answer")
    hand_in("ada", {"padding_answer": "first", "own": "x = 1"})
    assert runner.run(room, a1)["graded"] == 1 and not waits()
    write(
        room.folder / "released" / "a1" / "a1.ipynb",
        json.dumps(skeleton).replace("BatchNorm", "batch norm"),
    )
    assert runner.run(room, a1)["graded"] == 1 and not waits()
    hand_in("ada", {"padding_answer": "second"})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(record.Autograde, "start", Mock(side_effect=KeyboardInterrupt))
        runner.run(room, a1)
    assert runner.run(room, a1)["graded"] == 1 and waits()


def test_nothing_that_a_student_wrote_steers_the_terminal_or_stops_the_pages(
    room, a1, hand_in, graded
):
    hand_in("ada", {})
    runner.run(room, a1)
    result = room.result("a1", "ada")
    result["items"]["fold_conv"] |= {
        "refused": True,
        "message": "Not allowed: line 1 (x \x1b[2J\rben \ud800) calls it",
    }
    write(room.result_path("a1", "ada"), json.dumps(result))
    _, line = noteworthy(room, a1)
    assert line.isprintable() and "fold_conv earned nothing" in line
    give_by_hand(room, 5, "fold_conv")
    assert not any("earned nothing" in line for line in noteworthy(room, a1))  # it is settled
    (room.folder / "class_list.csv").write_text("name\nBen Peirce\n")
    assert any("ada is not on the class list" in line for line in noteworthy(room, a1))
    assert strays(room, "a1", []) != [] == strays(room, "a1", ["ada is not on the class list"])
    (page,) = feedback.write_all(
        room, a1
    )  # a half character, which no file can hold, comes out as its number
    assert "ben \\ud800) calls it" in page.read_text()


def test_a_mistake_that_another_exercise_calls_is_named(room, a1, skeleton):
    calls = "def fold_model(model):\n    return bn_affine(model)"
    cells = {"fold_model_solution": calls, "bn_train_solution": "bn_affine = ?"}
    folder = room.folder / "checked" / "ada" / "a1"
    folder.mkdir(parents=True)
    nbformat.write(answers.fill(skeleton, cells), folder / "a1.ipynb")
    names = ("bn_affine", "fold_model", "bn_train")
    lost = {name: {"points": 0, "of": 8} for name in names}
    found = calls_of_what_is_wrong(room, a1, "ada", {"items": lost})
    assert found == [("fold_model", ["bn_affine"])]
    right = lost | {"bn_affine": {"points": 8, "of": 8}}
    assert calls_of_what_is_wrong(room, a1, "ada", {"items": right}) == []
    lost["fold_model"]["message"] = "it calls bn_affine, which is not there"  # that says it all
    assert calls_of_what_is_wrong(room, a1, "ada", {"items": lost}) == []


def test_an_error_in_a_function_that_the_answer_calls_is_placed():
    student = {}
    exec("def inner(x):\n    return x.one\ndef outer(x):\n    return inner(x)", student)
    linecache.cache["<string>"] = (0, None, ["\n", "return x.one\n"], "<string>")
    for name, place in (("outer", " of inner"), ("inner", "")):
        with pytest.raises(AttributeError) as problem:
            student[name](1)
        said = wire.described(problem.value, student)
        assert said.endswith(f"in the line `return x.one`{place}")
    del linecache.cache["<string>"]


def test_pages_that_do_not_fit_into_moodles_zip_file_are_named(room, a1, monkeypatch, capsys):
    pages = [room.folder / "feedback" / "a1" / f"{name}.html" for name in ("ada", "eve")]
    monkeypatch.setattr(feedback, "write_all", lambda *_: pages)
    monkeypatch.setattr(feedback, "write_for_moodle", lambda *_: room.folder / "a1.zip")
    monkeypatch.setattr(collecting, "moodle_folders", lambda *_: {"ada": "Ada_11"})
    assert main(["grade", "feedback", "a1", "--folder", str(room.folder)]) == 0
    said = capsys.readouterr().out
    assert f"{room.folder / 'a1.zip'}, without those that came in another way: eve\n" in said


FOR_TEACHERS = ("answers", "arrivals", "classroom", "collect", "export", "feedback")
FOR_TEACHERS += ("gradescope", "handout", "noteworthy", "release", "similarity", "stats")


def test_only_what_judges_makes_marks_old(tmp_path, a1, monkeypatch):
    grader = shutil.copytree(job.HERE, tmp_path / "grading")
    exercise = replace(a1, folder=shutil.copytree(a1.folder, tmp_path / "a1"))
    monkeypatch.setattr(runner.job, "HERE", grader)
    monkeypatch.setattr(runner.course, "load", lambda name: exercise)
    shared = shutil.copytree(Path(runner.checks.__file__).parent, tmp_path / "checks")
    monkeypatch.setattr(runner.checks, "__file__", str(shared / "__init__.py"))
    teachers = {grader / f"{name}.py" for name in FOR_TEACHERS}
    teachers |= {exercise.folder / "answers.py", exercise.notebook}
    judging = {*grader.rglob("*.py"), *shared.rglob("*.py"), exercise.folder / "specification.py"}
    judging |= {exercise.folder / "stats.py", exercise.folder / "networks.py"}
    for path in sorted(teachers | judging):
        before = runner.version("a1")
        write(path, (path.read_text() if path.exists() else "") + "\n")
        assert (runner.version("a1") == before) == (path in teachers), path
    before = runner.version("a1")
    monkeypatch.setattr(runner.torch, "__version__", "0")
    assert runner.version("a1") != before


def test_what_collect_said_of_others_stays_where_one_could_not_be_read(room, a1):
    told = "all.zip was not unpacked, because the notebook lies beside it"
    torn = "the notebook is empty: hand it in again"
    rows = [
        f'ben,ben,,collected,"{told}"',
        f"eve,eve,,unreadable,{torn}",
        f"cy,cy,,unchanged,{torn}",
    ]
    write(
        room.folder / "collected" / "a1.csv",
        "\n".join(["entry,student,arrived (UTC),became,remark", *rows]),
    )
    room.submission("eve", "a1").mkdir(parents=True)
    result = {"readable": False, "notes": [f"Nothing could be graded: {torn}."], "items": {}}
    write(room.result_path("a1", "eve"), json.dumps(result))
    said = "\n".join(noteworthy(room, a1))
    assert f"ben was collected, but {told}" in said and f"cy is the same as before: {torn}" in said
    assert "eve was unreadable" not in said and f"eve: Nothing could be graded: {torn}" in said
