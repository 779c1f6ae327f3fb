"""`python -m course slides`: one deck per lesson, and the talk."""

import argparse
from pathlib import Path

from course.commands import demo
from course.publish import runner, slides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument(
        "--output", type=Path, default=runner.BUILD / "slides", help="folder for the decks (default: build/slides)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the decks of the notebooks that were run last; without a run, of those that came with the course."""
    for notebook in [*runner.executed_lessons(), runner.executed_talk()]:
        path = slides.write_deck(notebook, arguments.output / f"{notebook.stem}.html")
        print(f"{path.name} ({path.stat().st_size / 1e6:.1f} MB)")
    demo.write_pages(arguments.output / "demo.html")  # which the talk shows in a frame
    return 0
