"""`python -m course compress`: dense to pruned to fine-tuned to quantized, with a table and a
report of every stage.
"""

import argparse
from pathlib import Path

from course.commands import options
from course.publish import compressed
from helpers import pipeline
from helpers.files import write_atomically
from helpers.pruning.groups import SCOPES
from helpers.quantization import Recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    options.add_network(parser)
    settings = {
        "--ratio": (0.5, "share of channels to remove"),
        "--scope": ("hidden", "which channels", SCOPES),
        "--epochs": (5, "epochs of fine-tuning; 0 leaves it out"),
        "--weight-bits": (8, "2 to 8"),
        "--seed": (0, "seed of fine-tuning"),
    }
    options.add(parser, settings)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        help="folder for the networks (also as ONNX), table.csv and report.md",
    )


def run(arguments: argparse.Namespace) -> int:
    """Take every step; each stage's file is written when it is made, the table and the report at
    the end.
    """
    # Bits that cannot be are refused before anything is read or downloaded.
    # Additions are separate: for these, engines have int8 kernels.
    recipe = Recipe(weight_bits=arguments.weight_bits, residual="separate")
    for name in ("report.md", "table.csv", *(f"{stage}.onnx" for stage in pipeline.STAGES)):
        path = arguments.output / name
        if path.exists() and not (arguments.output / "dense.safetensors").exists():
            raise ValueError(f"{path} is not of this command: choose a new folder")
    model, dataset = options.opened(arguments)
    settings = (arguments.ratio, arguments.epochs, recipe, arguments.scope)
    result = pipeline.compress(model, dataset, *settings, arguments.output, arguments.seed)
    write_atomically(arguments.output / "table.csv", result.table.to_csv(index=False))
    columns = ["stage", "accuracy", "params", "macs", "file_bytes", "batch1_ms", "batch128_ms"]
    print(result.table[columns].to_string(index=False))
    print(f"report: {compressed.write(result, dataset, arguments.output)}")
    return 0
