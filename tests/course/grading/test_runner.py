"""The whole class: resumable, nothing graded twice, nothing stops the others."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest

from course.__main__ import main
from course.grading import answers, export, feedback, runner, stats
from course.grading.collect import collect
from course.grading.noteworthy import noteworthy
from tests.course.grading.test_box import processes_of
from tests.course.grading.test_teachers import give_by_hand

pytestmark = [pytest.mark.box, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[3]


def _graded(room):
    lines = [json.loads(line) for line in (room.folder / "log.jsonl").read_text().splitlines()]
    return [line["student"] for line in lines if line["event"] == "graded"]


@pytest.mark.ci
def test_a_run_that_is_killed_loses_nothing_and_leaves_nothing(
    room, a1, hand_in, tmp_path, monkeypatch
):
    for index in range(6):
        hand_in(f"s{index}", {"own": f"# {index}"})
    words = [
        sys.executable,
        "-m",
        "course",
        "grade",
        "run",
        "a1",
        "--workers",
        "1",
        "--folder",
        room.folder,
    ]
    boxes = tmp_path / "boxes"
    boxes.mkdir()
    surroundings = os.environ | {"TMPDIR": str(boxes)}
    process = subprocess.Popen(words, cwd=REPOSITORY, stderr=subprocess.DEVNULL, env=surroundings)
    while not (len(_graded(room)) >= 2 and processes_of(boxes)) and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while processes_of(boxes) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(boxes) == []
    before = _graded(room)
    counts = runner.run(room, a1)
    assert 2 <= len(before) <= counts["kept"] < 6 and counts["graded"] + counts["kept"] == 6
    assert sorted(set(_graded(room))) == [f"s{index}" for index in range(6)]
    assert len(_graded(room)) in (5, 6)  # killed between the result and its line in the log
    monkeypatch.setattr(tempfile, "tempdir", str(boxes))
    assert main(["grade", "run", "a1", "--folder", str(room.folder)]) == 0
    assert [*boxes.iterdir(), *room.folder.rglob("*.part")] == []


def test_a_run_in_which_nothing_is_new_shows_no_bar(room, a1, capsys):
    assert runner.run(room, a1) == {"graded": 0, "kept": 0}
    assert "0it" not in capsys.readouterr().err


def test_unsafe_results_are_stamped_and_never_pass_for_safe_ones(room, a1, hand_in, monkeypatch):
    hand_in("ada", answers.solution_cells(a1))
    monkeypatch.setattr(runner.machine, "obstacle", lambda: "no box here")
    with pytest.raises(runner.machine.BoxError, match="no box here"):
        runner.run(room, a1)
    runner.run(room, a1, boxed=False)
    (path,) = feedback.write_all(room, a1)
    assert feedback.STAMP in path.read_text()
    assert not export.table(room, ["a1"])["boxed"].any()
    monkeypatch.undo()
    assert runner.run(room, a1) == {"graded": 1, "kept": 0}
    assert feedback.STAMP not in feedback.write_all(room, a1)[0].read_text()


def test_the_demonstration_class_from_end_to_end(room, a1):
    (room.folder / "secret").write_text("secret of the tests")  # wrong answers are wrong on it
    students = answers.make_class(room, a1)
    broken = room.submission("quin", "a1")
    broken.mkdir(parents=True)
    os.mkfifo(broken / "a1.ipynb")
    assert [one.student for one in collect(room, "a1") if one.remark] == ["mona"]
    assert runner.run(room, a1)["graded"] == len(students) + 1
    told = [line for line in noteworthy(room, a1) if "mona" in line]
    assert len(told) == 1 and "Nothing could be graded: the notebook is not valid JSON" in told[0]
    odd = [line.strip() for line in noteworthy(room, a1) if "read the code" in line]
    needless = {"ines": "os._exit", "jan": "import driver, wire"}
    assert odd == [f"{who}: read the code, as no exercise needs {n}" for who, n in needless.items()]
    marks = export.table(room, ["a1"])
    unread = marks[marks["waiting"]]["student"].nunique()
    assert f"in {unread} hand-ins" in noteworthy(room, a1)[-1] and unread > 1
    totals = marks.groupby("student")["points"].sum()
    expected = {"ada": 88, "bela": 88, "chen": 88, "lena": 88, "dora": 38, "hugo": 76}
    assert totals.to_dict() == {
        student: expected.get(student, 0) for student in [*students, "quin"]
    }
    pages = {path.stem: path.read_text() for path in feedback.write_all(room, a1)}
    assert set(pages) == {*students, "quin"}
    for student, page in pages.items():
        assert "<script" not in page and "_oracle" not in page and room.secret not in page, student
        assert str(room.folder) not in page
    assert "took longer than 10 s" in pages["hugo"] and "not valid JSON" in pages["mona"]
    assert "<b>hint</b>" in pages["dora"] and "<b>hint</b>" not in pages["mona"]
    assert "waiting" in pages["ada"] and "<math" in pages["ada"]
    files = export.export(room, ["a1"], pseudonyms=True)
    wide = pd.read_csv(files[1])
    assert sorted(wide["total"]) == sorted(totals) and not set(wide["student"]) & set(totals.index)
    assert stats.draw(room, a1)[0].stat().st_size > 10_000


def test_hand_grading_and_lateness_reach_the_page(room, a1, hand_in):
    room.settings.write_text(
        "late_percent_per_day = 10\nlate_days = 5\n[due]\na1 = 2020-01-01T00:00:00Z\n"
    )
    folder = hand_in("ada", answers.solution_cells(a1) | {"padding_answer": "At the border."})
    (folder.parent / ".a1.arrived").write_text("2020-01-02T12:00:00+00:00")
    runner.run(room, a1)
    give_by_hand(room, 2, "padding_answer", comment="What helps is missing.")
    page = feedback.render(room, a1, "ada", room.result("a1", "ada"))
    assert (
        "72 of 100" in page
        and "What helps is missing." in page
        and "18 points, 20% of 90, were taken off" in page
    )
