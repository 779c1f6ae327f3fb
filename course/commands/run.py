"""`python -m course run`: the whole course without a screen."""

import argparse
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import TimeoutError
from multiprocessing.pool import IMapIterator, ThreadPool

import torch

from course.commands import options
from course.commands.lab import COPIED
from course.lessons.profile import profile
from course.publish import runner
from course.publish.report import write_report
from helpers.allocator import WHOLE_PROCESS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument(
        "lessons",
        nargs="*",
        metavar="LESSON",
        help="such as 01 or talk (default: all and the report)",
    )
    folder = (runner.BUILD / "notebooks", "folder for the executed notebooks")
    jobs = (
        (options.positive, 1),
        "lessons to run at a time (they share the cores, so times mean little; with --publish"
        " always one)",
    )
    options.add(parser, {"--output": folder, "--jobs": jobs})
    parser.add_argument(
        "--publish",
        action="store_true",
        help="write the outputs into notebooks/ too, to be committed (with PROFILE=full)",
    )
    parser.epilog = "PROFILE=full in the environment uses all the data and the full budgets."


def run(arguments: argparse.Namespace) -> int:
    """Run every lesson, also after one has failed, and write the report of all; the status is 1 if
    any failed.
    """
    holds_copy = (arguments.output / COPIED).exists()
    # Not by its letters: a Mac's disk takes capitals for small ones.
    are_lessons = arguments.output.exists() and arguments.output.samefile(runner.NOTEBOOKS)
    if are_lessons or holds_copy:
        whose = "your copy of the lessons" if holds_copy else "the lessons"
        raise ValueError(f"--output {arguments.output} holds {whose}; name another folder")
    start, name, failed = time.perf_counter(), profile().name, []
    chosen = runner.lessons(arguments.lessons, talk=True)
    jobs = 1 if arguments.publish else arguments.jobs
    shared = (
        {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // jobs))} | WHOLE_PROCESS
        if jobs > 1
        else {}
    )
    with ThreadPool(jobs) as pool:
        outcomes = pool.imap(
            lambda path: runner.run_lesson(path, arguments.output / path.name, name, **shared),
            chosen,
        )
        for path, outcome in zip(chosen, in_turn(outcomes), strict=True):
            print(outcome.line(), flush=True)
            if outcome.failure or (
                arguments.publish and not runner.publish(arguments.output / path.name, path)
            ):
                failed.append(outcome.name)
    print(
        f"{time.perf_counter() - start:.0f} s in all, {name}"
        f" profile{'; failed: ' * bool(failed)}{', '.join(failed)}"
    )
    if not arguments.lessons:
        notebooks = [arguments.output / path.name for path in runner.lessons()]
        notebooks = [path for path in notebooks if path.exists()]  # but what cannot be read
        is_usual = arguments.output == runner.BUILD / "notebooks"
        folder = runner.BUILD if is_usual else arguments.output
        print(f"report: {write_report(notebooks, folder / 'report.html')}")
    return 1 if failed else 0


def in_turn(outcomes: IMapIterator) -> Iterator[runner.Outcome]:
    """One after the other; Windows takes Ctrl-C only between two waits."""
    while True:
        with suppress(TimeoutError):
            try:
                yield outcomes.next(0.5)
            except StopIteration:
                return
