"""Lesson 01. The oracles run torch's own layers and read the answers off their outputs."""

import torch
from torch.nn import functional as F

from helpers.checks.compare import Tolerance
from helpers.checks.inputs import between, normal, statistics
from helpers.checks.specification import Case, Item

CLOSE = Tolerance(relative=1e-8, absolute=1e-10)


# output_size ----------------------------------------------------------------------------------------------------


def output_size_cases(rng: torch.Generator) -> list[Case]:
    """Sizes that leave pixels over, and sizes that do not."""
    odd_one = {"size": 2 * between(rng, 2, 20), "kernel": 3, "stride": 2, "padding": between(rng, 0, 3)}
    cases = [Case(", ".join(f"{name} {value}" for name, value in odd_one.items()), odd_one)]  # a pixel is left over
    for _ in range(8):
        kernel = between(rng, 1, 5)
        inputs = {"size": between(rng, kernel, 40), "kernel": kernel}
        inputs |= {"stride": between(rng, 1, 4), "padding": between(rng, 0, 3)}
        cases.append(Case(", ".join(f"{name} {value}" for name, value in inputs.items()), inputs))
    return cases


def output_size_oracle(inputs: dict, probe: dict) -> int:
    """Let torch do the convolution and look."""
    row, filters = torch.zeros(1, 1, inputs["size"]), torch.zeros(1, 1, inputs["kernel"])
    return F.conv1d(row, filters, stride=inputs["stride"], padding=inputs["padding"]).shape[-1]


# scale_and_shift ------------------------------------------------------------------------------------------------


def scale_and_shift_cases(rng: torch.Generator) -> list[Case]:
    """Ordinary statistics, and a single channel."""
    return [Case(f"{channels} channels", statistics(rng, channels)) for channels in (between(rng, 2, 9), 1)]


def scale_and_shift_oracle(inputs: dict, probe: dict) -> list[torch.Tensor]:
    """What BatchNorm makes of 0 is c; what it makes of 1 is a + c."""
    zero, one = (batch_norm(torch.full((1, len(inputs["mu"])), value).double(), inputs)[0] for value in (0.0, 1.0))
    return [one - zero, zero]


def batch_norm(y: torch.Tensor, inputs: dict) -> torch.Tensor:
    """torch's BatchNorm in inference."""
    gamma, beta = inputs["gamma"], inputs["beta"]
    return F.batch_norm(y, inputs["mu"].clone(), inputs["variance"].clone(), gamma, beta, eps=inputs["eps"])


# fold_into_convolution ------------------------------------------------------------------------------------------


def fold_cases(rng: torch.Generator) -> list[Case]:
    """With a bias and without; as many input as output channels, so that scaling the wrong axis goes unnoticed."""
    cases = []
    for label, has_bias in (("a convolution with a bias", True), ("a convolution without a bias", False)):
        channels = between(rng, 3, 6)
        layer = {"W": normal(rng, channels, channels, 3, 3), "b": normal(rng, channels) if has_bias else None}
        probe = {"x": normal(rng, 2, channels, 6, 6)}
        cases.append(Case(label, layer | statistics(rng, channels), probe))
    return cases


def fold_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """What the two layers compute, one after the other."""
    return batch_norm(F.conv2d(probe["x"], inputs["W"], inputs["b"], padding=1), inputs)


def fold_view(answer: list, probe: dict) -> torch.Tensor:
    """What the folded convolution computes."""
    weight, bias = answer
    return F.conv2d(probe["x"], weight, bias, padding=1)


ITEMS = (
    Item(
        name="output_size",
        function="output_size",
        points=1,
        cases=output_size_cases,
        oracle=output_size_oracle,
        hint="Add the padding on both sides, count the steps that fit, round down, and do not forget the first place.",
        nudge="How far can the left edge of the window travel along the padded row?",
        minutes=5,
        dots=1,
    ),
    Item(
        name="scale_and_shift",
        function="scale_and_shift",
        points=1,
        cases=scale_and_shift_cases,
        oracle=scale_and_shift_oracle,
        tolerance=CLOSE,
        hint="a is gamma over the square root of (variance + eps); c is what is left when y is zero.",
        nudge="Read steps 3 and 5 of the derivation again, with the square root around the whole sum.",
        minutes=4,
        dots=1,
    ),
    Item(
        name="fold_into_convolution",
        function="fold_into_convolution",
        points=1,
        cases=fold_cases,
        oracle=fold_oracle,
        view=fold_view,
        tolerance=CLOSE,
        hint="W has the shape (C_out, C_in, K, K): scale its first axis. A missing b counts as zero.",
        nudge="Which axis of W counts the output channels?",
        minutes=6,
        dots=2,
    ),
)
