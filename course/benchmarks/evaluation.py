"""What `training.evaluate` adds to the pure forward passes, in one interleaved run.

python -m course.benchmarks.evaluation
"""

import argparse
import statistics
import time

import torch

from helpers import data, models, training
from helpers.allocator import kept_memory

BATCH = 250


def main() -> None:
    """Take turns, and print both medians and the ratio of each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=10_000)
    arguments = parser.parse_args()
    cifar, model = data.load_cifar10("offline"), models.mobilenet_v2().eval()
    images, labels = cifar.test_images[: arguments.images], cifar.test_labels[: arguments.images]
    x = data.normalize(images[:BATCH]).contiguous(memory_format=torch.channels_last)

    def forward_only() -> None:
        with torch.no_grad(), kept_memory():
            for _ in range(-(-len(images) // BATCH)):
                model(x)

    def evaluate() -> None:
        training.evaluate(model, images, labels, batch_size=BATCH)

    taken: dict[str, list[float]] = {"forward only": [], "evaluate": []}
    for _ in range(arguments.rounds + 1):
        for name, work in (("forward only", forward_only), ("evaluate", evaluate)):
            start = time.perf_counter()
            work()
            taken[name].append(time.perf_counter() - start)
    for name, times in taken.items():
        print(f"{name:14s} {statistics.median(times[1:]):6.2f} s for {len(images):,} images")
    ratios = [b / a for a, b in zip(*(times[1:] for times in taken.values()), strict=True)]
    print(f"evaluate / forward only: {statistics.median(ratios):.3f} (median of {len(ratios)} pairs)")


if __name__ == "__main__":
    main()
