"""A data set and a network so small that an epoch takes a blink."""

import torch
from torch import nn

from helpers.data import Dataset

COLOURS = 10


def tiny_cifar(count: int = 120) -> Dataset:
    """Images whose brightness is their class, with noise: learnable in a few steps."""
    generator = torch.Generator().manual_seed(0)

    def images(labels: torch.Tensor) -> torch.Tensor:
        noise = torch.randint(0, 20, (len(labels), 3, 32, 32), generator=generator)
        return (labels[:, None, None, None] * 23 + noise).to(torch.uint8)

    labels = [torch.arange(n) % COLOURS for n in (count, 50)]
    return Dataset(
        images(labels[0]), labels[0], images(labels[1]), labels[1], "made up", is_sample=True
    )


def tiny_model(seed: int = 0) -> nn.Module:
    """One dense, one strided depthwise convolution, BatchNorm, a classifier."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8, bias=False),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, COLOURS),
    )


def tied_model(seed: int = 0) -> nn.Module:
    """With two layers behind it that share their weights."""
    model = tiny_model(seed).append(nn.Linear(COLOURS, COLOURS)).append(nn.Linear(COLOURS, COLOURS))
    model[-1].weight = model[-2].weight
    return model
