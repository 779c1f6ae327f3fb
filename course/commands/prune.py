"""`python -m course prune`: remove channels from a saved network."""

import argparse
import json
from pathlib import Path

from course.commands import options
from helpers import metrics, models
from helpers.dataset import input_of
from helpers.provenance import joined, provenance
from helpers.pruning.groups import SCOPES
from helpers.pruning.importance import CRITERIA, OF_IMAGES
from helpers.pruning.pruner import prune

BATCH = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    options.add_network(parser)
    options.add_output(parser, "where to write the small network")
    target = "to keep in the whole network: a share up to 1, or a number"
    amounts = {
        "--ratio": (float, "share of each group that goes (0.5 without another amount)"),
        "--target-params": (float, f"parameters {target}"),
        "--target-macs": (float, f"multiply-adds {target}"),
    }
    options.add(parser.add_mutually_exclusive_group(), amounts)
    settings = {
        "--tolerance": (0.01, "how far from a target the result may be, as a share of it"),
        "--importance": ("l1", "what rates a channel", CRITERIA),
        "--allocation": (
            (allocation, "uniform"),
            "uniform, global, or a JSON file of {group: ratio}",
        ),
        "--scope": ("hidden", "hidden spares the trunk and what is in no block", SCOPES),
        "--round-to": (1, "what a group keeps is a multiple of this"),
        "--seed": (0, "seed for --importance random"),
        "--images": ((options.positive, 512), options.IMAGES),
    }
    options.add(parser, settings)


def allocation(word: str) -> str | dict[str, float]:
    """A way to share out what goes, or the share of each group, from a JSON file."""
    try:
        return (
            json.loads(Path(word).read_text(encoding="utf-8")) if word.endswith(".json") else word
        )
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{word} cannot be read as JSON: {error}") from error


def run(arguments: argparse.Namespace) -> int:
    """Prune, save, and say what is left."""
    looks = arguments.importance in OF_IMAGES
    model, dataset = options.opened(arguments, look=looks)
    example = options.example(arguments, model, dataset)
    names = ("ratio", "importance", "scope", "target_params", "target_macs", "tolerance")
    chosen = {name: getattr(arguments, name) for name in (*names, "allocation", "round_to", "seed")}
    if looks:
        split, count = dataset.split(), arguments.images
        images, labels = input_of(model, split.train_images[:count]), split.train_labels[:count]
        chosen["batches"] = list(zip(images.split(BATCH), labels.split(BATCH), strict=True))
    small = prune(model, example, **chosen)
    path = models.save(small, arguments.output, provenance=provenance(arguments.seed))
    counts = {
        "parameters": metrics.count_parameters,
        "multiply-adds": lambda m: metrics.count_macs(m, example),
    }
    for what, count in counts.items():
        before, after = count(model), count(small)
        print(f"{what} {before:,} -> {after:,} ({after / before:.1%})")
    words = ["python", "-m", "course", "finetune", path, "--data", arguments.data]
    words += ["--model", arguments.model] if arguments.model else []
    words += ["--teacher", arguments.checkpoint] if arguments.checkpoint else []
    words += ["--input-size", arguments.input_size] if arguments.input_size else []
    words += ["--no-mirror"] if arguments.no_mirror else []
    words += ["--output", path.with_name(f"{path.stem}-finetuned.safetensors")]
    print(f"written to {path}; fine-tune it with: {joined([*map(str, words)])}")
    return 0
