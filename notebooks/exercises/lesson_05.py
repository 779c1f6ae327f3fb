"""Lesson 05. The oracles build the layer and count, or go pixel by pixel."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between, normal
from torch import nn
from torchvision.models.mobilenetv2 import InvertedResidual

from helpers import metrics
from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake


def macs_cases(rng: torch.Generator) -> list[Case]:
    """Ordinary, grouped and depthwise convolutions, with several strides."""
    cases = []
    kinds = (
        ("an ordinary convolution", 1, 2),
        ("a grouped one", 2, 1),
        ("a depthwise one", None, 2),
    )
    for label, groups, stride in kinds:
        kernel = 1 if groups == 2 else 2 * between(rng, 1, 2) + 1
        inputs = {"c_in": 4 * between(rng, 1, 5), "kernel": kernel, "stride": stride}
        inputs["groups"] = groups or inputs["c_in"]
        inputs["c_out"] = inputs["c_in"] if groups is None else 2 * between(rng, 1, 9)
        inputs["size"] = 2 * between(rng, 3, 8)
        cases.append(
            Case(
                f"{label}: {', '.join(f'{name} {value}' for name, value in inputs.items())}", inputs
            )
        )
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
        narrow = between(rng, 1, 9)
        inputs = {
            "c_in": 8 * narrow,
            "c_out": 8 * ((narrow + between(rng, 0, 7)) % 9 + 1),  # another width
            "expansion": between(rng, 2, 8),
        }
        cases.append(Case(", ".join(f"{name} {value}" for name, value in inputs.items()), inputs))
    return cases


def block_oracle(inputs: dict, probe: dict) -> int:
    """Build torchvision's block and count its weights without BatchNorm."""
    block = InvertedResidual(
        inputs["c_in"], inputs["c_out"], stride=1, expand_ratio=inputs["expansion"]
    )
    return sum(m.weight.numel() for m in block.modules() if isinstance(m, nn.Conv2d))


def augment_cases(rng: torch.Generator) -> list[Case]:
    """Images that are not square, moved in all directions."""
    images = torch.randint(1, 256, (6, 3, 8, 9), generator=rng, dtype=torch.uint8)
    shifts = torch.tensor(
        [[1, 0], [-2, 0], [0, 3], [0, -1], [-4, 4], [between(rng, -4, 4), between(rng, -4, 4)]]
    )
    mirror = torch.tensor([False, True])[torch.randint(2, (6,), generator=rng)]
    mirror[2:4] = torch.tensor([True, False])
    still = {"images": images, "shifts": torch.zeros_like(shifts), "mirror": mirror}
    return [
        Case("images that are only mirrored", still),
        Case("images that move", still | {"shifts": shifts}),
    ]


def augment_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """Pixel by pixel: where does each one come from?"""
    images, moved = inputs["images"], torch.zeros_like(inputs["images"])
    height, width = images.shape[2:]
    for i, (down, right) in enumerate(inputs["shifts"].tolist()):
        for row in range(height):
            for column in range(width):
                if 0 <= row + down < height and 0 <= column + right < width:
                    to = width - 1 - column - right if inputs["mirror"][i] else column + right
                    moved[i, :, row + down, to] = images[i, :, row, column]
    return moved


def rate_cases(rng: torch.Generator) -> list[Case]:
    """In the warm-up, at its end, after it, at the very end; and a number of steps that ten does
    not divide.
    """
    steps = 10 * between(rng, 3, 9) + between(rng, 6, 9)  # a tenth would be rounded up
    peak = between(rng, 11, 20) / 10
    places = (0, steps // 10 - 1, steps // 10, between(rng, steps // 2, steps - 2), steps - 1)
    return [
        Case(f"step {step} of {steps}", {"step": step, "steps": steps, "peak": peak})
        for step in places
    ]


def rate_oracle(inputs: dict, probe: dict) -> float:
    """The cosine as the half-angle formula gives it."""
    step, warm = inputs["step"], inputs["steps"] // 10
    if step < warm:
        return inputs["peak"] / warm * (step + 1)
    return inputs["peak"] * math.cos(math.pi / 2 * (step - warm) / (inputs["steps"] - warm)) ** 2


COUNTER = "1.num_batches_tracked"


def average_cases(rng: torch.Generator) -> list[Case]:
    """Weights, statistics and the counter of a BatchNorm."""
    pair = []
    for _ in range(2):
        layers = {"0.weight": normal(rng, 3, 2), "1.running_var": normal(rng, 3).abs()}
        layers = {name: tensor.float() for name, tensor in layers.items()}
        layers["2.scale"] = normal(rng, 1)[0].float()
        pair.append(layers | {COUNTER: torch.tensor(between(rng, 1, 10**6))})
    average, current = pair
    return [
        Case(
            "two sets of weights",
            {"average": average, "current": current, "decay": between(rng, 6, 8) / 10},
        )
    ]


def run_average(student: Mapping[str, Any], inputs: dict) -> dict:
    """The new average, and whether the tensors that were handed over are as before."""
    average, current = inputs["average"], inputs["current"]
    before = [tensor.clone() for tensor in (*average.values(), *current.values())]
    moved = student["average_weights"](dict(average), dict(current), inputs["decay"])
    given = (*average.values(), *current.values())
    same = all(map(torch.equal, before, given))
    places = {tensor.data_ptr() for tensor in given}
    new = isinstance(moved, dict) and all(
        isinstance(tensor, torch.Tensor) and tensor.data_ptr() not in places
        for tensor in moved.values()
    )
    return {"new average": moved, "both were left alone": same, "all tensors are new": new}


def average_oracle(inputs: dict, probe: dict) -> dict:
    """Each weight moves towards its present value by 1 - decay of the way."""
    current, part = inputs["current"], 1 - inputs["decay"]
    moved = {
        name: old + part * (current[name] - old)
        for name, old in inputs["average"].items()
        if old.is_floating_point()
    }
    moved[COUNTER] = current[COUNTER]
    return {"new average": moved, "both were left alone": True, "all tensors are new": True}


CLOSE = Tolerance(relative=1e-5, absolute=1e-6)  # an answer in float32 is right as well
ITEMS = (
    Item(
        "convolution_macs",
        macs_cases,
        macs_oracle,
        minutes=6,
        dots=1,
        nudge="How many output numbers are there, and how long is the sum behind each?",
        hint="Each output number sums over the window and over the input channels of its own "
        "group.",
        mistakes=(
            Mistake(
                "You leave out groups. A filter reads only the input channels of its own group.",
                wrong="c_in",
                right="(c_in // groups)",
            ),
            Mistake(
                "You count one sum per input pixel. With a stride there are fewer outputs than "
                "that.",
                wrong="size",
                right="size // stride",
            ),
            Mistake(
                "You count one side of the window. It has kernel x kernel weights.",
                wrong="kernel",
                right="kernel**2",
            ),
            Mistake(
                "Your count is twice what it should be: a multiplication and its addition count as "
                "one multiply-add here.",
                wrong="return 2 * ",
                right="return ",
            ),
            Mistake(
                "You divide c_out by groups, too. Groups make each sum shorter, but the number "
                "of outputs stays the same.",
                wrong="(c_out // groups) *",
                right="c_out *",
            ),
        ),
    ),
    Item(
        "block_weights",
        block_cases,
        block_oracle,
        minutes=4,
        dots=1,
        nudge="Three convolutions: write down the shape of each weight tensor.",
        hint="Expand 1 x 1, depthwise 3 x 3 (one window per channel), project 1 x 1.",
        mistakes=(
            Mistake(
                "Your middle convolution connects every channel with every other. A depthwise "
                "one has a single window per channel.",
                wrong="9 * hidden * hidden",
                right="9 * hidden",
            ),
            Mistake(
                "You count one weight per channel in the middle. A depthwise window is 3 x 3.",
                wrong="hidden",
                right="9 * hidden",
            ),
            Mistake(
                "The depthwise convolution in the middle is missing. It has weights, too.",
                wrong="",
                right=" + 9 * hidden",
            ),
            Mistake(
                "You take the output channels times the expansion. The hidden width is a "
                "multiple of c_in.",
                wrong="expansion * c_out",
                right="expansion * c_in",
            ),
        ),
    ),
    Item(
        "augment",
        augment_cases,
        augment_oracle,
        tolerance=Tolerance(same_types=True),
        minutes=8,
        dots=2,
        nudge="Where in the padded image must the window start so that the picture moves down?",
        hint="Pad by 4 on all sides, then cut the window that starts at (4 - down, 4 - right); "
        "mirror the last axis.",
        mistakes=(
            Mistake(
                "Your pictures move in the opposite direction. For a picture to move down, the "
                "window must start higher up.",
                wrong="4 + down : 4 + down + height, 4 + right : 4 + right + width",
                right="4 - down : 4 - down + height, 4 - right : 4 - right + width",
            ),
            Mistake(
                "You turn pictures upside down. A mirror exchanges left and right, which is the "
                "last axis.",
                wrong="cut.flip(1)",
                right="cut.flip(2)",
            ),
            Mistake(
                "You take the two shifts in the wrong order. The first moves down, the second to "
                "the right.",
                wrong="(right, down)",
                right="(down, right)",
            ),
            Mistake(
                "You mirror before you move, so mirrored pictures go to the wrong side. Move "
                "first, then mirror.",
                wrong="height, width = images.shape[2:]\n"
                "padded = F.pad(images, (4, 4, 4, 4))\n"
                "moved = torch.empty_like(images)\n"
                "for i, (down, right) in enumerate(shifts.tolist()):\n"
                "    whole = padded[i].flip(2) if mirror[i] else padded[i]\n"
                "    moved[i] = whole[:, 4 - down : 4 - down + height, "
                "4 - right : 4 - right + width]\n"
                "return moved",
            ),
            Mistake(
                "What leaves your picture at one edge comes back at the other. Pad with zeros, "
                "so that black moves in.",
                wrong="moved = torch.empty_like(images)\n"
                "for i, (down, right) in enumerate(shifts.tolist()):\n"
                "    rolled = images[i].roll((down, right), (1, 2))\n"
                "    moved[i] = rolled.flip(2) if mirror[i] else rolled\n"
                "return moved",
            ),
        ),
    ),
    Item(
        "rate_at",
        rate_cases,
        rate_oracle,
        tolerance=CLOSE,
        minutes=7,
        dots=2,
        nudge="Two cases, and in the second the steps are counted from the end of the warm-up.",
        hint="Before steps // 10: peak * (step + 1) / warm. Then: u = (step - warm) / (steps - "
        "warm) in the cosine.",
        mistakes=(
            Mistake(
                "Your first step has a rate of 0, so it teaches nothing. The warm-up counts its "
                "steps from 1.",
                wrong="step / warm",
                right="(step + 1) / warm",
            ),
            Mistake(
                "There is no warm-up in yours. During the first tenth of the steps the rate "
                "rises in a straight line.",
                wrong="return peak * (1 + math.cos(math.pi * step / steps)) / 2",
            ),
            Mistake(
                "Your cosine starts at step 0. It should start at the end of the warm-up, and "
                "run over the steps that remain.",
                wrong="step / steps",
                right="(step - warm) / (steps - warm)",
            ),
            Mistake(
                "Your last step has a rate of 0. u is the part of the remaining steps that is done "
                "before this one, so divide by steps - warm.",
                wrong="(steps - warm - 1)",
                right="(steps - warm)",
            ),
            Mistake(
                "After the warm-up your rate is twice the peak. One plus a cosine begins at 2.",
                wrong="(steps - warm)))",
                right="(steps - warm))) / 2",
            ),
        ),
    ),
    Item(
        "average_weights",
        average_cases,
        average_oracle,
        run=run_average,
        tolerance=CLOSE,
        minutes=5,
        dots=1,
        nudge="Which of the two gets the factor decay, the old average or the current weights?",
        hint="A new dictionary over average.items(); "
        "tensor.is_floating_point() tells weights from counters.",
        mistakes=(
            Mistake(
                "You have the two shares the wrong way round. decay is the share of the old "
                "average, which stays.",
                wrong="(1 - decay) * old + decay * new",
                right="decay * old + (1 - decay) * new",
            ),
            Mistake(
                "You average the counter as well. Copy integers from current: ask each tensor "
                "whether it is floating point.",
                wrong="True",
                right="old.is_floating_point()",
            ),
            Mistake(
                "You write into tensors that you were given. Make new ones, in a new dictionary.",
                wrong="for name, old in average.items():\n"
                "    if old.is_floating_point():\n"
                "        old.mul_(decay).add_((1 - decay) * current[name])\n"
                "    else:\n"
                "        average[name] = current[name].clone()\n"
                "return average",
            ),
            Mistake(
                "The counter in your average is the network's own tensor, and goes on counting "
                "with it. Take a copy.",
                wrong="new",
                right="new.clone()",
            ),
        ),
    ),
)
