"""What a sweep has finished, committed by git at once: the machine may go at any time."""

import subprocess
from contextlib import suppress
from pathlib import Path

from course.reference.jobs import Job, Sweep
from course.reference.table import RESULTS


def prepare(sweep: Sweep) -> None:
    """Make sure, before hours of training, that git can commit, by committing what an earlier run
    left.
    """
    sweep.results.parent.mkdir(parents=True, exist_ok=True)
    git(sweep, "var", "GIT_COMMITTER_IDENT")
    commit(None, sweep)


def commit(job: Job | None, sweep: Sweep) -> None:
    """Keep a finished row, its file, the pages that show it, what is under way, and what an earlier
    commit missed.
    """
    pages = []
    if job and sweep.results == RESULTS:
        # Its chart asks for IPython. A machine that only trains may lack that, and leaves the pages
        # to another.
        with suppress(ImportError):
            from course.reference import readme

            pages = readme.write()
    networks = [
        path for one in sweep.jobs.values() if one.ship and (path := sweep.network(one)).exists()
    ]
    files = ["--", sweep.results.parent, *pages, *networks]
    git(sweep, "add", *files)
    if new := git(sweep, "diff", "--cached", "--name-only", "--no-renames", "-z", *files).split(
        "\0"
    )[:-1]:
        message = (
            f"Network {job.name} of the sweep {sweep.name}"
            if job
            else f"Left by the sweep {sweep.name}"
        )
        git(
            sweep,
            "commit",
            "--quiet",
            "--message",
            message,
            "--",
            *(f":(top,literal){name}" for name in new),
        )


def git(sweep: Sweep, *words: str | Path) -> str:
    """What git says; its failure in its own words."""
    where = {"cwd": sweep.results.parent, "encoding": "utf-8"}
    try:
        done = subprocess.run(["git", *words], capture_output=True, **where)
    except FileNotFoundError as error:
        raise RuntimeError("--commit needs git: install it, or leave --commit out") from error
    if done.returncode:
        raise RuntimeError(f"git {words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
