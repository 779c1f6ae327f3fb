"""The working copy of a learner: nothing of theirs is overwritten, everything new arrives."""

import re
from shutil import copy2, copytree

import pytest

from course.__main__ import main
from course.commands import lab
from course.grading.course import FOLDER, names


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A small course, and an empty place to work in."""
    notebooks = tmp_path / "notebooks"
    (notebooks / "exercises").mkdir(parents=True)
    (notebooks / "00_start_here.ipynb").write_text("first", encoding="utf-8")
    (notebooks / "01_more.ipynb").write_text("more", encoding="utf-8")
    (notebooks / "exercises" / "lesson_00.py").write_text("exercise", encoding="utf-8")
    monkeypatch.setattr(lab, "NOTEBOOKS", notebooks)
    return notebooks, tmp_path / "work"


def raising(problem):
    def function(*_, **__):
        raise problem

    return function


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != lab.COPIED)
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


def test_a_new_working_copy_has_everything_and_the_answers_that_were_there(course):
    notebooks, work = course
    (notebooks / "mine.py").write_text("answers", encoding="utf-8")
    (notebooks / "mine").mkdir()
    (notebooks / "mine" / "tiny-trained.safetensors").write_text("weights", encoding="utf-8")
    told = lab.bring_up_to_date(work)
    assert contents(work) == contents(notebooks)
    assert len(told) == 1 and "Your answers are now in" in told[0]
    assert lab.bring_up_to_date(work) == []


def test_assignments_of_an_edition_arrive_as_they_are(course):
    notebooks, work = course
    (notebooks / "assignments" / "a1" / "__pycache__").mkdir(parents=True)  # one was opened there
    for file in ("a1.ipynb", "visible.safetensors", ".DS_Store", "desktop.ini"):
        (notebooks / "assignments" / "a1" / file).write_text("a1", encoding="utf-8")
    lab.bring_up_to_date(work)
    arrived = {path for path in contents(work) if path.startswith("assignments")}
    assert arrived == {"assignments/a1/a1.ipynb", "assignments/a1/visible.safetensors"}


@pytest.fixture
def clone(course, tmp_path, monkeypatch):
    """The small course with the source of an assignment, and the place to work in."""
    notebooks, work = course
    monkeypatch.setattr(lab, "MADE", tmp_path / "made")
    copytree(FOLDER / "a1", notebooks / "assignments" / "a1")
    copy2(FOLDER / "STUDENT.md", notebooks / "assignments")
    return notebooks / "assignments" / "a1", work


def test_assignments_of_a_clone_arrive_without_their_solutions(clone):
    _, work = clone
    lab.bring_up_to_date(work)
    arrived = {path.name for path in (work / "assignments" / "a1").iterdir()}
    assert arrived >= {"a1.ipynb", "visible.safetensors", "instant.py", "driver.py", "STUDENT.md"}
    assert not arrived & {"specification.py", "answers.py", "networks.py"}
    notebook = (work / "assignments" / "a1" / "a1.ipynb").read_text(encoding="utf-8")
    assert "YOUR CODE HERE" in notebook and "SOLUTION" not in notebook


def test_a_course_that_cannot_be_written_to_has_its_assignments_made_in_the_working_copy(
    clone, monkeypatch
):
    _, work = clone
    monkeypatch.setattr(lab.doctor, "TemporaryFile", raising(OSError("Zugriff verweigert")))
    lab.bring_up_to_date(work)
    assert (work / "assignments" / "a1" / "visible.safetensors").exists()
    assert not lab.MADE.exists()


def test_assignments_are_made_again_only_after_a_change(clone):
    source, work = clone
    lab.bring_up_to_date(work)
    made = lab.MADE / "a1" / "visible.safetensors"
    before = made.stat().st_mtime_ns
    lab.bring_up_to_date(work)
    assert made.stat().st_mtime_ns == before
    (source / "driver.py").touch()
    lab.bring_up_to_date(work)
    assert made.stat().st_mtime_ns > before


def test_an_assignment_on_which_somebody_works_is_never_overwritten(clone):
    source, work = clone
    lab.bring_up_to_date(work)
    mine = work / "assignments" / "a1" / "a1.ipynb"
    mine.write_text("my work", encoding="utf-8")
    assert lab.bring_up_to_date(work) == []
    notebook = (source / "a1.ipynb").read_text(encoding="utf-8")
    (source / "a1.ipynb").write_text(notebook.replace("BatchNorm", "Batchnorm"), encoding="utf-8")
    (told,) = lab.bring_up_to_date(work)
    assert mine.read_text(encoding="utf-8") == "my work"
    assert "yours is kept" in told and mine.with_name("a1.new.ipynb").exists()


def test_links_to_assignments_lead_somewhere():
    there = {f"{name}/{name}.ipynb" for name in names()}
    for path in lab.NOTEBOOKS.glob("*.ipynb"):
        linked = re.findall(r"\]\(assignments/(a\d/[^)]*)\)", path.read_text(encoding="utf-8"))
        assert set(linked) <= there, path.name


def test_an_update_replaces_what_was_not_touched_and_puts_the_rest_beside(course):
    notebooks, work = course
    lab.bring_up_to_date(work)
    (work / "01_more.ipynb").write_text("more, and my own notes", encoding="utf-8")
    (work / "mine.py").write_text("my answers", encoding="utf-8")
    for path in (*notebooks.glob("*.ipynb"), notebooks / "exercises" / "lesson_00.py"):
        path.write_text(f"{path.read_text('utf-8')}, second edition", encoding="utf-8")
    (notebooks / "02_new.ipynb").write_text("a new lesson", encoding="utf-8")
    told = lab.bring_up_to_date(work)
    assert contents(work) == {
        "00_start_here.ipynb": "first, second edition",
        "01_more.ipynb": "more, and my own notes",
        "01_more.new.ipynb": "more, second edition",
        "02_new.ipynb": "a new lesson",
        "exercises/lesson_00.py": "exercise, second edition",
        "mine.py": "my answers",
    }
    assert len(told) == 1 and "yours is kept" in told[0]
    assert lab.bring_up_to_date(work) == []  # said once


def test_a_new_version_that_was_changed_too_is_kept(course):
    notebooks, work = course
    lab.bring_up_to_date(work)
    for version, changed in (("v2", "01_more"), ("v3", "01_more.new"), ("v4", "00_start_here")):
        (work / f"{changed}.ipynb").write_text("two hours of answers", encoding="utf-8")
        (notebooks / "01_more.ipynb").write_text(version, encoding="utf-8")
        lab.bring_up_to_date(work)
    found = {path.name: path.read_text("utf-8") for path in work.glob("01_more*")}
    assert found == {
        "01_more.ipynb": "two hours of answers",
        "01_more.new.ipynb": "two hours of answers",
        "01_more.new2.ipynb": "v4",
    }


def test_a_torn_record_is_named_with_its_remedy(course, capsys):
    _, work = course
    lab.bring_up_to_date(work)
    (work / lab.COPIED).write_text("{", encoding="utf-8")
    assert main(["lab", "--folder", str(work)]) == 1
    told = capsys.readouterr().err
    assert f"{work / lab.COPIED} cannot be read (" in told and "delete it" in told


class Asking:
    """In place of JupyterLab: at Ctrl-C it asks, and ends at the second one."""

    def __init__(self, words, cwd):
        Asking.asked = words[1:], cwd
        self.answers = iter([KeyboardInterrupt, KeyboardInterrupt, 3])

    def wait(self):
        answer = next(self.answers)
        if answer is KeyboardInterrupt:
            raise answer
        return answer


def test_jupyter_may_ask_and_end_by_itself_after_ctrl_c(course, monkeypatch):
    monkeypatch.setattr(lab.subprocess, "Popen", Asking)
    for user, more in ((1000, []), (0, ["--allow-root"])):
        monkeypatch.setattr(lab.os, "geteuid", lambda user=user: user, raising=False)
        assert main(["lab", "--folder", str(course[1])]) == 3
        assert Asking.asked == (["-m", "jupyterlab", lab.FIRST, *more], course[1])  # in the copy


def test_a_changed_file_is_left_alone_while_the_course_has_nothing_new(course):
    notebooks, work = course
    lab.bring_up_to_date(work)
    (work / "00_start_here.ipynb").write_text("mine", encoding="utf-8")
    (notebooks / "mine.py").write_text("older answers", encoding="utf-8")
    assert lab.bring_up_to_date(work) == []
    assert contents(work)["00_start_here.ipynb"] == "mine"
    assert "mine.py" not in contents(work)


def test_the_command_makes_the_copy_without_opening_anything(course):
    _, work = course
    assert main(["lab", "--update", "--folder", str(work)]) == 0
    assert (work / lab.FIRST).exists()
