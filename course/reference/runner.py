"""All jobs of a sweep, each in a process of its own: one that dies takes none with it.

Here they run one after the other; on a cluster, side by side where none needs another.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from pathlib import Path

import torch

from course.reference import table
from course.reference.jobs import Job, Sweep
from course.reference.keys import still_to_do
from course.workers import Here

OTHER_VERSIONS = "the worker has other versions than this machine: install the same there"


def run(
    sweep: Sweep,
    names: list[str],
    say: Callable[[str], None] = print,
    keep: Callable[[Job], object] = lambda job: None,
    pool: Executor | None = None,
    at_a_time: int = 1,
) -> dict[str, str]:
    """Do what is not done yet of the named jobs (none means all) and of what they need, and call
    `keep` after each.

    The workers of a `pool` share this folder. Returns for each job that failed, or that needs one
    that did, why.
    """
    wanted = sweep.needed(names)
    left = still_to_do(wanted, sweep, table.load(sweep.results))
    say(f"{sweep.name}: {len(wanted) - len(left)} jobs done before, {len(left)} to do")
    failed: dict[str, str] = {}
    waiting, running = list(left), dict[Future, Job]()
    pool = pool or Here()
    while waiting or running:
        unfinished = {job.name for job in (*waiting, *running.values())}
        ready = [job for job in waiting if not unfinished.intersection(job.inputs)]
        for job in ready[: at_a_time - len(running)]:
            waiting.remove(job)
            if lost := [name for name in job.inputs if name in failed]:
                failed[job.name] = f"needs {lost[0]}, which failed"
                continue
            say(f"started {job.name}, log in {log_of(job, sweep)}")
            running[pool.submit(do, job, sweep, versions())] = job
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            finish(running.pop(future), status_of(future), sweep, failed, say, keep)
    return failed


def status_of(future: Future) -> int | str:
    """The exit status of a job, or why there is none: Dask gives up after some lost workers."""
    try:
        return future.result()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def finish(
    job: Job,
    status: int | str,
    sweep: Sweep,
    failed: dict[str, str],
    say: Callable[[str], None],
    keep: Callable[[Job], object],
) -> None:
    """Note what became of a job, and keep what it made."""
    if not isinstance(status, str) and not log_of(job, sweep).exists():
        status = f"{log_of(job, sweep)} is not here: the workers must share this folder"
    if status:
        failed[job.name] = (
            status if isinstance(status, str) else last_line(log_of(job, sweep), status)
        )
        say(f"failed {job.name}: {failed[job.name]}")
        return
    say(f"finished {job.name}")
    try:
        keep(job)
    except (RuntimeError, ValueError, OSError) as error:  # another git may be at work
        say(f"not committed yet: {job.name} ({error}); the next commit takes it along")


def versions() -> list[str]:
    """What must be the same where jobs are done."""
    return [torch.__version__, platform.python_version()]


def do(job: Job, sweep: Sweep, wanted: list[str]) -> int | str:
    """The exit status of one job, or why it was not begun; its output goes to its log."""
    if versions() != wanted:
        return f"{OTHER_VERSIONS} ({wanted}, not {versions()})"
    sweep.work.mkdir(parents=True, exist_ok=True)
    with open(log_of(job, sweep), "wb") as log:
        process = subprocess.Popen(command(job, sweep), stdout=log, stderr=subprocess.STDOUT)
    try:
        return process.wait()
    finally:  # stopped, too: `subprocess.run` would not wait until the job has let go of its lock
        process.kill()
        process.wait()


def command(job: Job, sweep: Sweep) -> list[str | Path]:
    """What does one job, in a process of its own."""
    return [
        sys.executable,
        "-m",
        "course.reference.work",
        sweep.name,
        job.name,
        str(os.getpid()),
        *filter(None, [sweep.dry]),
    ]


def log_of(job: Job, sweep: Sweep) -> Path:
    """Where a job's output goes."""
    return sweep.work / f"{job.name}.log"


def last_line(log: Path, status: int) -> str:
    """Why a process ended: the last thing that it said."""
    lines = [
        line
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    return lines[-1] if lines and status == 1 else f"ended with status {status}; see {log}"
