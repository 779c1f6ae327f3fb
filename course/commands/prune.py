"""`python -m course prune`: remove channels from a saved network."""

import argparse
import json
from pathlib import Path

import torch

from course.commands import options
from helpers import data, metrics, models
from helpers.provenance import provenance
from helpers.pruning.importance import CRITERIA
from helpers.pruning.pruner import SCOPES, prune

BATCH = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("checkpoint", type=Path, help="the network to prune, as the course's commands save it")
    parser.add_argument("output", type=Path, help="where to write the small network")
    target = "is left of the whole network, as a share up to 1 or as a number"
    amounts = {
        "--ratio": (0.5, "share of each group that goes"),
        "--target-params": (float, f"how many parameters: what {target}"),
        "--target-macs": (float, f"how many multiply-adds: what {target}"),
    }
    options.add(parser.add_mutually_exclusive_group(), amounts)
    settings = {
        "--tolerance": (0.01, "how far from a target the result may be, as a share of it"),
        "--importance": ("l1", "what rates a channel", CRITERIA),
        "--allocation": ("uniform", "uniform, global, or a JSON file of {group: ratio}"),
        "--scope": ("hidden", "hidden spares the trunk", SCOPES),
        "--min-width": (1, "units that a group keeps at least"),
        "--round-to": (1, "what a group keeps is a multiple of this"),
        "--seed": (0, "of --importance random"),
    }
    options.add(parser, settings | options.DATA)
    parser.add_argument("--images", type=options.positive, default=512, metavar="N", help=f"{options.IMAGES} (512)")


def run(arguments: argparse.Namespace) -> int:
    """Prune, save, and say what is left."""
    model = models.load(arguments.checkpoint)
    example = torch.zeros(1, 3, 32, 32)
    names = ("ratio", "importance", "scope", "target_params", "target_macs", "tolerance")
    chosen = {name: getattr(arguments, name) for name in (*names, "min_width", "round_to", "seed")}
    allocation = allocation_from(arguments.allocation)
    small = prune(model, example, allocation=allocation, **chosen, **looks_at(arguments))
    path = models.save(small, arguments.output, provenance=provenance(arguments.seed))
    before, after = (metrics.profile(m, example) for m in (model, small))
    print(f"parameters {before.params:,} -> {after.params:,} ({after.params / before.params:.1%})")
    print(f"multiply-adds {before.macs:,} -> {after.macs:,} ({after.macs / before.macs:.1%})")
    print(f"written to {path}; train it on with: python -m course finetune")
    return 0


def allocation_from(word: str) -> str | dict[str, float]:
    """A name, or the ratios in a JSON file."""
    path = Path(word)
    return json.loads(path.read_text()) if path.suffix == ".json" else word


def looks_at(arguments: argparse.Namespace) -> dict:
    """Training images for the criteria that need them."""
    if not CRITERIA[arguments.importance].needs_batches:
        return {}
    split = data.load_cifar10(arguments.data).split()
    images = data.normalize(split.train_images[: arguments.images]).split(BATCH)
    return {"batches": list(zip(images, split.train_labels[: arguments.images].split(BATCH), strict=True))}
