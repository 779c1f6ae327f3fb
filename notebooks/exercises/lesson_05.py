"""Lesson 05. The oracles build the layer and count."""

import torch
from torch import nn
from torchvision.models.mobilenetv2 import InvertedResidual

from helpers import metrics
from helpers.checks.inputs import between
from helpers.checks.specification import Case, Item


def macs_cases(rng: torch.Generator) -> list[Case]:
    """Ordinary, grouped and depthwise convolutions, with several strides."""
    cases = []
    kinds = (("an ordinary convolution", 1, 2), ("a grouped one", 2, 1), ("a depthwise one", None, 2))
    for label, groups, stride in kinds:
        kernel = 1 if groups == 2 else 2 * between(rng, 1, 2) + 1
        inputs = {"c_in": 4 * between(rng, 1, 5), "kernel": kernel, "stride": stride}
        inputs["groups"] = groups or inputs["c_in"]
        inputs["c_out"] = inputs["c_in"] if groups is None else 2 * between(rng, 1, 9)
        inputs["size"] = 2 * between(rng, 3, 8)
        cases.append(Case(f"{label}: {inputs}", inputs))
    return cases


def macs_oracle(inputs: dict, probe: dict) -> int:
    """Run the convolution and let the counter watch."""
    layer = nn.Conv2d(
        inputs["c_in"],
        inputs["c_out"],
        inputs["kernel"],
        inputs["stride"],
        padding=inputs["kernel"] // 2,
        groups=inputs["groups"],
        bias=False,
    )
    return metrics.count_macs(layer, torch.zeros(1, inputs["c_in"], inputs["size"], inputs["size"]))


def block_cases(rng: torch.Generator) -> list[Case]:
    """Blocks of several widths and expansions."""
    cases = []
    for _ in range(4):
        inputs = {"c_in": 8 * between(rng, 1, 9), "c_out": 8 * between(rng, 1, 9), "expansion": between(rng, 2, 8)}
        cases.append(Case(f"a block {inputs}", inputs))
    return cases


def block_oracle(inputs: dict, probe: dict) -> int:
    """Build torchvision's block and count its weights without BatchNorm."""
    block = InvertedResidual(inputs["c_in"], inputs["c_out"], stride=1, expand_ratio=inputs["expansion"])
    return sum(m.weight.numel() for m in block.modules() if isinstance(m, nn.Conv2d))


ITEMS = (
    Item(
        name="convolution_macs",
        function="convolution_macs",
        points=1,
        cases=macs_cases,
        oracle=macs_oracle,
        hint="Each output number sums over the window and over the input channels of its own group.",
        nudge="How many output numbers are there, and how long is the sum behind each?",
        minutes=6,
        dots=1,
    ),
    Item(
        name="block_weights",
        function="block_weights",
        points=1,
        cases=block_cases,
        oracle=block_oracle,
        hint="Expand 1 x 1, depthwise 3 x 3 (one window per channel), project 1 x 1.",
        nudge="Three convolutions: write down the shape of each weight tensor.",
        minutes=4,
        dots=1,
    ),
)
