"""`python -m course evaluate`: what a saved network really reaches, beside what its file says."""

import argparse
from pathlib import Path

import torch

from course.commands import options
from course.reference.measuring import float_structure, runnable
from helpers import data, metrics, models, training
from helpers.quantization import QuantizedModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("checkpoint", type=Path, nargs="+", help="files that this course saved")
    latency = {"--batch": (1, "batch size of the latency"), "--threads": (int, "CPU threads of the latency")}
    options.add(parser, latency | options.DATA)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate each file on the test images."""
    cifar = data.load_cifar10(arguments.data)
    print(cifar.describe())
    for path in arguments.checkpoint:
        report(path, cifar, arguments)
    return 0


def report(path: Path, cifar: data.Dataset, arguments: argparse.Namespace) -> None:
    """One paragraph for one file."""
    model, structure, (spec, metadata) = runnable(path), float_structure(path), models.read_header(path)
    result = training.evaluate(model, cifar.test_images, cifar.test_labels, progress=True)
    speed = metrics.latency(model, torch.randn(arguments.batch, 3, 32, 32), arguments.threads)
    stated = metadata.get("metrics", {}).get("test_accuracy")
    steps = ", ".join(step["step"] for step in spec.steps) or "none"
    print(f"{path.name}: {spec.builder}, steps after building: {steps}")
    print(f"  test accuracy {result.accuracy:.2%} (95 % interval {result.interval[0]:.2%} to {result.interval[1]:.2%},")
    print(f"  {result.n:,} images); the file states {'nothing' if stated is None else f'{stated:.2%}'}")
    parameters, macs = metrics.count_parameters(structure), metrics.count_macs(structure, torch.zeros(1, 3, 32, 32))
    print(f"  {parameters:,} parameters, {macs:,} multiply-adds, {path.stat().st_size:,} bytes")
    mode = f", computed in mode {model.mode!r}" if isinstance(model, QuantizedModel) else ""
    conditions = f"batch {speed.batch} with {speed.threads} threads{mode}"
    print(f"  {speed.median_ms:.1f} ms (IQR {speed.iqr_ms:.1f}) at {conditions}")
