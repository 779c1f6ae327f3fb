"""`python -m course slides`: one deck per lesson, and the talk."""

import argparse

from course.commands import demo, options
from course.publish import runner, slides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    options.output(parser, runner.BUILD / "slides", "folder for the decks")


def run(arguments: argparse.Namespace) -> int:
    """Make the decks of the notebooks that were run last; without a run, of those that came with the course."""
    for notebook in map(runner.executed, runner.chosen([])):
        path = slides.write_deck(notebook, arguments.output / f"{notebook.stem}.html")
        print(f"{path.name} ({path.stat().st_size / 1e6:.1f} MB)")
    demo.write_pages(arguments.output / "demo.html")  # which the talk shows in a frame
    return 0
