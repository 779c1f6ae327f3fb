"""`python -m course prune`: remove channels from a saved network."""

import argparse
import json
from pathlib import Path

import torch

from helpers import data, metrics, models
from helpers.provenance import provenance
from helpers.pruning.importance import CRITERIA
from helpers.pruning.pruner import SCOPES, prune

BATCH = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("checkpoint", type=Path, help="the network to prune, as the course's commands save it")
    parser.add_argument("output", type=Path, help="where to write the small network")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--ratio", type=float, default=0.5, help="share of each group that goes (default: %(default)s)")
    target = "is left of the whole network, as a share up to 1 or as a number"
    amount.add_argument("--target-params", type=float, metavar="N", help=f"how many parameters: what {target}")
    amount.add_argument("--target-macs", type=float, metavar="N", help=f"how many multiply-adds: what {target}")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="how far from a target the result may be, as a share of it (default: %(default)s)",
    )
    parser.add_argument(
        "--importance", choices=CRITERIA, default="l1", help="what rates a channel (default: %(default)s)"
    )
    parser.add_argument(
        "--allocation",
        default="uniform",
        metavar="HOW",
        help="uniform, global, or a JSON file of {group: ratio} (default: %(default)s)",
    )
    parser.add_argument(
        "--scope", choices=SCOPES, default="hidden", help="hidden spares the trunk (default: %(default)s)"
    )
    parser.add_argument("--min-width", type=int, default=1, metavar="N", help="units that a group keeps at least")
    parser.add_argument("--round-to", type=int, default=1, metavar="N", help="what a group keeps is a multiple of this")
    parser.add_argument(
        "--images",
        type=positive,
        default=512,
        metavar="N",
        help="images to look at, where any are (default: %(default)s)",
    )
    parser.add_argument(
        "--data", choices=data.SOURCES, default="auto", help="where CIFAR-10 comes from (default: auto)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of --importance random")


def positive(word: str) -> int:
    """A whole number of 1 or more; a negative one would count from the end of the images."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number of 1 or more")
    return int(word)


def run(arguments: argparse.Namespace) -> int:
    """Prune, save, and say what is left."""
    model = models.load(arguments.checkpoint)
    example = torch.zeros(1, 3, 32, 32)
    small = prune(
        model,
        example,
        ratio=arguments.ratio,
        importance=arguments.importance,
        allocation=allocation_from(arguments.allocation),
        scope=arguments.scope,
        target_params=arguments.target_params,
        target_macs=arguments.target_macs,
        tolerance=arguments.tolerance,
        min_width=arguments.min_width,
        round_to=arguments.round_to,
        seed=arguments.seed,
        **looks_at(arguments),
    )
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
