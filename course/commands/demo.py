"""`python -m course demo`: the networks in a page that computes them, and what each pass does in another."""

import argparse
from pathlib import Path

from course.commands import options
from course.publish import demo, runner, steps
from helpers import data, models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    options.output(parser, runner.BUILD / "demo.html", "page to write; passes.html goes beside it")


def run(arguments: argparse.Namespace) -> int:
    """Write both pages."""
    for path in write_pages(arguments.output):
        print(f"{path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser, with or without a connection")
    return 0


def write_pages(target: Path) -> list[Path]:
    """The networks, and beside them the passes; the sample of CIFAR-10 that comes with the course has the pictures."""
    cifar = data.load_cifar10("sample")
    images = data.normalize(cifar.test_images[:8])
    passes = steps.write_steps(target.with_name("passes.html"), models.pretrained(), images)
    return [demo.write_demo(target, cifar), passes]
