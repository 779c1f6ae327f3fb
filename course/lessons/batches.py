"""Augmented batches for the training loops that stand in the lessons."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from helpers.augment import training_batch


@dataclass
class TrainingBatches:
    """Several times through the images, in another order each time: pairs of normalised images and
    labels.
    """

    images: torch.Tensor  # uint8 (N, 3, 32, 32)
    labels: torch.Tensor
    passes: int = 1  # how often each image comes
    size: int = 128  # images in a batch
    seed: int = 0  # of the order and of the augmentation; the same seed gives the same batches
    each: Callable[[int], None] | None = None  # called before each batch with its number

    def __post_init__(self) -> None:
        if len(self.images) < self.size:
            raise ValueError(f"{len(self.images)} images make no batch of size={self.size}")

    def __len__(self) -> int:
        return self.passes * (len(self.images) // self.size)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        for number in range(self.passes):
            order = torch.randperm(len(self.images), generator=generator)
            whole = len(order) // self.size
            for place, chosen in enumerate(order.split(self.size)[:whole]):
                if self.each:
                    self.each(number * whole + place)
                yield training_batch(self.images, chosen, number, generator), self.labels[chosen]
