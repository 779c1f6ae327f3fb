"""`python -m course compress`: dense to pruned to fine-tuned to quantized, with a table of every stage."""

import argparse
from pathlib import Path

from course.commands import options
from helpers import data, models, pipeline
from helpers.files import write_atomically
from helpers.pruning.pruner import SCOPES
from helpers.quantization import Recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("checkpoint", type=Path, help="a trained network that this course saved")
    settings = {
        "--ratio": (0.5, "share of channels to remove"),
        "--scope": ("hidden", "which channels", SCOPES),
        "--epochs": (5, "of fine-tuning, 0 for none"),
        "--weight-bits": (8, "2 to 8"),
        "--seed": (0, "of fine-tuning"),
    }
    options.add(parser, settings | options.DATA)
    parser.add_argument("--output", type=Path, required=True, help="folder for the networks and table.csv")


def run(arguments: argparse.Namespace) -> int:
    """Take every step, write each stage's file and the table."""
    cifar, folder = data.load_cifar10(arguments.data), arguments.output
    print(cifar.describe())
    folder.mkdir(parents=True, exist_ok=True)
    result = pipeline.compress(
        models.load(arguments.checkpoint),
        cifar,
        arguments.ratio,
        arguments.epochs,
        Recipe(weight_bits=arguments.weight_bits),
        arguments.scope,
        folder / "finetuning.state",
        arguments.seed,
    )
    for stage, network in result.stages.items():
        models.save(network, folder / f"{stage}.safetensors")
    write_atomically(folder / "table.csv", result.table.to_csv(index=False))
    columns = ["stage", "accuracy", "params", "macs", "file_bytes", "batch1_ms", "batch128_ms"]
    print(result.table[columns].to_string(index=False))
    return 0
