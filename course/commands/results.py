"""`python -m course results`: from the tables about saved networks to the pages and the chart that
show them.
"""

import argparse

from course.reference import readme
from helpers.data import REPOSITORY


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument(
        "--check", action="store_true", help="write nothing; status 1 when a page is out of date"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write chart and pages, or say whether they are up to date."""
    if not arguments.check:
        written = [path.relative_to(REPOSITORY).as_posix() for path in readme.write()]
        print(f"written: {', '.join(written)}")
        return 0
    stale = readme.stale()
    print("\n".join(stale) if stale else "README, the page of results and the chart are up to date")
    return 1 if stale else 0
