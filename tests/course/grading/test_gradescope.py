"""An autograder for Gradescope, unpacked and run as in a container there, gives the same marks."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from course.grading import answers, box, gradescope, machine, runner
from course.grading.classroom import ClassroomError
from course.grading.job import Place

pytestmark = [pytest.mark.slow, pytest.mark.box, pytest.mark.ci]
needs_root = pytest.mark.skipif(
    getattr(os, "geteuid", int)() != 0, reason="as in the container, root is needed"
)

CURIOUS = """
import os, signal
parent = open(f"/proc/{os.getppid()}/stat").read().split()[3]  # of the program in the box
for attempt in (
    lambda: open("HERE/source/class/secret").read(),
    lambda: os.listdir("HERE/submission"),
    lambda: os.kill(int(parent), signal.SIGKILL),
    lambda: __import__("socket").socket(),
):
    try:
        print("got", attempt())
    except OSError as problem:
        print(type(problem).__name__)
"""


@pytest.fixture
def autograder(room, a1, tmp_path):
    """Gradescope's folder, with the zip file unpacked as Gradescope does."""
    here = tmp_path / "autograder"
    for name in ("source", "submission", "results"):
        (here / name).mkdir(parents=True)
    with zipfile.ZipFile(gradescope.pack(room, a1)) as archive:
        archive.extractall(here / "source")
        assert archive.getinfo("run_autograder").external_attr >> 16 == 0o755
    shutil.copy(here / "source" / "run_autograder", here)
    (here / "run_autograder").chmod(0o755)
    return here


HERE = "/mnt/autograder"
# What gradescope-autograders.readthedocs.io/en/latest/specs knows, which says nothing of more.
REPORT = {"score", "execution_time", "output", "output_format", "test_output_format"}
REPORT |= {"test_name_format", "visibility", "stdout_visibility", "extra_data", "tests"}
TEST = {"score", "max_score", "status", "name", "name_format", "number", "output"}
TEST |= {"output_format", "tags", "visibility", "extra_data"}


def run(here, submission):
    """Run it where all users may read Python and, but for its own precautions, the autograder."""
    shutil.rmtree(here / "submission")
    shutil.copytree(submission, here / "submission")
    here.chmod(0o755)
    words = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/mnt", "--bind", here, HERE]
    words += ["--perms", "0755", "--tmpfs", Path.home()]
    for prefix in (one for one in machine.pythons() if Path(one).is_relative_to(Path.home())):
        above = [str(parent) for parent in reversed(Path(prefix).parents)][1:]
        words += [word for parent in above for word in ("--perms", "0755", "--dir", parent)]
        words += ["--ro-bind", prefix, prefix]
    python = {"COURSE_PYTHON": sys.executable, "PYTHONPATH": ""}
    words += ["--chdir", HERE, f"{HERE}/run_autograder"]
    return subprocess.run(words, env=os.environ | python, capture_output=True, text=True)


@needs_root
def test_the_marks_are_those_of_grade_run_and_the_secret_is_out_of_reach(
    room, a1, hand_in, autograder
):
    solved, wrong = answers.solution_cells(a1), answers.variant(a1, False, 0)
    last = list(wrong)[-2:]
    hand_in("ada", solved | {"own": CURIOUS.replace("HERE", HERE)})
    hand_in("ben", solved | {name: wrong[name] for name in last})
    hand_in("cy", {"own": answers.FORGERY})
    damaged = room.submission("dee", "a1")
    damaged.mkdir(parents=True)
    (damaged / "a1.ipynb").write_text('{"cells": [')
    runner.run(room, a1)
    for student in room.students("a1"):
        done = run(autograder, room.submission(student, "a1"))
        assert done.returncode == 0, done.stdout + done.stderr
        path = autograder / "results" / "results.json"
        found, expected = json.loads(path.read_text()), room.result("a1", student)
        path.unlink()
        marks = {test["name"]: (test["score"], test["max_score"]) for test in found["tests"]}
        rows = expected["items"].items()
        assert marks == {name: (row["points"], row["of"]) for name, row in rows}, student
        assert found["visibility"] == "after_published" and found["stdout_visibility"] == "hidden"
        assert found.keys() <= REPORT and all(test.keys() <= TEST for test in found["tests"])
        assert {test["status"] for test in found["tests"]} <= {"passed", "failed"}
        if student == "ada":
            assert sum(score for score, _ in marks.values()) == 88
            assert found["output"].count("PermissionError") == 4 and "got" not in found["output"]
        if student == "dee":
            assert "not valid JSON" in found["output"]


def test_without_the_means_to_keep_code_apart_there_is_no_mark(room, a1, monkeypatch, autograder):
    shutil.copy(room.folder / "released" / "a1" / "a1.ipynb", autograder / "submission")
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)
    with pytest.raises(machine.BoxError, match="must be root in a container of its own"):
        gradescope.grade(autograder)
    monkeypatch.undo()
    if os.geteuid() == 0:

        def without_a_program(place, folder, *others):
            folder.with_name(box.INPUTS).touch()

        monkeypatch.setattr(Place, "build", without_a_program)
        with pytest.raises(machine.BoxError, match="no hand-in can be run here"):
            gradescope.grade(autograder)


def test_what_was_not_released_is_not_packed(room, a1):
    shutil.rmtree(room.folder / "released" / "a1")
    with pytest.raises(ClassroomError, match="grade release a1"):
        gradescope.pack(room, a1)
