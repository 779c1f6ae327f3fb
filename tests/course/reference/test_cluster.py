"""A sweep on the workers of a Dask cluster: side by side, and a lost worker costs nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course import reference
from course.__main__ import main
from course.reference import runner
from course.workers import cluster
from tests.course.reference.small import small_sweep

pytestmark = pytest.mark.slow
PARENT = """
import subprocess, sys, time
child = "from course.reference.work import end_with_parent; print('ready', flush=True); end_with_parent()"
print(subprocess.Popen([sys.executable, "-c", child]).pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def address():
    distributed = pytest.importorskip("distributed", reason="Dask is an extra: cluster")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as made:
        yield made.scheduler_address


def worker_of(job, made):
    """The worker on which a job runs: the parent of the job's process."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if [made.name.encode(), job.encode()] == words[4:6]:
                return int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    return None


def test_a_lost_worker_costs_nothing_and_networks_are_those_made_here(tmp_path, address):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here, there = small_sweep(tmp_path / "here"), small_sweep(tmp_path / "there")
    there.network(there.jobs["dense"]).write_bytes(here.network(here.jobs["dense"]).read_bytes())
    assert main(["sweep", here.name, "cut", "int8"]) == 0
    lines, killed = [], []

    def say(line):
        lines.append(line)
        if line.startswith("started int8"):
            while not (worker := worker_of("cut", there)):
                time.sleep(0.05)
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)

    with cluster(address) as (pool, at_a_time):
        assert at_a_time == 2
        made = runner.run(there, ["cut", "int8"], say, pool=pool, at_a_time=at_a_time)
    assert made == {} and killed
    events = [line.split(",")[0] for line in lines[1:]]
    assert events[:2] == ["started dense", "finished dense"]
    assert events[2:4] == ["started cut", "started int8"]  # side by side
    one, other = (reference.load(each.results).set_index("name").weights for each in (here, there))
    assert one.to_dict() == other.to_dict() and {"cut", "int8"} <= {*one.index}


def test_workers_of_other_versions_are_refused(tmp_path, address, monkeypatch):
    made = small_sweep(tmp_path)
    monkeypatch.setattr(runner, "versions", lambda: ["another"])
    with cluster(address) as (pool, at_a_time):
        failed = runner.run(made, ["cut"], lambda line: None, pool=pool, at_a_time=at_a_time)
    assert "has other versions than this machine" in failed["dense"]


def test_a_job_ends_with_its_runner_and_so_lets_go_of_its_lock():
    words = [sys.executable, "-c", PARENT]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    child = {
        int(word)
        for word in (process.stdout.readline(), process.stdout.readline())
        if word.strip().isdigit()
    }
    process.kill()
    process.wait()
    (pid,), deadline = child, time.monotonic() + 20
    while time.monotonic() < deadline and alive(pid):
        time.sleep(0.1)
    assert not alive(pid)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
