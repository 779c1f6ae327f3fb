"""Labelled images in memory, of any size, channels and classes: from arrays, or from a folder with
one per class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.datasets.folder import IMG_EXTENSIONS


class DataError(ValueError):
    """Images are missing, damaged or cannot be fetched, or do not fit; says where and what to do."""


class Normalization(NamedTuple):
    """What a network's input is: (x / 255 - mean) / deviation, with one number per channel."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10 = Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


@dataclass(frozen=True)
class Split:
    """The training images in two parts: one to learn from, one to choose with."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    validation_images: torch.Tensor
    validation_labels: torch.Tensor
    mirror: bool = True


@dataclass(frozen=True)
class Dataset:
    """Images uint8 (N, C, H, W), labels int64 (N,); the default classes and normalisation are those
    of CIFAR-10.

    `mirror` says whether a mirrored image is one of the same class: so it is with animals, and not
    with digits or text.
    """

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor
    source: str
    is_sample: bool = False
    classes: tuple[str, ...] = CLASSES
    normalization: Normalization = CIFAR10
    name: str = "CIFAR-10"
    mirror: bool = True

    def __post_init__(self):
        shape = (len(self.normalization.mean), *self.train_images.shape[2:])
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if images.dtype != torch.uint8 or images.shape != (len(labels), *shape):
                wanted = f"torch.uint8 ({len(labels)}, {', '.join(map(str, shape))})"
                found = f"{images.dtype} {tuple(images.shape)}"
                raise DataError(f"{self.name}: the {part} images are {found}, expected {wanted}")
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(self.classes):
                found = f"{int(labels.min())} to {int(labels.max())}"
                raise DataError(
                    f"{self.name}: the {part} labels are {found}; expected 0 to"
                    f" {len(self.classes) - 1}"
                )

    def split(self) -> Split:
        """Set a fixed tenth of the training images aside for validation (45,000 / 5,000 of
        CIFAR-10).
        """
        # The legacy generator's stream is frozen for ever, so the split is the same under every
        # NumPy.
        order = torch.from_numpy(np.random.RandomState(0).permutation(len(self.train_images)))
        train, validation = order.tensor_split([len(order) - max(1, round(len(order) / 10))])
        images, labels = self.train_images, self.train_labels
        return Split(
            images[train], labels[train], images[validation], labels[validation], self.mirror
        )

    def describe(self) -> str:
        """One line for the top of a notebook: how many images, and from where."""
        note = ", a sample: expect an error bar of about 2 points" if self.is_sample else ""
        counts = f"{len(self.train_images):,} training + {len(self.test_images):,} test images"
        return f"{self.name}: {counts} ({self.source}{note})"


def normalize(
    images: torch.Tensor, dtype: torch.dtype = torch.float32, normalization: Normalization = CIFAR10
) -> torch.Tensor:
    """Turn uint8 images into what a network takes: (x / 255 - mean) / deviation, per channel.

    Args:
        images: uint8 (N, C, H, W), on any device.
        normalization: a network's own (`normalization_of`); CIFAR-10's by default.
    """
    channels = len(normalization.mean)
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != channels:
        raise DataError(
            f"normalize: expected uint8 images of shape (N, {channels}, H, W), got {images.dtype}"
            f" {tuple(images.shape)}: give `normalization` for other channels; what is normalised"
            " needs no second pass"
        )
    mean, deviation = (
        torch.tensor(v, dtype=dtype, device=images.device)[:, None, None] for v in normalization
    )
    return images.to(dtype).sub_(mean * 255).div_(deviation * 255)


def normalization_of(model: Any) -> Normalization:
    """How a network's images are normalised; one that does not say takes them as CIFAR-10's are."""
    return getattr(model, "input_normalization", CIFAR10)


def input_of(model: Any, images: torch.Tensor) -> torch.Tensor:
    """What a network takes: uint8 images are normalised its way, floats have been already."""
    uint8 = isinstance(images, torch.Tensor) and images.dtype == torch.uint8
    return normalize(images, normalization=normalization_of(model)) if uint8 else images


def adopt(dataset: Dataset, *models: Any) -> None:
    """From now on, networks that do not say how their images are normalised take them as those of
    the data set are.
    """
    for model in models:
        if (
            model is not None
            and not hasattr(model, "input_normalization")
            and dataset.normalization != CIFAR10
        ):
            model.input_normalization = dataset.normalization


def from_arrays(
    train_images: Any,
    train_labels: Any,
    test_images: Any,
    test_labels: Any,
    classes: Sequence[str] | None = None,
    normalization: Normalization | None = None,
    name: str = "own images",
    mirror: bool = True,
) -> Dataset:
    """A data set of your own from arrays or tensors.

    Args:
        train_images, test_images: uint8 (N, C, H, W), or (N, H, W) for one channel.
        train_labels, test_labels: whole numbers from 0.
        classes: their names; without them they are called by their numbers.
        normalization: what the network was trained with; measured on the training images without
            it.
        mirror: whether training may mirror images: not those of digits or text.

    Example:
        >>> grey = np.zeros((20, 28, 28), np.uint8)
        >>> from_arrays(grey, np.arange(20) % 2, grey, np.arange(20) % 2).describe()
        'own images: 20 training + 20 test images (1 x 28 x 28 pixels, 2 classes)'
    """
    images = [torch.as_tensor(part) for part in (train_images, test_images)]
    images = [part.unsqueeze(1) if part.dim() == 3 else part for part in images]
    labels = [torch.as_tensor(part) for part in (train_labels, test_labels)]
    if wrong := [part for part in labels if part.dim() != 1 or bool((part != part.long()).any())]:
        raise DataError(
            f"{name}: labels are {wrong[0].dtype} {tuple(wrong[0].shape)}; expected a whole number"
            " per image"
        )
    if not len(images[0]) or not len(images[1]):
        raise DataError(
            f"{name}: there are {len(images[0])} training and {len(images[1])} test images; both"
            " need some"
        )
    classes = tuple(classes or map(str, range(1 + max(int(part.max()) for part in labels))))
    source = f"{' x '.join(map(str, images[0].shape[1:]))} pixels, {len(classes)} classes"
    ways = normalization or measured(images[0].to(torch.uint8))  # what is no uint8 is refused below
    labels = [part.long() for part in labels]
    return Dataset(
        images[0], labels[0], images[1], labels[1], source, False, classes, ways, name, mirror
    )


def measured(images: torch.Tensor) -> Normalization:
    """Mean and deviation of each channel, to four digits."""
    counts = torch.stack(
        [part.flatten().bincount(minlength=256) for part in images.movedim(1, 0)]
    ).double()
    shares, values = (
        counts / counts.sum(1, keepdim=True),
        torch.arange(256, dtype=torch.float64) / 255,
    )
    mean = shares @ values
    deviation = (shares @ values.square() - mean.square()).clamp(min=1 / 255**2).sqrt()
    return Normalization(
        *(tuple(round(one, 4) for one in numbers.tolist()) for numbers in (mean, deviation))
    )


def from_folder(
    folder: str | Path,
    size: int | None = None,
    normalization: Normalization | None = None,
    mirror: bool = True,
) -> Dataset:
    """A data set of your own from a folder with one folder per class, as torchvision's
    `ImageFolder` takes it.

    Args:
        folder: holds `train` and `test` (or `val`) with a folder for each class, or the folders of
            the classes themselves: then a fifth of each class, always the same one, is for the
            test.
        size: bring every image to this side: the shorter side is scaled to it, the middle is cut
            out. Without it images stay as they are, and must all have the same size.
        normalization: what the network was trained with, with one number or three, which decides on
            grey or colour; without it images are grey if all of them are, and it is measured on the
            training images.
        mirror: as in `from_arrays`.

    Raises:
        DataError: a class without images, an unreadable image, images of several sizes: names the
            file or folder.
    """
    folder = Path(folder).expanduser()
    test = next((folder / name for name in ("test", "val") if (folder / name).is_dir()), None)
    if test is not None and (folder / "train").is_dir():
        parts = [classes_in(folder / "train"), classes_in(test)]
        if different := sorted(parts[0].keys() ^ parts[1].keys()):
            raise DataError(
                f"{folder}: the class {different[0]!r} is in only one of train and {test.name}"
            )
    elif any((folder / "train").glob("*/")):
        raise DataError(
            f"{folder} has train, but neither test nor val; call the folder of the test images so"
        )
    else:
        parts = [{}, {}]
        for name, files in classes_in(folder, fewest=2).items():
            order = np.random.RandomState(0).permutation(len(files))
            kept = len(files) - max(1, round(len(files) / 5))
            for part, chosen in zip(parts, (order[:kept], order[kept:]), strict=True):
                part[name] = [files[at] for at in sorted(chosen)]
    listed = [
        [(path, label) for label, files in enumerate(part.values()) for path in files]
        for part in parts
    ]
    mode = "L" if normalization and len(normalization.mean) == 1 else "RGB"
    images = [[], []]
    for part, found in zip(listed, images, strict=True):
        for path, _ in part:
            found.append(image := pixels(path, size, mode))
            if image.shape != (
                first := images[0][0].shape
            ):  # now, since all photos of a phone fill the memory
                sizes = (
                    f"{image.shape[1]} x {image.shape[0]} pixels, {listed[0][0][0]} {first[1]} x"
                    f" {first[0]}"
                )
                raise DataError(
                    f"{path} has {sizes}; give one for all: size=64, on the command line"
                    " --input-size 64"
                )
    stacked = [torch.from_numpy(np.stack(part)).movedim(3, 1).contiguous() for part in images]
    if normalization is None and all(bool((part == part[:, :1]).all()) for part in stacked):
        stacked = [part[:, :1].contiguous() for part in stacked]
    labels = [torch.tensor([label for _, label in part]) for part in listed]
    arrays = (stacked[0], labels[0], stacked[1], labels[1])
    return from_arrays(*arrays, tuple(parts[0]), normalization, folder.name, mirror)


def classes_in(folder: Path, fewest: int = 1) -> dict[str, list[Path]]:
    """The images of each class in a folder, in the order of their names."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder; expected one that holds a folder of images for each class"
        )
    # By their names as texts, so that the order is the same on Windows, where paths are compared
    # without case.
    names = sorted(
        (p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")),
        key=lambda p: p.name,
    )
    if len(names) < 2:
        raise DataError(
            f"{folder} holds {len(names)} folders; expected one for each class, two or more"
        )
    inside = [sorted(p.name for p in one.iterdir() if p.is_dir()) for one in names]
    if len(inside[0]) > 1 and all(folders == inside[0] for folders in inside):
        raise DataError(
            f"{folder}: {names[0].name} and {names[1].name} look like parts; call them train and"
            " test"
        )
    found = {
        one.name: [p for p in one.rglob("*") if p.suffix.lower() in IMG_EXTENSIONS] for one in names
    }
    for name, files in found.items():  # such as ._cat.jpg, or a copy in .ipynb_checkpoints
        files = [
            p for p in files if not any(part[0] == "." for part in p.relative_to(folder).parts)
        ]
        found[name] = sorted(files, key=lambda p: p.relative_to(folder).as_posix())
    for name, files in found.items():
        if len(files) < fewest:
            raise DataError(
                f"{folder / name}: the class has {len(files)} images, and needs {fewest} or more"
            )
    return found


def pixels(path: Path, size: int | None, mode: str) -> np.ndarray:
    """An image's bytes (H, W, C), of 8 bits per channel, brought to a size if one is given."""
    try:
        with Image.open(path) as image:
            if image.mode[0] in "IF":
                raise ValueError(
                    f"it is of the mode {image.mode}, and 8 bits per channel are expected"
                )
            image = ImageOps.exif_transpose(image).convert(mode)  # a phone notes how it was held
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path} cannot be used as an image ({reason}); remove it, or save it again"
        ) from error
    return np.atleast_3d(
        ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR) if size else image
    )
