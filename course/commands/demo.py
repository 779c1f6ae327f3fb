"""`python -m course demo`: the networks in a page that computes them."""

import argparse
from pathlib import Path

from course.publish import demo, runner
from helpers import data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument(
        "--output", type=Path, default=runner.BUILD / "demo.html", help="page to write (default: build/demo.html)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the page; the sample of CIFAR-10 that comes with the course has the pictures."""
    path = demo.write_demo(arguments.output, data.load_cifar10("sample"))
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser, with or without a connection")
    return 0
