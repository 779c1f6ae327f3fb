"""`python -m course results`: from the tables about saved networks to the pages and the chart that show them."""

import argparse

from course import reference
from course.reference import Sweep, measuring, readme
from course.reference.keys import key_of
from course.reference.work import row_of
from helpers import data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("--measure", action="store_true", help="first measure every network of the sweep that is here")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when a page is out of date")
    parser.add_argument("--sweep", default="reference", help="whose networks (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Measure if asked to, and write chart and pages."""
    if arguments.check:
        stale = readme.stale()
        print("\n".join(stale) if stale else "README, the page of results and the chart are up to date")
        return 1 if stale else 0
    chosen = reference.read(arguments.sweep)
    if arguments.measure:
        measure(chosen)
    table = reference.load(chosen.results)
    for name in outdated(chosen):
        print(f"{name}: made with other settings or from other networks than now; `sweep` would make it anew")
    if chosen.results == reference.RESULTS:
        print(f"written: {', '.join(path.name for path in readme.write())}")
    else:
        print(table[["name", "stage", "accuracy", "params", "file_bytes"]].to_string())
    return 0


def measure(chosen: Sweep) -> None:
    """The row of every network that is here."""
    cifar = data.load_cifar10(chosen.data)
    if cifar.is_sample and chosen.data != "sample":
        raise reference.ResultsError("the reference results need all of CIFAR-10; fetch it: python -m course data")
    for job in chosen.jobs.values():
        path = chosen.network(job)
        if path.exists():
            row = row_of(job, chosen, measuring.evaluate(measuring.runnable(path), cifar))
            reference.put([row], chosen.results)
            print(f"{job.name}: test accuracy {row['accuracy']:.2%} ({row['images']:,} images)", flush=True)


def outdated(chosen: Sweep) -> list[str]:
    """Networks that the sweep, run now, would make differently."""
    table = reference.load(chosen.results)
    there = table.set_index("name").key
    return [j.name for j in chosen.jobs.values() if j.name in there and there[j.name] != key_of(j, chosen, table)]
