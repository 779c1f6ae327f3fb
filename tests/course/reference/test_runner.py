"""The order of jobs, with processes that only write down when they run; and networks that fail a check."""

import dataclasses
import json
import subprocess
import sys

import pytest

from course import reference
from course.reference import SweepError, runner, work
from helpers import models
from tests.course.reference.small import rows_of, small_sweep

WRITES_DOWN = """import json, sys, time
name, seconds, status, journal = sys.argv[1:]
start = time.time()
time.sleep(float(seconds))
with open(journal, "a") as file:
    file.write(json.dumps([name, start, time.time()]) + "\\n")
print("ValueError: the reason", file=sys.stderr) if int(status) else None
sys.exit(int(status))
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep whose jobs take a moment; those in `failing` end with status 1."""
    made = small_sweep(tmp_path)
    failing = {}

    def start(job, sweep, processes):
        sweep.work.mkdir(parents=True, exist_ok=True)
        seconds = 60 if job.name in failing.get("endless", ()) else 0.3
        words = [job.name, str(seconds), str(int(job.name in failing.get("failing", ()))), tmp_path / "journal"]
        with open(runner.log_of(job, sweep), "w") as log:
            return subprocess.Popen([sys.executable, "-c", WRITES_DOWN, *words], stdout=log, stderr=log)

    monkeypatch.setattr(runner, "start", start)
    return made, failing, tmp_path / "journal"


def journal(path):
    return {name: (start, end) for name, start, end in map(json.loads, path.read_text().splitlines())}


def test_a_job_starts_when_the_networks_that_it_needs_are_there_two_at_a_time(sweep):
    made, _, path = sweep
    lines = []
    assert runner.run(made, [], processes=2, say=lines.append) == {}
    times = journal(path)
    assert times.keys() == made.jobs.keys()
    for job in made.jobs.values():
        for needed in job.inputs:
            assert times[needed][1] <= times[job.name][0]
    assert "finished tuned" in lines
    assert max(sum(start <= moment < end for start, end in times.values()) for moment, _ in times.values()) == 2


def test_fewer_than_one_process_is_refused_and_does_not_wait_forever(sweep, monkeypatch):
    monkeypatch.setattr(runner.time, "sleep", lambda _: pytest.fail("waits"))
    for processes in (0, -1):
        with pytest.raises(SweepError, match=f"{processes} jobs at a time never end; .* --jobs 1"):
            runner.run(sweep[0], [], processes, say=lambda _: None)


def test_a_failure_is_told_and_stops_only_what_needs_it(sweep):
    made, failing, path = sweep
    failing["failing"] = {"cut"}
    failed = runner.run(made, [], processes=1, say=lambda _: None)
    assert failed == {"cut": "ValueError: the reason", "tuned": "needs cut, which failed"}
    assert journal(path).keys() == {"dense", "cut", "int8", "tiny"}


def test_only_what_is_asked_for_and_not_done_is_run(sweep):
    made, _, path = sweep
    rows_of(made, "dense")
    runner.run(made, ["int8"], say=lambda _: None)
    assert journal(path).keys() == {"int8"}
    assert "int8" not in set(reference.load(made.results).name)


def test_stopping_stops_the_jobs_too(sweep, monkeypatch):
    made, failing, path = sweep
    failing["endless"] = {"dense"}
    started, real = [], runner.start
    monkeypatch.setattr(runner, "start", lambda *words: started.append(real(*words)) or started[-1])
    monkeypatch.setattr(runner.time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        runner.run(made, [], say=lambda _: None)
    assert started[0].wait(timeout=10) != 0 and not path.exists()


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """A sweep in which making and measuring a network take no time."""
    made, found = small_sweep(tmp_path), {"accuracy": 0.5, "low": 0.4, "high": 0.6, "images": 9}
    baseline = models.load(made.network(made.jobs["dense"]))
    monkeypatch.setattr(work.stages, "make", lambda *words: baseline)
    monkeypatch.setattr(work.measuring, "evaluate", lambda *words: found | {"validation_accuracy": 0.5})
    return made


def assert_refused_twice(job, quick, complaint):
    for _ in range(2):
        with pytest.raises(SweepError, match=complaint):
            work.do(job, quick)
        assert not quick.network(job).exists() and reference.load(quick.results).empty


def test_a_file_above_its_budget_or_with_other_weights_than_those_measured_is_refused_every_time(quick, monkeypatch):
    job, hashes = quick.jobs["int8"], iter(range(100))
    small = dataclasses.replace(job, settings=job.settings | {"file_bytes": 10_000})
    assert_refused_twice(small, quick, r"int8: the file has \d+ bytes, more than its file_bytes = 10000; allow more")
    with monkeypatch.context() as patched:
        patched.setattr(work.measuring, "weights_of", lambda path: next(hashes))
        assert_refused_twice(job, quick, "differs from the network that was measured")
    work.do(job, quick)
    assert reference.load(quick.results).name.to_list() == ["int8"]
    assert not list(quick.checkpoints.glob("*.part"))
