"""Labelled images in memory, of any size, channels and classes: from arrays or from a folder."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.datasets.folder import IMG_EXTENSIONS


class DataError(ValueError):
    """Images are missing or damaged, or do not fit; says where and what to do."""


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
    """Images uint8 (N, C, H, W) and labels int64 (N,); classes and normalisation are
    CIFAR-10's unless given.

    Attributes:
        mirror: whether a mirrored image is of the same class: true of animals, not of digits.
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
        channels = len(self.normalization.mean)
        for part in ("train", "test"):
            images = getattr(self, f"{part}_images")
            labels = getattr(self, f"{part}_labels")
            shape = (len(labels), channels, *self.train_images.shape[2:])
            where = f"{self.name}: the {part}"
            if images.dtype != torch.uint8 or images.shape != shape:
                form = f"{images.dtype} {tuple(images.shape)}"
                raise DataError(f"{where} images are {form}, expected torch.uint8 {shape}")
            low, high = labels.aminmax() if len(labels) else (0, 0)
            if not 0 <= low <= high < len(self.classes):
                most = len(self.classes) - 1
                raise DataError(f"{where} labels are {low} to {high}; expected 0 to {most}")

    def split(self) -> Split:
        """Set a fixed tenth of the training images aside for validation: 5,000 of CIFAR-10."""
        # The stream of the legacy generator is frozen: the split is the same under every NumPy.
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
            f" {tuple(images.shape)}: give `normalization` for other channels; normalised images"
            " need no second pass"
        )
    mean, deviation = torch.tensor(normalization, dtype=dtype, device=images.device)[
        ..., None, None
    ]
    return images.to(dtype).sub_(mean * 255).div_(deviation * 255)


def normalization_of(model: Any) -> Normalization:
    """How a network's images are normalised; one that does not say takes them as CIFAR-10's are."""
    return getattr(model, "input_normalization", CIFAR10)


def input_of(model: Any, images: torch.Tensor) -> torch.Tensor:
    """What a network takes: uint8 images are normalised its way, floats have been already."""
    if isinstance(images, torch.Tensor) and images.dtype == torch.uint8:
        return normalize(images, normalization=normalization_of(model))
    return images


def set_default_normalization(dataset: Dataset, *models: Any) -> None:
    """Networks that do not say how their images are normalised take them as the data set's are."""
    for model in models:
        silent = model is not None and not hasattr(model, "input_normalization")
        if silent and dataset.normalization != CIFAR10:
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
    for part in labels:
        if part.dim() != 1 or bool((part != part.long()).any()):
            raise DataError(
                f"{name}: labels are {part.dtype} {tuple(part.shape)}; expected a whole number per"
                " image"
            )
    train, test = images
    if not len(train) or not len(test):
        raise DataError(
            f"{name}: there are {len(train)} training and {len(test)} test images; both need some"
        )
    classes = tuple(
        classes or map(str, range(1 + max(int(part.max()) for part in labels if len(part))))
    )
    return Dataset(
        train,
        labels[0].long(),
        test,
        labels[1].long(),
        source=f"{' x '.join(map(str, train.shape[1:]))} pixels, {len(classes)} classes",
        classes=classes,
        # What is no uint8 is refused by `Dataset`.
        normalization=normalization or measured(train.to(torch.uint8)),
        name=name,
        mirror=mirror,
    )


def measured(images: torch.Tensor) -> Normalization:
    """Mean and deviation of each channel, to four digits."""
    counts = [channel.flatten().bincount(minlength=256) for channel in images.movedim(1, 0)]
    shares = torch.stack(counts).double() / counts[0].sum()
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = shares @ values
    deviation = (shares @ values.square() - mean.square()).clamp(min=1 / 255**2).sqrt()
    mean, deviation = torch.stack([mean, deviation]).round(decimals=4).tolist()
    return Normalization(tuple(mean), tuple(deviation))


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
    train, test = _files_by_class(folder)
    mode = "L" if normalization and len(normalization.mean) == 1 else "RGB"
    images: list[np.ndarray] = []
    for path in (path for part in (train, test) for files in part.values() for path in files):
        images.append(pixels(path, size, mode))
        height, width = images[0].shape[:2]
        # Not after the loop: photos of a phone would fill the memory before.
        if images[-1].shape != images[0].shape:
            raise DataError(
                f"{path} has {images[-1].shape[1]} x {images[-1].shape[0]} pixels, the first image"
                f" {width} x {height}; give one size for all: size=64, on the command line"
                " --input-size 64"
            )
    stacked = torch.from_numpy(np.stack(images)).movedim(3, 1).contiguous()
    if normalization is None and bool((stacked == stacked[:, :1]).all()):
        stacked = stacked[:, :1].contiguous()
    labels = [
        torch.arange(len(part)).repeat_interleave(torch.tensor([len(f) for f in part.values()]))
        for part in (train, test)
    ]
    parts = stacked.split([len(labels[0]), len(labels[1])])
    return from_arrays(
        parts[0], labels[0], parts[1], labels[1], tuple(train), normalization, folder.name, mirror
    )


def _files_by_class(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """The files of each class for training, and for the test."""
    test = next((folder / name for name in ("test", "val") if (folder / name).is_dir()), None)
    if test is not None and (folder / "train").is_dir():
        parts = classes_in(folder / "train"), classes_in(test)
        for name in sorted(parts[0].keys() ^ parts[1].keys()):
            raise DataError(f"{folder}: the class {name!r} is in only one of train and {test.name}")
        return parts
    if any((folder / "train").glob("*/")):
        raise DataError(
            f"{folder} has train, but neither test nor val; call the folder of the test images so"
        )
    parts = {}, {}
    for name, files in classes_in(folder, fewest=2).items():
        order = np.random.RandomState(0).permutation(len(files))
        kept = len(files) - max(1, round(len(files) / 5))
        parts[0][name] = [files[at] for at in sorted(order[:kept])]
        parts[1][name] = [files[at] for at in sorted(order[kept:])]
    return parts


def classes_in(folder: Path, fewest: int = 1) -> dict[str, list[Path]]:
    """The images of each class in a folder, in the order of their names."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder; expected one that holds a folder of images for each class"
        )
    visible = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    # By their names as texts: Windows compares paths without case.
    classes = sorted(visible, key=lambda path: path.name)
    if len(classes) < 2:
        raise DataError(
            f"{folder} holds {len(classes)} folders; expected one for each class, two or more"
        )
    inside = [sorted(p.name for p in one.iterdir() if p.is_dir()) for one in classes]
    if len(inside[0]) > 1 and all(folders == inside[0] for folders in inside):
        raise DataError(
            f"{folder}: {classes[0].name} and {classes[1].name} look like parts; call them train"
            " and test"
        )
    images = {path.name: _images_in(path) for path in classes}
    for name, files in images.items():
        if len(files) < fewest:
            raise DataError(
                f"{folder / name}: the class has {len(files)} images, and needs {fewest} or more"
            )
    return images


def _images_in(folder: Path) -> list[Path]:
    """All images below a folder but hidden ones: ._cat.jpg, or a copy in .ipynb_checkpoints."""
    inside = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    visible = [name for name in inside if not re.search(r"(^|/)\.", name)]
    return [folder / name for name in visible if name.lower().endswith(IMG_EXTENSIONS)]


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
    if size:
        image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    return np.atleast_3d(image)
