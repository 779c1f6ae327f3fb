"""The settings of a training run."""

import math
from dataclasses import dataclass
from typing import Annotated, get_type_hints


class TrainingError(RuntimeError):
    """Training cannot start or go on; says what is wrong and what to do."""


Count = Annotated[int, 1, 10**6]
Share = Annotated[float, 0, 1]


@dataclass(frozen=True)
class Config:
    """Everything that decides how a network is trained; from equal weights, two runs with equal
    settings on one CPU are equal.

    Attributes:
        epochs: passes over the training images.
        batch_size: images per step.
        lr: peak learning rate of SGD.
        muon: peak learning rate of Muon, which then steps the dense convolutions; 0 leaves them to
            SGD.
        weight_decay: of SGD, for dense weights alone, not for BatchNorm, biases and depthwise
            filters; Muon has a decay of its own.
        label_smoothing: how far labels are softened.
        warmup: share of all steps in which the rate rises; after it the rate falls to zero along a
            cosine.
        ema: decay of the averaged weights, which are what is evaluated and kept; 0 switches
            averaging off.
        clip: largest norm of the gradient; 0 switches clipping off.
        image_sizes: sides of the images, in equal parts of the run: (24, 32) trains the first half
            small; with none, all are as they come.
        cutout: side of the blanked square; 0 for none.
        autoaugment: use torchvision's AutoAugment policy for CIFAR-10.
        skip: share of the easy images that an epoch leaves out, while the rest of them weighs more.
        distill: weight of the teacher's softened answers against the labels, 0 to 1.
        temperature: how far the teacher's answers are softened.
        precision: "auto" (bfloat16 where the hardware computes in it), "float32" or "bfloat16".
        compile: let torch.compile write the kernels; takes a C++ compiler (on a GPU Triton and a C
            compiler), and a minute for each size of the images.
        seed: for the order of the images and their augmentation; the starting weights depend on
            torch.manual_seed.
    """

    epochs: Count = 30
    batch_size: Count = 128
    lr: Annotated[float, 0, 100] = 0.2
    muon: Annotated[float, 0, 100] = 0.0
    weight_decay: Share = 5e-4
    label_smoothing: Share = 0.1
    warmup: Share = 0.1
    ema: Share = 0.999
    clip: Annotated[float, 0, math.inf] = 5.0
    image_sizes: tuple[int, ...] = ()
    cutout: Annotated[int, 0, 1000] = 0
    autoaugment: bool = False
    skip: Annotated[float, 0, 0.9] = 0.0
    distill: Share = 0.0
    temperature: Annotated[float, 0.01, 1000] = 4.0
    precision: str = "auto"
    compile: bool = False
    seed: Annotated[int, -(10**9), 10**9] = 0

    def __post_init__(self):
        for name, hint in get_type_hints(Config, include_extras=True).items():
            low, high = getattr(hint, "__metadata__", (None, None))
            value, whole = getattr(self, name), getattr(hint, "__origin__", None) is int
            fits = type(value) is int or (not whole and isinstance(value, float))
            if low is not None and not (fits and low <= value <= high):
                kind = "be a whole number" if whole else "lie"
                raise TrainingError(f"{name} must {kind} between {low} and {high}, got {value!r}")
            if hint is bool and not isinstance(value, bool):
                raise TrainingError(f"{name} must be True or False, got {value!r}")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise TrainingError(
                f"precision must be auto, float32 or bfloat16, got {self.precision!r}"
            )
        sizes = self.image_sizes
        if not isinstance(sizes, tuple | list) or not all(type(s) is int and s >= 8 for s in sizes):
            raise TrainingError(
                f"image_sizes must be a tuple of sides of 8 pixels or more, got {sizes!r}"
            )
        if len(sizes) > self.epochs:  # Some would be left out, the last among them.
            raise TrainingError(
                f"image_sizes {sizes!r} need an epoch each, and epochs is {self.epochs}"
            )


# For a network that has lost some accuracy, with a teacher.
FINETUNING = Config(epochs=5, lr=0.02, ema=0.99, distill=0.7)
