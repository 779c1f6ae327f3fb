"""The settings of a training run."""

import math
from dataclasses import dataclass
from typing import Any

RANGES = {  # setting -> lowest, highest; whole numbers where both are
    "epochs": (1, 10**6),
    "batch_size": (1, 10**6),
    "seed": (-(10**9), 10**9),
    "cutout": (0, 1000),
    "skip": (0.0, 0.9),
    "lr": (0.0, 100.0),
    "muon": (0.0, 100.0),
    "weight_decay": (0.0, 1.0),
    "label_smoothing": (0.0, 1.0),
    "warmup": (0.0, 1.0),
    "ema": (0.0, 1.0),
    "clip": (0.0, math.inf),
    "distill": (0.0, 1.0),
    "temperature": (0.01, 1000.0),
}


class TrainingError(RuntimeError):
    """Training cannot start or go on; says what is wrong and what to do."""


@dataclass(frozen=True)
class Config:
    """Everything that decides how a network is trained; two runs with equal settings and seed are equal.

    Attributes:
        epochs: passes over the training images.
        batch_size: images per step.
        lr: peak learning rate of SGD.
        muon: peak learning rate of Muon, which then steps the dense convolutions; 0 leaves them to SGD.
        weight_decay: on dense weights only; BatchNorm, biases and depthwise filters are left alone.
        label_smoothing: how far labels are softened.
        warmup: share of all steps in which the rate rises; after it the rate falls to zero along a cosine.
        ema: decay of the averaged weights, which are what is evaluated and kept; 0 switches averaging off.
        clip: largest norm of the gradient; 0 switches clipping off.
        image_sizes: sides of the images, in equal parts of the run: (24, 32) trains the first half small; none: as are.
        cutout: side of the blanked square; 0 for none.
        autoaugment: use torchvision's AutoAugment policy for CIFAR-10.
        skip: share of the easy images that an epoch leaves out, while the rest of them weighs more.
        distill: weight of the teacher's softened answers against the labels, 0 to 1.
        temperature: how far the teacher's answers are softened.
        precision: "auto" (bfloat16 where the hardware computes in it), "float32" or "bfloat16".
        seed: the same seed on the same device gives the same network.
    """

    epochs: int = 30
    batch_size: int = 128
    lr: float = 0.2
    muon: float = 0.0
    weight_decay: float = 5e-4
    label_smoothing: float = 0.1
    warmup: float = 0.1
    ema: float = 0.999
    clip: float = 5.0
    image_sizes: tuple[int, ...] = ()
    cutout: int = 0
    autoaugment: bool = False
    skip: float = 0.0
    distill: float = 0.0
    temperature: float = 4.0
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self):
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            whole = isinstance(low, int)
            if not (is_whole(value) or (not whole and isinstance(value, float))) or not low <= value <= high:
                kind = "be a whole number" if whole else "lie"
                raise TrainingError(f"{name} must {kind} between {low} and {high}, got {value!r}")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise TrainingError(f"precision must be auto, float32 or bfloat16, got {self.precision!r}")
        sizes = self.image_sizes
        if not isinstance(sizes, tuple | list) or not all(is_whole(s) and s >= 8 for s in sizes):
            raise TrainingError(f"image_sizes must be a tuple of sides of 8 pixels or more, got {sizes!r}")
        if len(sizes) > self.epochs:  # Some would be left out, the last among them.
            raise TrainingError(f"image_sizes {sizes!r} need an epoch each, and epochs is {self.epochs}")


def is_whole(value: Any) -> bool:
    """Whether this is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)
