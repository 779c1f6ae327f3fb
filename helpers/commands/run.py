"""`python -m helpers run`: the whole course without a screen."""

import argparse
from pathlib import Path

from helpers.lessons import runner
from helpers.lessons.profile import profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="such as 01 or 03_folding (default: all)")
    parser.add_argument(
        "--output",
        type=Path,
        default=runner.BUILD / "notebooks",
        help="folder for the executed notebooks (default: build/notebooks)",
    )
    parser.add_argument("--publish", action="store_true", help="write the outputs into notebooks/ too, to be committed")
    parser.epilog = "PROFILE=full in the environment uses all the data and the full budgets."


def run(arguments: argparse.Namespace) -> int:
    """Run every lesson, also after one has failed; the status is 1 if any did."""
    name, failed, total = profile().name, [], 0.0
    for path in runner.lessons(arguments.lessons):
        executed = arguments.output / path.name
        outcome = runner.run_lesson(path, executed, name)
        print(outcome.line(), flush=True)
        total += outcome.seconds
        if outcome.failure:
            failed.append(outcome.name)
        elif arguments.publish:
            runner.publish(executed, path)
    print(f"{total:.0f} s in all, {name} profile" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0
