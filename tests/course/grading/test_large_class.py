"""A large class, some of it damaged, whose grading is killed again and again, gets the same marks.

GRADING_CLASS=200 and so on says how large; on two quiet cores a hand-in takes less than 3 s.
"""

import os
import shutil
import subprocess
import sys
import time
from itertools import cycle, islice
from pathlib import Path

import nbformat
import pytest

from course.grading import answers, runner
from course.grading.classroom import Classroom, write
from course.grading.collect import collect

pytestmark = [pytest.mark.box, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[3]
STUDENTS = int(os.environ.get("GRADING_CLASS", "20"))
KILLS = int(os.environ.get("GRADING_KILLS", "2"))
DAMAGED = STUDENTS // 10
SECONDS_EACH = float(os.environ.get("GRADING_SECONDS", "inf"))  # 3 where nothing else runs


def make_class(room, exercise, students=STUDENTS, damaged=DAMAGED):
    """The people of the demonstration again and again, then torn notebooks and torn zip files."""
    people = answers.make_class(room, exercise)[:-1]  # the last one's is damaged
    incoming, name = room.folder / "incoming" / "a1", "a1.ipynb"
    sound = [(incoming / person / name).read_text() for person in people]
    shutil.rmtree(incoming)
    for number, text in enumerate(islice(cycle(sound), students - damaged)):
        notebook = nbformat.reads(text, as_version=4)
        own = nbformat.v4.new_code_cell(f"number = {number}")  # no two are the same
        notebook.cells.append(own)
        write(incoming / f"s{number:03}" / name, nbformat.writes(notebook))
    torn = sound[0].encode()
    for number in range(damaged):
        kind = [f"d{number:03}/{name}", f"d{number:03}.zip"][number % 2]
        write(incoming / kind, torn[: 1000 * (number + 1)])
    collect(room, "a1")


def marks_of(room):
    """All points and messages, without times and what was printed, which may differ."""
    found = {}
    for student in room.students("a1"):
        if result := room.result("a1", student):
            rows = result["items"].items()
            found[student] = {item: (row["points"], row["message"]) for item, row in rows}
    return found


def points_of(marks):
    return {
        student: {item: points for item, (points, _) in rows.items()}
        for student, rows in marks.items()
    }


def killed_run(room, at):
    """Grade until so many are done, then kill the grader."""
    words = [sys.executable, "-m", "course", "grade", "run", "a1", "--folder", room.folder]
    process = subprocess.Popen(words, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    results = room.folder / "results" / "a1"
    while process.poll() is None and len([*results.glob("*.json")]) < at:
        time.sleep(0.1)
    process.kill()
    process.wait()


def test_a_class_that_was_killed_has_the_marks_of_one_that_was_not(room, a1, tmp_path):
    make_class(room, a1)
    quiet = Classroom.open(shutil.copytree(room.folder, tmp_path / "quiet"))
    start = time.monotonic()
    assert runner.run(quiet, a1) == {"graded": STUDENTS, "kept": 0}
    each = (time.monotonic() - start) / STUDENTS
    print(f"{STUDENTS} hand-ins, {DAMAGED} of them damaged: {each:.1f} s each")
    for kill in range(KILLS):
        killed_run(room, at=(kill + 1) * STUDENTS // (KILLS + 1))
    counts = runner.run(room, a1)
    assert sum(counts.values()) == STUDENTS and counts["kept"] >= STUDENTS // (KILLS + 1)
    expected, found = points_of(marks_of(quiet)), points_of(marks_of(room))
    assert found == expected and len(expected) == STUDENTS
    whole = [sum(rows.values()) == 88 for rows in expected.values()]
    assert sum(whole) >= (STUDENTS - DAMAGED) // 4  # of twelve people four are right in everything
    assert each < SECONDS_EACH
