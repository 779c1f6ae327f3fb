"""A larger network to learn from: ``--model course.reference.teacher:resnet18``."""

import torchvision
from torch import nn


def resnet18(num_classes: int = 10) -> nn.Module:
    """ResNet-18 in its usual form for CIFAR-10, which begins at full size: 11,173,962 parameters,
    555 M multiply-adds for images of 32 x 32.
    """
    model = torchvision.models.resnet18(num_classes=num_classes)
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model
