"""`python -m course report`: the course as one page."""

import argparse

from course.commands import demo, options
from course.lessons.profile import profile
from course.publish import report, runner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    options.output(parser, runner.BUILD / "report.html", "page to write")


def run(arguments: argparse.Namespace) -> int:
    """Make the page of the notebooks that were run last; without a run, of those that came with the course."""
    notebooks = [*map(runner.executed, runner.lessons())]
    pages = demo.write_pages(arguments.output.with_name("demo.html"))
    path = report.write_report(notebooks, arguments.output, profile().name, pages)
    print(f"{len(notebooks)} lessons in {path.name} ({path.stat().st_size / 1e6:.1f} MB), figures beside it")
    return 0
