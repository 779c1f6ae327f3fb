"""All jobs of a sweep, several at a time, each in a process of its own: one that dies takes none with it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from course.reference import table
from course.reference.jobs import Job, Sweep, SweepError
from course.reference.keys import still_to_do

POLL_SECONDS = 0.2


def run(
    sweep: Sweep,
    names: list[str],
    processes: int = 1,
    say: Callable[[str], None] = print,
    keep: Callable[[Job], object] = lambda job: None,
) -> dict[str, str]:
    """Do what is not done yet. A job starts once the networks that it needs are there.

    Args:
        sweep: the list of jobs.
        names: which of them; none means all. What they need is done as well.
        processes: how many jobs run at the same time; they share the cores.
        say: called with a line per event.
        keep: called with each finished job.

    Returns:
        For each job that failed, or that waited for one that did: why.
    """
    if processes < 1:
        raise SweepError(f"{sweep.name}: {processes} jobs at a time never end; let at least one run: --jobs 1")
    wanted = sweep.needed(names)
    waiting = still_to_do(wanted, sweep, table.load(sweep.results))
    say(f"{sweep.name}: {len(wanted) - len(waiting)} jobs done before, {len(waiting)} to do")
    failed: dict[str, str] = {}
    running: dict[str, subprocess.Popen] = {}
    try:
        while waiting or running:
            for job in [job for job in waiting if failed.keys() & set(job.inputs)]:
                waiting.remove(job)
                failed[job.name] = f"needs {next(n for n in job.inputs if n in failed)}, which failed"
            open_names = {job.name for job in waiting} | running.keys()
            ready = [job for job in waiting if not open_names & set(job.inputs)]
            for job in ready[: processes - len(running)]:
                waiting.remove(job)
                running[job.name] = start(job, sweep, processes)
                say(f"started {job.name}, log in {os.path.relpath(log_of(job, sweep))}")
            for name, process in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    if process.returncode:
                        failed[name] = last_line(log_of(sweep.jobs[name], sweep), process.returncode)
                    say(f"failed {name}: {failed[name]}" if name in failed else f"finished {name}")
                    if name not in failed:
                        keep(sweep.jobs[name])
            time.sleep(POLL_SECONDS if running else 0)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
    return failed


def start(job: Job, sweep: Sweep, processes: int) -> subprocess.Popen:
    """A process for one job; its output goes to its log."""
    sweep.work.mkdir(parents=True, exist_ok=True)
    threads = max(1, (os.cpu_count() or 1) // processes)
    environment = {"OMP_NUM_THREADS": str(threads)} | os.environ
    with open(log_of(job, sweep), "wb") as log:
        command = [sys.executable, "-m", "course.reference.work", sweep.name, job.name, *filter(None, [sweep.dry])]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def log_of(job: Job, sweep: Sweep) -> Path:
    """Where a job's output goes."""
    return sweep.work / f"{job.name}.log"


def last_line(log: Path, status: int) -> str:
    """Why a process ended: the last thing that it said."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines and status == 1 else f"ended with status {status}; see {os.path.relpath(log)}"
