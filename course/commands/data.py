"""`python -m course data`: make sure that the data set is there and right."""

import argparse

from helpers import data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument(
        "--source",
        default="auto",
        choices=data.SOURCES,
        help="where to take it from (default: auto)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Load, verify, and say where it came from."""
    cifar = data.load_cifar10(arguments.source)
    print(cifar.describe())
    print(
        "verified against SHA-256"
        f" {(data.SAMPLE_SHA256 if cifar.is_sample else data.FULL_SHA256)[:16]}…"
    )
    return int(cifar.is_sample and arguments.source == "auto")  # which asks for all images
