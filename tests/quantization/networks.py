"""Small networks and layers with every operation that has an integer form."""

import copy

import torch
from torch import nn

from helpers import data, models
from helpers.quantization import Recipe, quantize
from helpers.quantization.model import QuantizedModel
from tests.passes.zoo import Net


def small(seed: int = 0) -> nn.Module:
    """Stem, depthwise, residual block, ReLU6 and ReLU, pools, linear: everything MobileNetV2 and
    ResNet have.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act6(self.bn(self.stem(x)))
        x = x + self.narrow(self.act6(self.depthwise(self.act6(self.widen(x)))))
        x = self.max_pool(self.act(self.grouped(x)))
        return self.fc(torch.flatten(self.pool(x), 1))

    torch.manual_seed(seed)
    parts = {"stem": nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), "bn": nn.BatchNorm2d(8)}
    parts |= {"widen": nn.Conv2d(8, 24, 1), "depthwise": nn.Conv2d(24, 24, 3, padding=1, groups=24)}
    parts |= {"narrow": nn.Conv2d(24, 8, 1), "grouped": nn.Conv2d(8, 12, 3, padding=1, groups=2)}
    parts |= {"max_pool": nn.MaxPool2d(3, stride=2, padding=1), "pool": nn.AdaptiveAvgPool2d(1)}
    model = Net(forward, act6=nn.ReLU6(), act=nn.ReLU(), fc=nn.Linear(12, 5), **parts)
    model.bn.running_mean.normal_()  # statistics that are not the identity
    model.bn.running_var.uniform_(0.5, 2)
    nn.init.uniform_(model.bn.weight, -1.5, 1.5)
    return model.eval()


def images(count: int = 16, size: int = 9, seed: int = 1) -> torch.Tensor:
    """Normalised float images."""
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


_quantized: dict[tuple[str, int], QuantizedModel] = {}


def quantized(recipe: Recipe | None = None, seed: int = 0) -> QuantizedModel:
    """The small network, quantized once for all tests; each gets a copy of its own."""
    recipe = recipe or Recipe(observer="minmax")
    if (key := (str(recipe), seed)) not in _quantized:
        _quantized[key] = quantize(small(seed), images(), recipe)
    return copy.deepcopy(_quantized[key])


def small_mobilenet(seed=0):
    """MobileNetV2 with few channels, whose BatchNorm statistics fit the images that come with it,
    16 x 16.
    """
    torch.manual_seed(seed)
    model = models.mobilenet_v2(width_mult=0.1)
    images = torch.randint(0, 256, (16, 3, 16, 16), dtype=torch.uint8)
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.momentum = 1.0
    with torch.no_grad():
        model(data.normalize(images))
    return model.eval(), images
