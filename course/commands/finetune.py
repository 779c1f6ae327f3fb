"""`python -m course finetune`: train a saved network on, usually to recover what pruning or
quantizing lost.
"""

import argparse
from pathlib import Path

import torch
from torch import nn

from course.commands import options
from course.commands import train as shared
from helpers import models, training
from helpers.dataset import normalization_of
from helpers.provenance import provenance


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    options.add_network(parser)
    told = (
        "a saved network to learn from, usually the dense one; given again, the mean of their"
        " scores teaches"
    )
    parser.add_argument("--teacher", type=Path, action="append", default=[], help=told)
    shared.add_settings(
        parser, training.Config(epochs=5, lr=0.02, ema=0.99), leave_out=("distill",)
    )
    options.add(
        parser,
        {
            "--distill": (
                float,
                "weight of the teacher's answers (default: 0.7 with a teacher, else 0)",
            )
        },
    )
    options.add_output(parser, "checkpoint to write")


def run(arguments: argparse.Namespace) -> int:
    """Fine-tune, write the checkpoint, and read the test images once, at the end."""
    if arguments.distill is None:
        arguments.distill = 0.7 if arguments.teacher else 0.0
    config = shared.config_from(arguments)
    model, dataset = options.opened(arguments)
    config = shared.fitted(config, arguments, dataset)
    model = model.to(shared.device())
    builders = [
        models.read_header(path)[0].builder for path in arguments.teacher
    ]  # --model names the builder of some of them
    named = [arguments.model if builder == arguments.model else None for builder in builders]
    teachers = [*map(models.load, arguments.teacher, named)]
    teacher = Ensemble(teachers).to(shared.device()) if teachers else None
    with shared.saving(arguments) as places:
        history = training.train(model, dataset, config, teacher=teacher, **places)
    origin = provenance(config.seed)
    header = models.read_header(arguments.checkpoint)[1] if arguments.checkpoint else {}
    if before := header.get("provenance", {}).get(
        "command"
    ):  # how the network was made that this one starts from
        origin["command"] = f"{before}; {origin['command']}"
    shared.finish(model, dataset, history, arguments, origin)
    return 0


class Ensemble(nn.Module):
    """Several networks that answer as one, with the mean of their scores: a better teacher than
    each of them alone.
    """

    def __init__(self, networks: list[nn.Module]):
        super().__init__()
        self.networks = nn.ModuleList(networks)
        ways = {normalization_of(network) for network in self.networks}
        if len(ways) > 1:
            raise models.ModelError(
                "the teachers take images that are normalised differently: leave some of them out"
            )
        if any(
            hasattr(network, "input_normalization") for network in self.networks
        ):  # otherwise the data set's is used
            (self.input_normalization,) = ways

    def forward(self, images: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return torch.stack([network(images) for network in self.networks]).mean(0)
