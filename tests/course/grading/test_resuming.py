"""What a run grades and what it leaves alone, with made-up grading, so no box is opened; and runs on a cluster."""

import json
import logging
import platform
import secrets
import sys
import warnings

import pytest

from course.grading import answers, feedback, runner
from course.grading.classroom import write
from course.grading.runner import ClusterError, hands
from tests.course.grading.conftest import points_of


@pytest.fixture
def graded(monkeypatch):
    """The items of every submission that is graded, in order; each earns one point."""
    calls = []

    def grade(exercise, submissions, sheets, limits=None, boxed=True):
        calls.extend([sheet.item.name for sheet in sheets] for _ in submissions)
        rows = {sheet.item.name: {"points": 1.0, "of": sheet.item.points, "message": ""} for sheet in sheets}
        return [{"items": rows, "notes": [], "printed": "", "boxed": boxed} for _ in submissions]

    monkeypatch.setattr(runner.judge, "grade", grade)
    monkeypatch.setattr(runner.machine, "obstacle", lambda: None)
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

    def fail(exercise, submissions, *rest, **named):
        if any("strange" in cell.source for submission in submissions for cell in submission.notebook.cells):
            raise RuntimeError("something odd")
        return real(exercise, submissions, *rest, **named)

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
    (room.folder / "class_list.csv").write_text("name\nBen Peirce\n")
    assert "ada is not on the class list" in runner.noteworthy(room, a1)[2]
    (page,) = feedback.write_all(room, a1)  # a half character, which no file can hold, comes out as its number
    assert "ben \\ud800) calls it" in page.read_text()


@pytest.fixture
def address():
    """A scheduler with one worker that has one thread, all in this process."""
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of distributed, about ports that other tests hold
        local = distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", host="127.0.0.1",
            dashboard_address=":0", silence_logs=logging.CRITICAL,
        )  # fmt: skip
        with local:
            yield local.scheduler_address


def fails():
    raise ModuleNotFoundError("No module named 'helpers'")


def test_threads_do_the_work_or_a_cluster(address):
    for workers, scheduler, at_a_time in ((3, None, 3), (None, address, 1)):
        with hands(workers, scheduler, platform.node) as (executor, found):
            assert found == at_a_time and executor.submit(len, "ab").result(timeout=30) == 2


def refused(scheduler, says, version=platform.node):
    with pytest.raises(ClusterError, match=says), hands(None, scheduler, version):
        pass


def test_what_is_missing_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr(runner, "SECONDS_TO_CONNECT", 1)
    for scheduler in ("tcp://127.0.0.1:1", "no address"):
        refused(scheduler, f"{scheduler}.*dask scheduler")
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused("tcp://127.0.0.1:1", "pip install -e")


def test_a_cluster_that_would_grade_otherwise_or_not_at_all_is_refused(address):
    refused(address, "another version", secrets.token_hex)
    refused(address, r"No module named 'helpers'.*install it there", fails)
    with sys.modules["distributed"].Client(address, set_as_default=False) as client:
        client.retire_workers(list(client.nthreads()))
    refused(address, "dask worker")


@pytest.mark.box
@pytest.mark.slow
@pytest.mark.ci
def test_a_class_is_graded_on_a_cluster(address, room, a1, hand_in):
    for student, sources in {"ada": answers.solution_cells(a1), "ben": {}}.items():
        hand_in(student, sources)
    assert runner.run(room, a1, scheduler=address) == {"graded": 2, "kept": 0}
    assert points_of(room, "ada", "ben") == {"ada": 88, "ben": 0}
    assert runner.run(room, a1) == {"graded": 0, "kept": 2}  # the same marks count, wherever they were made
