"""A small predictor: load a file, optimise the network for a place, predict.

Images go through in pieces of one fixed size. The network was optimised for that size: kernels were chosen and weights
are packed for it. And the activations of a small piece stay in the cache, in memory that is kept from piece to piece.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from helpers import models
from helpers.allocator import kept_memory
from helpers.data import normalize
from helpers.passes.optimizer import optimize

PRECISIONS = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
TARGETS = ("cpu", "cuda")


class UnknownPlace(ValueError):
    """A target or precision that this machine does not have."""


class Prediction(NamedTuple):
    """For each image its most probable class (N,), and the probabilities of all classes (N, classes)."""

    classes: Tensor
    probabilities: Tensor


class Predictor:
    """A network that was made fast for one place.

    Args:
        model: a float network, or the file that `models.save` wrote; a network that is given is not changed.
        target: "cpu" or "cuda".
        precision: "float32", "float64", "bfloat16" or "float16". The fused CPU kernels are for float32; in the others
            the network runs as a plain composition, and `report.declined` says so.
        batch_size: how many images go through at once: 1 to answer quickly, 32 for many images.
        image_shape: the shape of one image.

    Attributes:
        network: the optimised graph.
        report: what each pass did and declined.

    Example:
        >>> predictor = Predictor("data/checkpoints/baseline.safetensors")
        >>> predictor(cifar.test_images).classes
    """

    def __init__(
        self,
        model: nn.Module | str | Path,
        target: str = "cpu",
        precision: str = "float32",
        batch_size: int = 32,
        image_shape: tuple[int, int, int] = (3, 32, 32),
    ):
        _check_place(target, precision, batch_size)
        network = model if isinstance(model, nn.Module) else models.load(model)
        self.target, self.dtype, self.batch_size = target, PRECISIONS[precision], batch_size
        with torch.inference_mode(False):
            folded, folding = optimize(network, torch.zeros(batch_size, *image_shape))
            folded = folded.to(target, self.dtype)
            example = torch.zeros(batch_size, *image_shape, dtype=self.dtype, device=target)
            self.network, self.report = optimize(folded, example, level="inference")
        self.report.rows[:0] = folding.rows

    def __call__(self, images: Tensor) -> Prediction:
        """Classify uint8 images of shape (N, 3, H, W), N >= 1."""
        with fast_inference():
            probabilities = torch.cat([self.logits(piece).softmax(1) for piece in images.split(self.batch_size)])
        return Prediction(probabilities.argmax(1), probabilities)

    def logits(self, images: Tensor) -> Tensor:
        """The network's own output for one piece of images, as float32 (float64 in that precision)."""
        result = self.network(normalize(images.to(self.target), dtype=self.dtype))
        return result.to("cpu", torch.promote_types(self.dtype, torch.float32))


@contextmanager
def fast_inference() -> Iterator[None]:
    """No gradients, and freed memory stays in the process for the next piece."""
    with kept_memory(), torch.inference_mode():
        yield


def _check_place(target: str, precision: str, batch_size: int) -> None:
    if target not in TARGETS:
        raise UnknownPlace(f"there is no target {target!r}: choose one of {', '.join(TARGETS)}")
    if target == "cuda" and not torch.cuda.is_available():
        raise UnknownPlace("this machine has no CUDA device that PyTorch can use: choose target='cpu'")
    if precision not in PRECISIONS:
        raise UnknownPlace(f"there is no precision {precision!r}: choose one of {', '.join(PRECISIONS)}")
    if batch_size < 1:
        raise UnknownPlace(f"batch_size is {batch_size}: at least one image must go through at a time")
