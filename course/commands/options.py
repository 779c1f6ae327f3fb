"""What several commands take: numbers, files to write, and a network of this course or of your own
with its images.
"""

import argparse
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from torch import Tensor, nn, zeros

from course.commands import add
from helpers import data, models, training
from helpers.dataset import (
    CIFAR10,
    Dataset,
    Normalization,
    normalization_of,
    set_default_normalization,
)
from helpers.quantization import QuantizedModel


def positive(word: str) -> int:
    """A whole number of 1 or more; a negative one would count from the end of the images."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of 1 or more")
    return int(word)


def above_zero(word: str) -> float:
    """A number above 0, and no infinity."""
    with suppress(ValueError):
        if 0 < float(word) < float("inf"):
            return float(word)
    raise argparse.ArgumentTypeError(f"{word!r} is not a number above 0")


def writable(word: str) -> Path:
    """A file to write, where a file can be written: better known before hours of training than
    after them.
    """
    path = Path(word).expanduser()
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        there = next(folder for folder in path.absolute().parents if folder.exists())
        with TemporaryFile(dir=there):  # the folders below it are made when the file is
            return path
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{path} cannot be written: {error.strerror or error}"
        ) from error


def network(word: str) -> Path:
    """A network's file to write. Without the ending, `x-0.5` and `x-0.7` would share the state file
    `x-0.state`.
    """
    path = writable(word)
    if path.suffix != ".safetensors":
        raise argparse.ArgumentTypeError(f"{path} must end in .safetensors")
    return path


def add_output(parser: argparse.ArgumentParser, text: str) -> None:
    """Every command that writes a network calls it --output."""
    parser.add_argument("--output", type=network, required=True, metavar="FILE", help=text)


NETWORK = {
    "--model": (
        str,
        "its builder: package.module:function, which is imported, or a name of torchvision",
    ),
    "--weights": (Path, "its state dict, of torch.save or safetensors"),
}
IMAGES_OF = {
    "--data": (
        "auto",
        f"where CIFAR-10 comes from ({', '.join(data.SOURCES)}), or a folder of images of your own",
    ),
    "--input-size": (positive, "bring your images to this side"),
    "--no-mirror": (False, "never train on mirrored images, of digits or text for example"),
}
IMAGES = "how many training images to look at, if the command looks at any"


def add_network(parser: argparse.ArgumentParser, count: str = "?") -> None:
    """The network and its images; as many files of the course as argparse's `count` says."""
    parser.add_argument(
        "checkpoint", type=Path, nargs=count, help="a network that this course saved"
    )
    own = parser.add_argument_group("a network and images of your own")
    add(own, NETWORK | IMAGES_OF)
    add_lists(own)


def add_lists(parser: Any) -> None:
    """The builder's arguments, and how images are normalised."""
    parser.add_argument(
        "--arguments",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="arguments for the builder, such as num_classes=7",
    )
    for name in Normalization._fields:
        text = (
            f"{name} of each channel that the network is trained with (default: the training"
            " images')"
        )
        parser.add_argument(f"--{name}", nargs="+", type=float, help=text, metavar="X")


def opened(
    arguments: argparse.Namespace,
    checkpoint: Path | None = None,
    look: bool = True,
    quantized: bool = False,
) -> tuple[nn.Module, Dataset | None]:
    """The network and the images that the options of `add_network` name, which fit together.

    `checkpoint` says which, if there are several. With `look=False` CIFAR-10 is not read, and None
    is returned in its place; `quantized` says whether the network may be quantized already.
    """
    checkpoint = checkpoint or arguments.checkpoint
    if bool(checkpoint) == bool(arguments.weights) or (arguments.weights and not arguments.model):
        raise models.ModelError(
            "give a file of this course, or --model and --weights for a network of your own"
        )
    if checkpoint and arguments.arguments:
        raise models.ModelError("--arguments is for --weights; leave it out")
    if checkpoint and arguments.input_size and arguments.data in data.SOURCES:
        raise models.ModelError("--input-size is for --data of your own; leave it out")
    if checkpoint:
        # A file of the course knows its builder; --model may then name that of the teacher alone.
        named_by_code = ":" in models.read_header(checkpoint)[0].builder
        model = models.load(checkpoint, arguments.model if named_by_code else None)
        if isinstance(model, QuantizedModel) and not quantized:
            raise models.ModelError(
                f"{checkpoint} is quantized already; start from the network that it was made from"
            )
    else:
        model = models.build(arguments.model, **builders_own(arguments))
        models.load_weights(model, arguments.weights).eval()
    if ways := normalization(arguments):
        model.input_normalization = ways
    elif not checkpoint or (
        arguments.data not in data.SOURCES and model.spec.normalization is None
    ):
        name, whose = (
            (checkpoint or arguments.weights).name,
            "CIFAR-10's" if checkpoint else "the images' own",
        )
        if checkpoint:
            model.input_normalization = CIFAR10
        print(
            f"{name} states no normalisation: {whose} is taken; if wrong, give --mean and"
            " --deviation"
        )
    if not look and arguments.data in data.SOURCES:
        return model, None
    ways = getattr(model, "input_normalization", None)
    dataset = images(arguments.data, arguments.input_size, ways, not arguments.no_mirror)
    print(dataset.describe())
    set_default_normalization(dataset, model)
    training.check_scores(model, dataset)
    return model, dataset


def builders_own(arguments: argparse.Namespace) -> dict[str, Any]:
    """What --arguments says."""
    return dict(map(named, arguments.arguments))


def normalization(arguments: argparse.Namespace) -> Normalization | None:
    """What --mean and --deviation say; None without them."""
    ways = Normalization(tuple(arguments.mean or ()), tuple(arguments.deviation or ()))
    if len(ways.mean) != len(ways.deviation):
        raise models.ModelError(
            f"--mean has {len(ways.mean)} numbers and --deviation {len(ways.deviation)}: give one"
            " of each per channel"
        )
    if not all(0 <= mean <= 1 for mean in ways.mean) or not all(0 < d < 10 for d in ways.deviation):
        raise models.ModelError(
            "--mean and --deviation are of pixels from 0 to 1, so a mean lies between 0 and 1, and"
            " a deviation above 0 and below 10: divide numbers for pixels up to 255 by 255"
        )
    return ways if ways.mean else None


def images(
    source: str,
    size: int | None = None,
    normalization: Normalization | None = None,
    mirror: bool = True,
) -> Dataset:
    """CIFAR-10 from one of its sources, or a folder of your own."""
    if size and source in data.SOURCES:
        raise data.DataError(
            f"--input-size {size}: CIFAR-10 has 32 pixels; leave it out, or give --data of your own"
        )
    if source in data.SOURCES:
        return replace(data.load_cifar10(source), mirror=mirror)
    if not Path(source).expanduser().is_dir():
        raise data.DataError(
            f"--data {source}: no such folder, and no source of CIFAR-10"
            f" ({', '.join(data.SOURCES)})"
        )
    return data.from_folder(source, size, normalization, mirror=mirror)


def example(arguments: argparse.Namespace, model: nn.Module, dataset: Dataset | None) -> Tensor:
    """An image as the network takes it; a square one if there are no images to look at."""
    if dataset is not None:
        return zeros(1, *dataset.train_images.shape[1:])
    size = arguments.input_size or 32
    return zeros(1, len(normalization_of(model).mean), size, size)


def named(word: str) -> tuple[str, Any]:
    """NAME=VALUE, with a value in JSON, or a plain word."""
    name, equals, value = word.partition("=")
    if not equals:
        raise models.ModelError(f"--arguments: {word!r} is not NAME=VALUE, such as num_classes=7")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, {"True": True, "False": False, "None": None}.get(value, value)
