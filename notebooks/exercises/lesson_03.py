"""Lesson 03. The oracles run the layers as they stand; the answers are run in their place."""

import itertools

import torch
from torch.nn import functional as F

from helpers.checks.compare import Tolerance
from helpers.checks.inputs import between, normal, statistics
from helpers.checks.specification import Case, Item

CLOSE = Tolerance(relative=1e-8, absolute=1e-10)


def addition_cases(rng: torch.Generator) -> list[Case]:
    """A constant per channel, as (C, 1, 1) and as a number, with and without a bias."""
    cases = []
    for has_bias, is_number in itertools.product((True, False), repeat=2):
        channels = between(rng, 3, 6)
        z = float(normal(rng, 1)) if is_number else normal(rng, channels, 1, 1)
        label = f"z {'a number' if is_number else 'of shape (C, 1, 1)'}, {'a' if has_bias else 'no'} bias"
        inputs = {"W": normal(rng, channels, 3, 3, 3), "b": normal(rng, channels) if has_bias else None, "z": z}
        cases.append(Case(label, inputs, {"x": normal(rng, 2, 3, channels + 2, channels + 2)}))
    return cases


def addition_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """Convolve, then add."""
    return F.conv2d(probe["x"], inputs["W"], inputs["b"]) + inputs["z"]


def convolved(answer: list, probe: dict) -> torch.Tensor:
    """What the folded convolution computes."""
    weight, bias = answer
    return F.conv2d(probe["x"], weight, bias)


def linear_cases(rng: torch.Generator) -> list[Case]:
    """Square weights, so that the wrong axis goes unnoticed."""
    size = between(rng, 3, 7)
    layer = {"W": normal(rng, size, size), "b": normal(rng, size)}
    return [Case("a square layer", layer | statistics(rng, size), {"x": normal(rng, 5, size)})]


def linear_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """torch's two layers, one after the other."""
    y = F.linear(probe["x"], inputs["W"], inputs["b"])
    mean, var = inputs["mu"].clone(), inputs["variance"].clone()
    return F.batch_norm(y, mean, var, inputs["gamma"], inputs["beta"], eps=inputs["eps"])


def applied(answer: list, probe: dict) -> torch.Tensor:
    """What the folded layer computes."""
    weight, bias = answer
    return F.linear(probe["x"], weight, bias)


def transposed_cases(rng: torch.Generator) -> list[Case]:
    """As many input as output channels, in one group and in two."""
    cases = []
    for groups in (1, 2):
        channels = 2 * between(rng, 2, 3)
        inputs = {"W": normal(rng, channels, channels // groups, 2, 2), "a": normal(rng, channels), "groups": groups}
        cases.append(Case(f"{groups} group(s)", inputs, {"x": normal(rng, 2, channels, 4, 4), "groups": groups}))
    return cases


def transposed_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """Convolve, then multiply."""
    y = F.conv_transpose2d(probe["x"], inputs["W"], groups=inputs["groups"])
    return y * inputs["a"][:, None, None]


def transposed(answer: torch.Tensor, probe: dict) -> torch.Tensor:
    """What the scaled weights compute."""
    return F.conv_transpose2d(probe["x"], answer, groups=probe["groups"])


ITEMS = (
    Item(
        name="fold_addition",
        function="fold_addition",
        points=1,
        cases=addition_cases,
        oracle=addition_oracle,
        view=convolved,
        tolerance=CLOSE,
        hint="The new bias has one number per output channel: bring z to the shape (C,) first, then add.",
        nudge="What shape does a bias have, and what shape has z?",
        minutes=5,
        dots=1,
    ),
    Item(
        name="fold_into_linear",
        function="fold_into_linear",
        points=1,
        cases=linear_cases,
        oracle=linear_oracle,
        view=applied,
        tolerance=CLOSE,
        hint="A linear layer's W has the shape (out, in): a multiplies the first axis.",
        nudge="Which axis of W counts the outputs?",
        minutes=5,
        dots=1,
    ),
    Item(
        name="scale_transposed",
        function="scale_transposed",
        points=1,
        cases=transposed_cases,
        oracle=transposed_oracle,
        view=transposed,
        tolerance=CLOSE,
        hint="W is (C_in, C_out / groups, K, K). Input channels of group g make the output channels of group g.",
        nudge="Take one group first; with several, each group has its own piece of a.",
        minutes=10,
        dots=3,
    ),
)
