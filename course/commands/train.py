"""`python -m course train`: from random weights to a checkpoint and a log; and what `finetune`
shares.
"""

import inspect
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import torch
from filelock import FileLock, Timeout
from torch import nn

from course.commands import options
from course.gpu import name_of_gpu
from helpers import models, training
from helpers.dataset import Dataset
from helpers.files import write_atomically
from helpers.provenance import provenance

WITH_WIDTH = "mobilenet_v2_cifar"


def add_arguments(parser: ArgumentParser) -> None:
    """What can be chosen."""
    options.add(parser, {"--model": (WITH_WIDTH, "a builder's name")} | options.IMAGES_OF)
    options.add_lists(parser)
    add_settings(parser, training.Config(), leave_out=("distill", "temperature"))
    output = {"--output": ((options.network, "build/trained.safetensors"), "checkpoint to write")}
    options.add(
        parser,
        {"--width": ((options.above_zero, 1.0), f"width multiplier of {WITH_WIDTH}")} | output,
    )


def run(arguments: Namespace) -> int:
    """Train, write the checkpoint, and read the test images once, at the end."""
    config = config_from(arguments)
    if arguments.width != 1 and arguments.model != WITH_WIDTH:
        told = (
            f"--width {arguments.width:g} belongs to {WITH_WIDTH}, and --model is {arguments.model}"
        )
        raise models.ModelError(f"{told}: leave one of them out")
    ways, mirror = options.normalization(arguments), not arguments.no_mirror
    dataset = options.images(arguments.data, arguments.input_size, ways, mirror)
    config = fitted(config, arguments, dataset)
    torch.manual_seed(config.seed)
    sizes = {"num_classes": len(dataset.classes)}
    if arguments.model == WITH_WIDTH:
        sizes |= {"width_mult": arguments.width, "dropout": 0.0}
    model = models.build(arguments.model, **sizes | options.builders_own(arguments)).to(device())
    if ways:
        model.input_normalization = ways
    with saving(arguments) as places:
        history = training.train(model, dataset, config, **places)
    finish(model, dataset, history, arguments, provenance(config.seed))
    return 0


def add_settings(
    parser: ArgumentParser, defaults: training.Config, leave_out: tuple[str, ...] = ()
) -> None:
    """One option per setting, with the default that `defaults` holds, explained as in the settings'
    docstring.
    """
    entry = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)  # some take two lines
    found = entry.findall(inspect.getdoc(training.Config) or "")
    explained = {name: " ".join(text.split()).removesuffix(".") for name, text in found}
    for field in (field for field in fields(defaults) if field.name not in leave_out):
        value, option, text = (
            getattr(defaults, field.name),
            f"--{field.name.replace('_', '-')}",
            explained[field.name],
        )
        if field.name == "batch_size":  # see `fitted`
            text, value = f"{text} (default: {value}, less for few images)", int
        if isinstance(value, tuple):
            told = f"{text} (default: {' '.join(map(str, value))})" if value else text
            parser.add_argument(
                option, type=int, nargs="+", default=value, help=told, metavar="SIDE"
            )
        else:
            options.add(parser, {option: (value, text)})
    files = {
        "--state": (
            options.writable,
            "resumable state (default: beside the output, with the ending .state)",
        ),
        "--handover": (
            options.network,
            "small file, written after each epoch, from which another machine goes on",
        ),
        "--log": (
            options.writable,
            "CSV of the epochs (default: beside the output, with the ending .csv)",
        ),
    }
    options.add(parser, files)


def config_from(arguments: Namespace) -> training.Config:
    """The settings that the options chose."""
    chosen = {
        f.name: getattr(arguments, f.name)
        for f in fields(training.Config)
        if getattr(arguments, f.name, None) is not None
    }
    return training.Config(**chosen | {"image_sizes": tuple(arguments.image_sizes)})


def fitted(config: training.Config, arguments: Namespace, dataset: Dataset) -> training.Config:
    """With batches that fit the number of images, if no --batch-size was given."""
    if arguments.batch_size is not None:
        return config
    return replace(config, batch_size=training.batch_size_for(dataset))


@contextmanager
def saving(arguments: Namespace) -> Iterator[dict[str, Path | None]]:
    """Where the resumable state of this run is kept; nobody else can write there until it ends,
    however it ends.
    """
    state, log = arguments.state, getattr(arguments, "log", None)
    if log and log.exists() and not log.read_bytes().startswith(b"epoch,"):
        raise RuntimeError(f"{log} is no log of a training: name another, --log")
    lock = FileLock(state.with_name(f"{state.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RuntimeError(
            f"another training writes {state}: wait for its end, or choose another output"
        ) from error
    try:
        yield {"checkpoint": state, "handover": arguments.handover}
    finally:
        with suppress(OSError):  # Windows removes no file that is open
            Path(lock.lock_file).unlink()
        lock.release()


def device() -> torch.device:
    """A GPU if there is one to use; there the fastest kernel for each shape is looked for once."""
    torch.backends.cudnn.benchmark = True
    return torch.device("cuda" if name_of_gpu() else "cpu")


def finish(
    model: nn.Module, dataset: Dataset, history: pd.DataFrame, arguments: Namespace, origin: dict
) -> None:
    """Read the test images once; write log and checkpoint; say where they are."""
    result = training.evaluate(model, dataset.test_images, dataset.test_labels, progress=True)
    metrics = {
        "test_accuracy": result.accuracy,
        "test_images": result.n,
        "test_interval": result.interval,
    }
    metrics["validation_accuracy"] = float(history.validation_accuracy.iloc[-1])
    models.save(
        model, arguments.output, metrics=metrics, provenance=origin | {"data": dataset.source}
    )
    write_atomically(arguments.log, history.to_csv(index=False))  # which another program may hold
    low, high = result.interval
    print(
        f"test accuracy {result.accuracy:.2%} (95 % interval {low:.2%} to {high:.2%}, {result.n:,}"
        " images)"
    )
    print(f"checkpoint {arguments.output}, log {arguments.log}")
