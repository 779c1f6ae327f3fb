"""All jobs of a sweep, one after the other, each in a process of its own: one that dies takes none
with it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from course.reference import table
from course.reference.jobs import Job, Sweep
from course.reference.keys import still_to_do


def run(
    sweep: Sweep,
    names: list[str],
    say: Callable[[str], None] = print,
    keep: Callable[[Job], object] = lambda job: None,
) -> dict[str, str]:
    """Do what is not done yet of the named jobs (none means all) and of what they need, and call
    `keep` after each.

    Returns for each job that failed, or that needs one that did, why.
    """
    wanted = sweep.needed(names)
    left = still_to_do(wanted, sweep, table.load(sweep.results))
    say(f"{sweep.name}: {len(wanted) - len(left)} jobs done before, {len(left)} to do")
    failed: dict[str, str] = {}
    for job in left:  # each comes after those that it needs
        if lost := [name for name in job.inputs if name in failed]:
            failed[job.name] = f"needs {lost[0]}, which failed"
            continue
        say(f"started {job.name}, log in {os.path.relpath(log_of(job, sweep))}")
        if status := do(job, sweep):
            failed[job.name] = last_line(log_of(job, sweep), status)
            say(f"failed {job.name}: {failed[job.name]}")
        else:
            say(f"finished {job.name}")
            try:
                keep(job)
            except (
                RuntimeError,
                ValueError,
                OSError,
            ) as error:  # another git may be at work, and hours are to come
                say(f"not committed yet: {job.name} ({error}); the next commit takes it along")
    return failed


def do(job: Job, sweep: Sweep) -> int:
    """The exit status of one job; its output goes to its log."""
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
    return (
        lines[-1]
        if lines and status == 1
        else f"ended with status {status}; see {os.path.relpath(log)}"
    )
