"""Two networks compared on the same images."""

import torch
from torch import nn

from helpers import data
from helpers.allocator import kept_memory

DISAGREEMENTS = 10  # with fewer, the interval means nothing


def correct(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """For each image 1 if the network names it correctly, else 0."""
    model.eval()
    with torch.no_grad(), kept_memory():
        found = [model(data.normalize(part)).argmax(1) for part in images.split(250)]
    return (torch.cat(found) == labels).float()


def gain(first: torch.Tensor, second: torch.Tensor) -> str:
    """By how many points the first is ahead, with the paired 95 % interval, and whether that says
    anything.

    Args:
        first: what `correct` found for a network.
        second: the same for another one, on the same images.
    """
    points = 100 * (first - second)
    if not points.any():
        return "+0.0 points: both are right on the same images"
    half = 1.96 * points.std().item() / len(points) ** 0.5
    low, high = points.mean().item() - half, points.mean().item() + half
    few = points.count_nonzero() < DISAGREEMENTS
    verdict = ": too close to call" if few or low <= 0 <= high else ""
    # z: no "-0.0"
    return f"{points.mean():+z.1f} points ({low:+z.1f} to {high:+z.1f}){verdict}"
