"""The order of jobs, with processes that only write down when they run; and networks that fail a
check.
"""

import dataclasses
import json
import os
import sys
from argparse import Namespace
from concurrent.futures import Future

import pytest

from course import reference
from course.__main__ import main
from course.reference import SweepError, runner, work
from helpers import models
from tests.course.reference.small import rows_of, small_sweep

WRITES_DOWN = """import json, os, signal, sys, time
name, kind, folder = sys.argv[1:]
start = time.time()
if kind == "endless":
    open(f"{folder}/pid", "w").write(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)
time.sleep(0.3)
with open(f"{folder}/journal", "a") as file:
    file.write(json.dumps([name, start, time.time()]) + "\\n")
print("ValueError: the reason", file=sys.stderr) if kind == "failing" else None
sys.exit(kind == "failing")
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep whose jobs take a moment; some may fail, or stop the sweep and never end."""
    made, kinds = small_sweep(tmp_path), {}

    def command(job, sweep):
        return [sys.executable, "-c", WRITES_DOWN, job.name, kinds.get(job.name, "good"), tmp_path]

    monkeypatch.setattr(runner, "command", command)
    return made, kinds, tmp_path / "journal"


def test_on_windows_where_the_parent_is_no_runner_a_job_goes_on(monkeypatch):
    ended = []
    monkeypatch.setattr(work.os, "_exit", ended.append)
    work.end_with(0)
    monkeypatch.setattr(work.os, "name", "nt")
    work.end_with(0)
    assert ended == [1]


def journal(path):
    return {
        name: (start, end) for name, start, end in map(json.loads, path.read_text().splitlines())
    }


@pytest.mark.slow
@pytest.mark.ci
def test_a_job_starts_when_the_networks_that_it_needs_are_there_and_no_other_runs(sweep):
    made, _, path = sweep
    lines = []
    assert runner.run(made, [], say=lines.append) == {}
    times = journal(path)
    assert times.keys() == made.jobs.keys()
    for job in made.jobs.values():
        for needed in job.inputs:
            assert times[needed][1] <= times[job.name][0]
    assert "finished tuned" in lines
    assert (
        max(
            sum(start <= moment < end for start, end in times.values())
            for moment, _ in times.values()
        )
        == 1
    )


def test_a_failure_is_told_and_stops_only_what_needs_it(sweep):
    made, kinds, path = sweep
    kinds["cut"] = "failing"
    kept, lines = [], []
    failed = runner.run(made, [], lines.append, lambda job: kept.append(job.name) or int("locked"))
    told = [
        line
        for line in lines
        if line.startswith("not committed yet: dense (") and "'locked'); the next" in line
    ]
    assert told and failed == {"cut": "ValueError: the reason", "tuned": "needs cut, which failed"}
    assert journal(path).keys() == {"dense", "cut", "int8", "tiny"} == {"cut", *kept}


def test_only_what_is_asked_for_and_not_done_is_run(sweep):
    made, _, path = sweep
    rows_of(made, "dense")
    runner.run(made, ["int8"], say=lambda _: None)
    assert journal(path).keys() == {"int8"}
    assert "int8" not in set(reference.load(made.results).name)


def test_a_job_whose_worker_is_lost_fails_alone(sweep, monkeypatch):
    made, _, _ = sweep

    def submit(do, job, *words):
        future = Future()
        lost = RuntimeError("KilledWorker") if job.name == "cut" else None
        future.set_exception(lost) if lost else future.set_result(do(job, *words))
        return future

    monkeypatch.setattr("os.path.relpath", lambda path: {}[path])  # there is none on another drive
    failed = runner.run(made, [], lambda _: None, pool=Namespace(submit=submit))
    needs = "needs cut, which failed"
    assert failed == {"cut": "RuntimeError: KilledWorker", "tuned": needs}


@pytest.mark.slow
@pytest.mark.ci
def test_stopping_stops_the_job_too_and_the_next_run_goes_on(sweep, capsys):
    made, kinds, path = sweep
    kinds["dense"] = "endless"
    assert main(["sweep", made.name]) == 130 and "goes on from there" in capsys.readouterr().err
    with pytest.raises(ProcessLookupError):
        os.kill(int((path.parent / "pid").read_text()), 0)
    assert not path.exists()
    kinds.clear()
    assert main(["sweep", made.name]) == 0 and journal(path).keys() == made.jobs.keys()


def assert_refused_twice(job, quick, complaint):
    for _ in range(2):
        with pytest.raises(SweepError, match=complaint):
            work.do(job, quick)
        assert not quick.network(job).exists() and reference.load(quick.results).empty


@pytest.mark.slow
@pytest.mark.ci
def test_a_file_above_its_budget_or_with_other_weights_than_those_measured_is_refused_every_time(
    tmp_path, monkeypatch
):
    """In a sweep in which making and measuring a network take no time."""
    quick, found = small_sweep(tmp_path), {"accuracy": 0.5, "low": 0.4, "high": 0.6, "images": 9}
    baseline = models.load(quick.network(quick.jobs["dense"]))
    monkeypatch.setattr(work.stages, "make", lambda *words: baseline)
    monkeypatch.setattr(
        work.measuring, "evaluate", lambda *words: found | {"validation_accuracy": 0.5}
    )
    job, hashes = quick.jobs["int8"], iter(range(100))
    small = dataclasses.replace(job, settings=job.settings | {"file_bytes": 10_000})
    assert_refused_twice(
        small, quick, r"int8: the file has \d+ bytes, more than its file_bytes = 10000; allow more"
    )
    with monkeypatch.context() as patched:
        patched.setattr(work.measuring, "weights_of", lambda path: next(hashes))
        assert_refused_twice(job, quick, "differs from the network that was measured")
    for cut in ({}, {"cut_accuracy": 0.25}):
        quick.network(job).unlink(missing_ok=True)
        monkeypatch.setattr(
            work.measuring,
            "evaluate",
            lambda *words, cut=cut: found | {"validation_accuracy": 0.5} | cut,
        )
        for _ in range(2):  # the network is made; its file is there
            # A row of an earlier network of this name, which was cut.
            reference.put([{"name": "int8", "cut_accuracy": 0.3}], quick.results)
            work.do(job, quick)
            rows = reference.load(quick.results)
            assert rows.name.to_list() == ["int8"]
            assert rows.cut_accuracy.dropna().to_list() == [*cut.values()]
            monkeypatch.setattr(
                work.measuring, "evaluate", lambda *words: found | {"validation_accuracy": 0.5}
            )
    assert not list(quick.checkpoints.glob("*.part"))
