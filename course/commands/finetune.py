"""`python -m course finetune`: train a saved network on, usually to recover what pruning or quantizing lost."""

import argparse
from pathlib import Path

from course.commands import options
from course.commands import training_arguments as shared
from helpers import models, training
from helpers.provenance import provenance


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    options.add_network(parser)
    parser.add_argument("--teacher", type=Path, help="a saved network to learn from, usually the dense one")
    shared.add_arguments(parser, training.Config(epochs=5, lr=0.02, ema=0.99), leave_out=("distill",))
    parser.add_argument(
        "--distill", type=float, help="weight of the teacher's answers (default: 0.7 with a teacher, else 0)"
    )
    parser.add_argument("--output", type=options.writable, required=True, help="checkpoint to write")


def run(arguments: argparse.Namespace) -> int:
    """Fine-tune, write the checkpoint, and read the test images once, at the end."""
    if arguments.distill is None:
        arguments.distill = 0.7 if arguments.teacher else 0.0
    config = shared.config_from(arguments)
    model, dataset = options.opened(arguments)
    model = model.to(shared.device())
    teacher = models.load(arguments.teacher, arguments.model).to(shared.device()) if arguments.teacher else None
    with shared.saving(arguments) as places:
        history = training.train(model, dataset, config, teacher=teacher, **places)
    origin = provenance(config.seed)
    if arguments.checkpoint:
        origin["command"] = after(arguments.checkpoint, origin["command"])
    shared.finish(model, dataset, history, arguments, origin)
    return 0


def after(checkpoint: Path, command: str) -> str:
    """Both commands, one after the other, when the network that this one starts from says how it was made."""
    before = models.read_header(checkpoint)[1].get("provenance", {}).get("command")
    return f"{before}; {command}" if before else command
