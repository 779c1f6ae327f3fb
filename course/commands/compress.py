"""`python -m course compress`: dense to pruned to fine-tuned to quantized, with a table of every stage."""

import argparse
from pathlib import Path

from helpers import data, models, pipeline
from helpers.files import write_atomically
from helpers.quantization import Recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("checkpoint", type=Path, help="a trained network that this course saved")
    parser.add_argument("--ratio", type=float, default=0.5, help="share of channels to remove (default: %(default)s)")
    parser.add_argument("--scope", default="hidden", choices=("hidden", "all"), help="which channels (default: hidden)")
    parser.add_argument("--epochs", type=int, default=5, help="of fine-tuning, 0 for none (default: %(default)s)")
    parser.add_argument("--weight-bits", type=int, default=8, help="2 to 8 (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of fine-tuning (default: %(default)s)")
    parser.add_argument(
        "--data", default="auto", choices=data.SOURCES, help="where CIFAR-10 comes from (default: auto)"
    )
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
    print(
        result.table[["stage", "accuracy", "params", "macs", "file_bytes", "batch1_ms", "batch128_ms"]].to_string(
            index=False
        )
    )
    return 0
