"""A sweep on the workers of a Dask cluster: side by side, and a lost worker costs nothing."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from course.reference import runner
from course.workers import cluster
from tests.course.reference.small import small_sweep

distributed = pytest.importorskip("distributed", reason="Dask is an extra: cluster")
pytestmark = pytest.mark.slow
JOB = """
import os, signal, sys, time
name, folder = sys.argv[1:]

def note(event):
    with open(f"{folder}/journal", "a") as file:
        file.write(f"{event} {name} {time.time()}\\n")

note("began")
if name == "cut" and not os.path.exists(f"{folder}/killed"):
    open(f"{folder}/killed", "w").close()
    os.kill(os.getppid(), signal.SIGKILL)
    sys.exit()
time.sleep(0.2)
note("ended")
"""
PARENT = """
import os, subprocess, sys, time
child = f"from course.reference.work import end_with; print('ready'); end_with({os.getpid()})"
print(subprocess.Popen([sys.executable, "-u", "-c", child]).pid, flush=True)
time.sleep(60)
"""


class Pretend(distributed.WorkerPlugin):
    """Has a worker, and one in its place, write down when a job runs, instead of doing it."""

    name = "pretend"

    def __init__(self, folder):
        self.folder = folder

    def setup(self, worker):
        runner.command = lambda job, sweep: [sys.executable, "-c", JOB, job.name, self.folder]


@pytest.fixture(scope="module")
def address():
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**settings) as made:
        yield made.scheduler_address


def test_jobs_run_side_by_side_in_order_and_a_lost_worker_costs_nothing(tmp_path, address):
    made, lines = small_sweep(tmp_path), []
    with distributed.Client(address) as client, cluster(address) as (pool, at_a_time):
        client.register_plugin(Pretend(str(tmp_path)))
        assert at_a_time == 2
        assert runner.run(made, [], lines.append, pool=pool, at_a_time=at_a_time) == {}
    words = [line.split() for line in (tmp_path / "journal").read_text().splitlines()]
    begun = [name for event, name, _ in words if event == "began"]
    assert begun.count("cut") == 2 and {*begun} == made.jobs.keys()  # its worker was killed once
    began, ended = (
        {n: float(at) for e, n, at in words if e == event} for event in ("began", "ended")
    )
    assert ended.keys() == made.jobs.keys()
    for job in made.jobs.values():
        assert all(ended[needed] <= began[job.name] for needed in job.inputs)
    events = [line.split(",")[0] for line in lines[1:]]
    assert events[:2] == ["started dense", "finished dense"]
    assert events[2:4] == ["started cut", "started int8"]


def test_workers_of_other_versions_are_refused(tmp_path, address, monkeypatch):
    made = small_sweep(tmp_path)
    monkeypatch.setattr(runner, "versions", lambda: ["another"])
    with cluster(address) as (pool, at_a_time):
        failed = runner.run(made, ["cut"], lambda line: None, pool=pool, at_a_time=at_a_time)
    assert "has other versions than this machine" in failed["dense"]


def test_a_job_ends_with_its_runner_and_so_lets_go_of_its_lock():
    words = [sys.executable, "-c", PARENT]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        told = {process.stdout.readline().strip() for _ in range(2)}
        pid = int(*(told - {"ready"}))
        assert alive(pid)
        process.kill()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and alive(pid):
        time.sleep(0.1)
    assert not alive(pid)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
