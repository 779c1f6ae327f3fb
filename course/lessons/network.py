"""The trained network that the lessons work on."""

import torch
from torch import nn

from helpers import models
from helpers.data import Dataset, normalize


def baseline(cifar: Dataset) -> nn.Module:
    """The course's trained MobileNetV2; without its checkpoint, random weights with real BatchNorm statistics.

    Args:
        cifar: its training images give the statistics when there is no checkpoint.
    """
    if (models.CHECKPOINTS / "dense.safetensors").exists():
        model = models.pretrained()
        print("MobileNetV2, trained on CIFAR-10 (data/checkpoints/dense.safetensors)")
    else:
        torch.manual_seed(0)
        model = models.mobilenet_v2().train()
        with torch.no_grad():
            for start in range(0, 320, 32):
                model(normalize(cifar.train_images[start : start + 32]))
        print("MobileNetV2 with random weights: no checkpoint here, `python -m course train` makes one")
    return model.eval()
