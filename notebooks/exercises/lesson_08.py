"""Lesson 08. The oracles go through every code, or use torch's own quantizer."""

import torch

from helpers.checks.compare import Tolerance
from helpers.checks.inputs import between, normal
from helpers.checks.specification import Case, Item

CLOSE = Tolerance(relative=1e-6, absolute=1e-7)


def choose_cases(rng: torch.Generator) -> list[Case]:
    """Ranges on both sides of zero, and on one side only, which must be widened to take zero in."""
    cases = []
    for label, low, high in (("both sides", -3, 4), ("only positive", 1, 5), ("only negative", -6, -2)):
        values = low + (high - low) * torch.rand(between(rng, 20, 60), generator=rng)
        cases.append(Case(f"values on {label}, 8 bits" if low < 0 < high else label, {"x": values, "bits": 8}))
    cases.append(Case("4 bits", {"x": normal(rng, 40).float(), "bits": 4}))
    for label, mark in (("zero a little below a mark", 5.7), ("zero a little above a mark", 5.3)):
        ends = torch.tensor([-mark, 15 - mark]) * (0.5 + torch.rand((), generator=rng))
        cases.append(Case(label, {"x": ends, "bits": 4}))
    return cases


def choose_oracle(inputs: dict, probe: dict) -> list:
    """Lay out the marks; the distance of two is the scale, the mark nearest to 0 is the zero point."""
    ends = [float(min(0, inputs["x"].min())), float(max(0, inputs["x"].max()))]
    marks = torch.linspace(*ends, 2 ** inputs["bits"], dtype=torch.float64)
    return [float(marks[1] - marks[0]), float(marks.abs().argmin())]


def choose_view(answer: list, probe: dict) -> list:
    """Two numbers, whatever type they have."""
    scale, zero_point = answer
    return [float(scale), float(zero_point)]


def quantize_cases(rng: torch.Generator) -> list[Case]:
    """Values inside the range and far outside it, on both sides, and halves that show how one rounds."""
    cases = []
    for bits, zero_point in ((8, 2 * between(rng, 2, 6)), (5, 2 * between(rng, 1, 5) + 1)):
        scale = 0.25 * between(rng, 1, 3)  # never 1
        values = 300 * scale * normal(rng, 60).float()
        values[:10] = scale * (torch.arange(10) + 0.5)
        cases.append(Case(f"{bits} bits", {"x": values, "scale": scale, "zero_point": zero_point, "bits": bits}))
    return cases


def quantize_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """Try every code and take the nearest; of two equally near ones the even distance from the zero point."""
    codes = torch.arange(2 ** inputs["bits"], dtype=torch.float64)
    values = (codes - inputs["zero_point"]) * inputs["scale"]
    away = (inputs["x"].double()[:, None] - values).abs()
    away += 1e-12 * ((codes - inputs["zero_point"]) % 2)  # the tie goes to the even one
    return codes[away.argmin(1)]


def as_numbers(answer: torch.Tensor, probe: dict) -> torch.Tensor:
    """Whole numbers in any type."""
    return answer.double()


def per_channel_cases(rng: torch.Generator) -> list[Case]:
    """Filters whose sizes differ a hundredfold, and as many input as output channels."""
    channels = between(rng, 4, 7)
    sizes = torch.logspace(-2, 0, channels)[:, None, None, None]
    W = sizes * normal(rng, channels, channels, 3, 3).float()
    W[0] = -W[0].abs()  # here the largest weight is not the one that is largest in size
    steps = W / (W.abs().amax((1, 2, 3), keepdim=True) / 127)
    W *= 1 - 0.2 * (steps - steps.round()) / steps  # no weight half way between two codes, where both are right
    return [Case("filters of very different size", {"W": W})]


def per_channel_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """torch's own per-channel quantizer, back and forth."""
    scale = torch.stack([filters.abs().max() / 127 for filters in inputs["W"]])
    zeros = torch.zeros(len(scale), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(inputs["W"], scale, zeros, 0, -127, 127)


ITEMS = (
    Item(
        name="choose_scale",
        function="choose_scale",
        points=1,
        cases=choose_cases,
        oracle=choose_oracle,
        view=choose_view,
        tolerance=CLOSE,
        hint="Widen the range to take in 0 first. The codes run from 0 to 2**bits - 1: one step fewer than codes.",
        nudge="How many steps lie between the first code and the last?",
        minutes=6,
        dots=1,
    ),
    Item(
        name="to_codes",
        function="to_codes",
        points=1,
        cases=quantize_cases,
        oracle=quantize_oracle,
        view=as_numbers,
        hint="Divide, round, add the zero point, and clamp last: values outside the range take the outermost code.",
        nudge="Which of rounding, shifting and clamping comes last?",
        minutes=4,
        dots=1,
    ),
    Item(
        name="round_per_channel",
        function="round_per_channel",
        points=1,
        cases=per_channel_cases,
        oracle=per_channel_oracle,
        tolerance=CLOSE,
        hint="One scale for each W[o]: its largest absolute value over 127. Shape it so that it multiplies axis 0.",
        nudge="The scales need a shape in which each meets its own filter.",
        minutes=6,
        dots=2,
    ),
)
