"""The whole default pipeline, tracing included, against torch.fx.experimental.optimization.fuse.

    python -m course.benchmarks.passes_pipeline [--runs 5]

Both run in turn in one process, on one thread, so that a busy machine slows both; processor time counts. What the call
before left to the garbage collector is cleared away first. The chains of equal blocks show the cost per node, which
must not grow with the length.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torchvision
from torch import nn
from torch.fx.experimental.optimization import fuse

from helpers import passes


class Block(nn.Module):
    """conv, bn, add, relu."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)) + x)


def seconds(function: Callable[[], Any]) -> float:
    gc.collect()
    start = time.process_time()
    function()
    return time.process_time() - start


def networks(runs: int) -> None:
    for name in ("mobilenet_v2", "resnet152"):
        model, x = torchvision.models.get_model(name).eval(), torch.randn(1, 3, 64, 64)
        passes.optimize(model, x, verify=False), fuse(model)
        ways = (lambda: passes.optimize(model, x, verify=False), lambda: fuse(model))  # noqa: B023
        times = [[seconds(way) for way in ways] for _ in range(runs)]
        ours, theirs = map(statistics.median, zip(*times, strict=True))
        print(f"{name:<14} ours {1e3 * ours:8.1f} ms   fuse {1e3 * theirs:8.1f} ms   ours/fuse {ours / theirs:.2f}")


def chains(runs: int) -> None:
    lengths = (1_000, 10_000)
    models = {length: nn.Sequential(*(Block() for _ in range(length))).eval() for length in lengths}
    x = torch.randn(1, 4, 4, 4)
    passes.optimize(models[lengths[0]], x, verify=False)
    times: dict[int, list[float]] = {length: [] for length in lengths}
    for _ in range(runs):
        for length in lengths:
            times[length].append(seconds(lambda: passes.optimize(models[length], x, verify=False)) / (4 * length))  # noqa: B023
    per_node = {length: statistics.median(values) for length, values in times.items()}
    for length, value in per_node.items():
        print(f"{length:>6} blocks   ours {1e6 * value:8.1f} us per node")
    ratio = per_node[lengths[1]] / per_node[lengths[0]]
    print(f"cost per node, {lengths[1]:,} against {lengths[0]:,} blocks: {ratio:.2f}")
    theirs = seconds(lambda: fuse(models[lengths[0]])) / (4 * lengths[0])
    print(f"{lengths[0]:>6} blocks   fuse {1e6 * theirs:8.1f} us per node")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    networks(runs)
    chains(max(1, runs // 2))


if __name__ == "__main__":
    main()
