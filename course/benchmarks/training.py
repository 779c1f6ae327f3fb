"""Training throughput: this course's loop against the plain one, in one interleaved run.

    python -m course.benchmarks.training

The plain loop is what a tutorial writes: torchvision's CIFAR10-like data set of PIL images, per-image transforms, a
DataLoader, float32, NCHW. Both train the same network on batches of the same size at full 32 x 32 resolution.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from helpers import data, models, training
from helpers.allocator import kept_memory
from helpers.provenance import provenance
from helpers.training.loop import TrainingLoop
from helpers.training.strided_depthwise import unstrided_depthwise

STEPS_A_TURN = 3


class PlainCifar(Dataset):
    """As torchvision's CIFAR10 does it: an array to a PIL image to a transformed tensor, one at a time."""

    def __init__(self, cifar: data.Cifar10):
        self.images = cifar.train_images.permute(0, 2, 3, 1).numpy()
        self.labels = cifar.train_labels.tolist()
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4, padding_mode="reflect"),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(data.MEAN, data.DEVIATION),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def plain_steps(cifar: data.Cifar10, batch_size: int) -> Iterator[None]:
    """The plain loop, one step at a time."""
    torch.manual_seed(0)
    model = models.mobilenet_v2().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    while True:
        for images, labels in DataLoader(PlainCifar(cifar), batch_size, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            optimizer.step()
            yield


def course_steps(cifar: data.Cifar10, batch_size: int, size: int = 32) -> Iterator[None]:
    """The course's loop, one step at a time, with everything it does by default (clipping and averaging included)."""
    torch.manual_seed(0)
    model = models.mobilenet_v2()
    loop = TrainingLoop(model, cifar.split(), training.Config(batch_size=batch_size, lr=0.1))
    model.train()
    generator = torch.Generator().manual_seed(0)
    while True:
        order = torch.randperm(len(loop.images), generator=generator)
        for step, indices in enumerate(order.split(batch_size)[: loop.steps_per_epoch]):
            with unstrided_depthwise(model):
                loop.step(0, step, indices, size, generator)
            yield


def turn(steps: Iterator[None], surroundings: AbstractContextManager) -> list[float]:
    """The durations of a few steps in a row; the first, which follows another loop's turn, is left out."""
    taken = []
    with surroundings:
        for _ in range(1 + STEPS_A_TURN):
            start = time.perf_counter()
            next(steps)
            taken.append(time.perf_counter() - start)
    return taken[1:]


def main() -> None:
    """Take turns, and print images per second and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each loop")
    parser.add_argument("--batch-size", type=int, default=128)
    arguments = parser.parse_args()
    cifar = data.load_cifar10("offline")
    # Only the course's loop runs with its allocator setting.
    loops = {"plain loop": (plain_steps(cifar, arguments.batch_size), nullcontext)}
    for size in (32, 24):
        loops[f"course, {size} x {size}"] = (course_steps(cifar, arguments.batch_size, size), kept_memory)
    taken: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(arguments.rounds):
        for name, (steps, surroundings) in loops.items():
            taken[name] += turn(steps, surroundings())
    print({key: value for key, value in provenance(0).items() if key != "command"})
    reference = statistics.median(taken["plain loop"])
    for name, times in taken.items():
        middle = statistics.median(times)
        print(f"{name:18s} {arguments.batch_size / middle:7.1f} images/s   {reference / middle:5.2f}x")


if __name__ == "__main__":
    main()
