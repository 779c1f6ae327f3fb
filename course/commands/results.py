"""`python -m course results`: from saved networks to the table and the figure that README shows."""

import argparse

import pandas as pd

from course import reference
from course.reference import Sweep, measuring, readme
from course.reference.keys import key_of
from course.reference.work import row_of
from helpers import data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("--measure", action="store_true", help="first measure every network of the sweep that is here")
    parser.add_argument("--runs", type=int, default=30, help="timed passes, 0 for none (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when README is out of date")
    parser.add_argument("--sweep", default="reference", help="whose networks (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Measure if asked to, name what was not run, and write figure and README."""
    if arguments.check:
        return check()
    chosen = reference.read(arguments.sweep)
    if arguments.measure:
        measure(chosen, arguments.runs)
    table = name_the_rest(chosen)
    for name in outdated(chosen, table):
        print(f"{name}: made with other settings or from other networks than now; `sweep` would make it anew")
    if chosen.results == reference.RESULTS:
        print(f"written: {', '.join(path.name for path in readme.write(table))}")
    else:
        print(table[["name", "stage", "status", "accuracy", "params", "file_bytes", "batch1_ms"]].to_string())
    return 0


def check() -> int:
    """Is what README shows what the tables hold?"""
    stale = readme.stale()
    print("\n".join(stale) if stale else "README and figure are up to date")
    return 1 if stale else 0


def measure(chosen: Sweep, runs: int) -> None:
    """The row of every network that is here; latencies of all of them in one run, one after the other."""
    cifar, paths = data.load_cifar10(chosen.data), {}
    if cifar.is_sample and chosen.data != "sample":
        raise reference.ResultsError("the reference results need all of CIFAR-10; fetch it: python -m course data")
    for job in chosen.jobs.values():
        path = chosen.network(job)
        if path.exists():
            paths[job.name] = path
            row = row_of(job, chosen, measuring.evaluate(measuring.runnable(path), cifar))
            reference.put([row], chosen.results)
            print(f"{job.name}: test accuracy {row['accuracy']:.2%} ({row['images']:,} images)", flush=True)
    if runs:
        reference.put(measuring.latencies(paths, runs), chosen.results)


def name_the_rest(chosen: Sweep) -> pd.DataFrame:
    """The table with a row for every job of the sweep, in its order; a job that was never run and is gone has none."""
    table = reference.load(chosen.results)
    known, gone = set(table.name), table[(table.status == "not run") & ~table.name.isin(chosen.jobs)].name
    rows = [
        {
            "name": job.name,
            "stage": job.stage,
            "source": job.source,
            "status": "not run",
            "command": chosen.command(job),
        }
        for job in chosen.jobs.values()
        if job.name not in known
    ]
    return reference.put(rows, chosen.results, order=list(chosen.jobs), without=list(gone))


def outdated(chosen: Sweep, table: pd.DataFrame) -> list[str]:
    """Networks that the sweep, run now, would make differently."""
    there = table[table.status == "measured"].set_index("name").key
    return [j.name for j in chosen.jobs.values() if j.name in there and there[j.name] != key_of(j, chosen, table)]
