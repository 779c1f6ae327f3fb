"""`python -m course sweep`: make a list of networks, each once."""

import argparse
import signal
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from course import reference
from course.reference import commits
from course.reference.keys import still_to_do
from course.workers import Here, cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument(
        "sweep",
        metavar="SWEEP",
        help="reference, ablations, tiny, or a TOML file of your own,"
        " whose places are relative to the course's folder",
    )
    parser.add_argument(
        "names", metavar="JOB", nargs="*", help="only these, and what they need (default: all)"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--dry",
        type=Path,
        metavar="FOLDER",
        help="try it out: on the sample, one epoch each, all files in FOLDER",
    )
    either.add_argument(
        "--commit", action="store_true", help="commit each finished row with its file, by git"
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="do the jobs on a Dask cluster, whose workers were started in this folder",
    )
    parser.add_argument("--list", action="store_true", help="only say what is done and what is not")
    parser.epilog = (
        "Stopped with Ctrl-C or killed, the same command goes on from the last finished epoch of"
        " each job."
    )


def run(arguments: argparse.Namespace) -> int:
    """Do the jobs; the status is 1 if any failed."""
    sweep = reference.read(arguments.sweep, arguments.dry)
    if arguments.list:
        wanted = sweep.needed(arguments.names)
        left = still_to_do(wanted, sweep, reference.load(sweep.results))
        for job in wanted:
            print(f"{'to do' if job in left else 'done ':5}  {job.stage:10}  {sweep.command(job)}")
        return 0
    if arguments.commit:
        commits.prepare(sweep)
    before = signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # `kill` stops the job too, as Ctrl-C does
    try:
        keep = partial(commits.commit, sweep=sweep) if arguments.commit else lambda job: None
        say, here = partial(print, flush=True), nullcontext((Here(), 1))
        with cluster(arguments.scheduler) if arguments.scheduler else here as (pool, at_a_time):
            failed = reference.run(sweep, arguments.names, say, keep, pool, at_a_time)
        if arguments.commit:
            commits.commit(None, sweep)  # what could not be committed when it was finished
    finally:
        signal.signal(signal.SIGTERM, before)
    for name, why in failed.items():
        print(f"not done: {name}: {why}")
    return 1 if failed else 0
