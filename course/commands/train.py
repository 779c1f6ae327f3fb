"""`python -m course train`: from random weights to a checkpoint, a log and one row of results."""

import argparse

import torch

from course.commands import options
from course.commands import training_arguments as shared
from helpers import models, training
from helpers.provenance import provenance


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    options.add(parser, {"--model": ("mobilenet_v2_cifar", "a builder's name")} | options.IMAGES_OF)
    parser.add_argument("--width", type=options.above_zero, default=1.0, help="width multiplier of MobileNetV2")
    shared.add_arguments(parser, training.Config())
    output = {"default": "build/trained.safetensors", "help": "checkpoint to write (default: %(default)s)"}
    parser.add_argument("--output", type=options.writable, **output)


def run(arguments: argparse.Namespace) -> int:
    """Train, write the checkpoint, and read the test images once, at the end."""
    config = shared.config_from(arguments)
    dataset = options.images(arguments.data, arguments.input_size, mirror=not arguments.no_mirror)
    torch.manual_seed(config.seed)
    sizes = {"width_mult": arguments.width, "dropout": 0.0} if arguments.model == "mobilenet_v2_cifar" else {}
    model = models.build(arguments.model, num_classes=len(dataset.classes), **sizes).to(shared.device())
    with shared.saving(arguments) as places:
        history = training.train(model, dataset, config, **places)
    shared.finish(model, dataset, history, arguments, provenance(config.seed))
    return 0
