"""`python -m course run`: the whole course without a screen."""

import argparse

from course.commands import options
from course.lessons.profile import profile
from course.publish import runner
from course.publish.report import write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    text = "such as 01, 03_folding or talk (default: all, then the report)"
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help=text)
    options.add(parser, {"--output": (runner.BUILD / "notebooks", "folder for the executed notebooks")})
    parser.add_argument("--publish", action="store_true", help="write the outputs into notebooks/ too, to be committed")
    parser.epilog = "PROFILE=full in the environment uses all the data and the full budgets."


def run(arguments: argparse.Namespace) -> int:
    """Run every lesson, also after one has failed, and write the report of all; the status is 1 if any failed."""
    name, failed, total = profile().name, [], 0.0
    for path in runner.chosen(arguments.lessons):
        executed = arguments.output / path.name
        outcome = runner.run_lesson(path, executed, name)
        print(outcome.line(), flush=True)
        total += outcome.seconds
        if outcome.failure:
            failed.append(outcome.name)
        elif arguments.publish:
            runner.publish(executed, path)
    print(f"{total:.0f} s in all, {name} profile" + (f"; failed: {', '.join(failed)}" if failed else ""))
    if not arguments.lessons:
        notebooks = [arguments.output / path.name for path in runner.lessons()]
        print(f"report: {write_report(notebooks, arguments.output.parent / 'report.html', name)}")
    return 1 if failed else 0
