"""Labelled images in memory, of any size, channels and classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch


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
            if images.dtype != torch.uint8 or images.shape != shape or images.dim() != 4:
                form = f"{images.dtype} {tuple(images.shape)}"
                raise DataError(
                    f"{where} images are {form}, expected torch.uint8 {shape}, of the form"
                    " (N, C, H, W)"
                )
            if labels.dtype != torch.int64 or labels.dim() != 1:
                raise DataError(
                    f"{where} labels are {labels.dtype} {tuple(labels.shape)}, expected torch.int64"
                    " of the form (N,), which from_arrays makes of them"
                )
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
    """How a network's images are normalised; if it does not say, as CIFAR-10's are."""
    return getattr(model, "input_normalization", CIFAR10)


def input_of(model: Any, images: torch.Tensor) -> torch.Tensor:
    """What a network takes: uint8 images are normalised for it, float images already are."""
    if isinstance(images, torch.Tensor) and images.dtype == torch.uint8:
        return normalize(images, normalization=normalization_of(model))
    return images


def set_default_normalization(dataset: Dataset, *models: Any) -> None:
    """Note the data set's normalisation on networks that have none of their own."""
    for model in models:
        if model is not None and not hasattr(model, "input_normalization"):
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
        normalization: what the network was trained with; if not given, it is measured on the
            training images.
        mirror: whether training may mirror images: not those of digits or text.

    Example:
        >>> grey = np.zeros((20, 28, 28), np.uint8)
        >>> from_arrays(grey, np.arange(20) % 2, grey, np.arange(20) % 2).describe()
        'own images: 20 training + 20 test images (1 x 28 x 28 pixels, 2 classes)'
    """
    images = [torch.as_tensor(part) for part in (train_images, test_images)]
    images = [part.unsqueeze(1) if part.dim() == 3 else part for part in images]
    for part in images:
        if part.dim() == 4 and part.shape[3] <= 4 < min(part.shape[1:3]):
            raise DataError(
                f"{name}: images {tuple(part.shape)} seem to be (N, H, W, C), and (N, C, H, W) is"
                " expected: torch.as_tensor(images).movedim(3, 1)"
            )
    labels = [torch.as_tensor(part) for part in (train_labels, test_labels)]
    for part in labels:
        is_whole = not part.is_floating_point() or bool((part == part.long()).all())
        if part.dim() != 1 or not is_whole:
            raise DataError(
                f"{name}: labels are {part.dtype} {tuple(part.shape)}; expected a whole number per"
                " image"
            )
    labels = [part.long() for part in labels]
    train, test = images
    if not len(train) or not len(test):
        raise DataError(
            f"{name}: there are {len(train)} training and {len(test)} test images; both need some"
        )
    last = max((int(part.max()) for part in labels if len(part)), default=0)
    classes = tuple(map(str, range(last + 1)) if classes is None else classes)
    return Dataset(
        train,
        labels[0],
        test,
        labels[1],
        source=f"{' x '.join(map(str, train.shape[1:]))} pixels, {len(classes)} classes",
        classes=classes,
        # `Dataset` refuses anything but uint8.
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
