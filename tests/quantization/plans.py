"""Small plans with random weights for the tests of the repairs."""

import copy

import torch
from torch import nn

from helpers import data, models
from helpers.quantization.plan import INPUT, Op, Plan


def conv(name, inputs, channels, out=None, kernel=1, groups=1, clamp=None, seed=0, spread=1.0, size=8):
    """A convolution whose channels differ in range by e^spread and more."""
    out = out or channels
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out, channels // groups, kernel, kernel, generator=generator)
    weight = weight * torch.exp(spread * torch.randn(out, 1, 1, 1, generator=generator)) / (weight[0].numel() ** 0.5)
    attributes = {"stride": (1, 1), "padding": (kernel // 2, kernel // 2), "dilation": (1, 1), "groups": groups}
    bias = torch.randn(out, generator=generator)
    return Op(name, "conv", inputs, weight, bias, clamp, attributes, (out, size, size))


def inverted_residuals(seed=0, spread=1.0):
    """MobileNetV2 in small: stem, two inverted residual blocks (the second with a residual), pooling, classifier."""
    relu6 = (0.0, 6.0)

    def make(name, source, *sizes, **rest):
        source = (source,) if isinstance(source, str) else source
        return conv(name, source, *sizes, seed=seed + len(name), spread=spread, **rest)

    ops = [
        make("stem", INPUT, 3, 8, kernel=3, clamp=relu6),
        make("a.expand", "stem", 8, 16, clamp=relu6),
        make("a.depthwise", "a.expand", 16, kernel=3, groups=16, clamp=relu6),
        make("a.project", "a.depthwise", 16, 8),
        make("b.expand", "a.project", 8, 24, clamp=relu6),
        make("b.depthwise", "b.expand", 24, kernel=3, groups=24, clamp=relu6),
        make("b.project", ("b.depthwise", "a.project"), 24, 8),
        make("head", "b.project", 8, 32, clamp=relu6),
        Op("pool", "average_pool", ("head",), attributes={"kernel": (8, 8), "stride": (8, 8)}, shape=(32, 1, 1)),
        Op("flat", "reshape", ("pool",), shape=(32,)),
    ]
    generator = torch.Generator().manual_seed(seed)
    weight, bias = torch.randn(5, 32, generator=generator), torch.randn(5, generator=generator)
    ops.append(Op("classifier", "linear", ("flat",), weight, bias, shape=(5,)))
    return Plan(ops, (3, 8, 8))


def in_double(plan):
    """The same plan in float64, so that a comparison shows mistakes and not rounding."""
    plan = copy.deepcopy(plan)
    for op in plan.layers:
        op.weight, op.bias = op.weight.double(), op.bias.double()
    return plan


def small_mobilenet(seed=0):
    """MobileNetV2 with few channels, whose BatchNorm statistics fit the images that come with it, 16 x 16."""
    torch.manual_seed(seed)
    model = models.mobilenet_v2(width_mult=0.1)
    images = torch.randint(0, 256, (16, 3, 16, 16), dtype=torch.uint8)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model(data.normalize(images))
    return model.eval(), images
