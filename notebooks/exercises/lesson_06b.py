"""Lesson 06b.

Filled layers are judged by what they compute, and chosen channels by counting in plain Python.
"""

from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between, normal
from torch.nn import functional as F

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake


def fill_cases(rng: torch.Generator) -> list[Case]:
    """Widths below, at and above a multiple; every channel has a bias, so that one that is read
    would be seen.
    """
    cases = []
    for hidden, multiple in ((5, 8), (8, 8), (17, 16), (10, 4)):
        c_in, c_out, K = between(rng, 2, 4), between(rng, 2, 4), 2 * between(rng, 0, 1) + 1
        W1, W2 = normal(rng, hidden, c_in, K, K), normal(rng, c_out, hidden, 1, 1)
        inputs = {"W1": W1, "b1": 1 + normal(rng, hidden).abs(), "W2": W2, "multiple": multiple}
        cases.append(Case(f"{hidden} channels, multiples of {multiple}", inputs))
    return cases


def pair_of_layers(W1: torch.Tensor, b1: torch.Tensor, W2: torch.Tensor) -> torch.Tensor:
    """What a convolution, ReLU6 and another convolution make of a fixed image."""
    image = torch.linspace(-2, 2, W1.shape[1] * 25, dtype=W1.dtype).reshape(1, -1, 5, 5)
    return F.conv2d(F.relu6(F.conv2d(image, W1, b1)), W2)


def run_fill(student: Mapping[str, Any], inputs: dict) -> dict:
    """Hand over two layers; look at what the filled ones compute, and how wide they are."""
    layers = [inputs[name] for name in ("W1", "b1", "W2")]
    W1, b1, W2 = student["fill_up"](*(tensor.clone() for tensor in layers), inputs["multiple"])
    try:
        output = pair_of_layers(W1, b1, W2)
    except Exception as problem:
        raise ValueError(f"your two layers do not fit: {problem}") from None
    n = len(layers[0])
    pairs = zip((W1[:n], b1[:n], W2[:, :n]), layers, strict=True)
    first = all(torch.allclose(filled.double(), old) for filled, old in pairs)
    return {"output": output, "channels": len(W1), "the old channels come first": first}


def fill_oracle(inputs: dict, probe: dict) -> dict:
    """The layers as they were, and the first multiple that is large enough."""
    width = next(n for n in range(0, 99, inputs["multiple"]) if n >= len(inputs["W1"]))
    output = pair_of_layers(inputs["W1"], inputs["b1"], inputs["W2"])
    return {"output": output, "channels": width, "the old channels come first": True}


def block_cases(rng: torch.Generator) -> list[Case]:
    """Widths around a multiple, ratios that remove nothing, a little and nearly all."""
    cases = []
    for size, ratio, multiple in (
        (96, 0.45, 16),
        (40, 0.5, 8),
        (18, 0.2, 16),
        (25, 0.3, 1),
        (24, 0.0, 16),
        (33, 0.97, 4),
    ):
        inputs = {"importance": torch.randperm(size, generator=rng) + 0.5}
        inputs |= {"ratio": ratio, "multiple": multiple}
        cases.append(Case(f"{size} channels, ratio {ratio}, multiples of {multiple}", inputs))
    return cases


def block_oracle(inputs: dict, probe: dict) -> list[int]:
    """Raise the number from what must stay until it fits; then take the best, one by one."""
    importance = inputs["importance"].tolist()
    size, multiple = len(importance), inputs["multiple"]
    count = size - int(size * inputs["ratio"])
    while count % multiple and count < size:
        count += 1
    best = sorted(range(size), key=lambda channel: importance[channel])[size - count :]
    return as_numbers(sorted(best), probe)


def as_numbers(answer: Any, probe: dict) -> list[str]:
    """Channel numbers in their order; as names, because their distance means nothing."""
    return [f"channel {int(one)}" for one in answer]


ITEMS = (
    Item(
        "fill_up",
        fill_cases,
        fill_oracle,
        run=run_fill,
        tolerance=Tolerance(1e-5, 1e-5),
        minutes=8,
        dots=2,
        nudge="-len(W1) % multiple says how many channels are missing; it is 0 where none is.",
        hint="Put rows of zeros below W1, zeros after b1, and columns of zeros (axis 1) behind "
        "those of W2: torch.cat.",
        mistakes=(
            Mistake(
                "Where the number is already a multiple, you still add channels. None is "
                "missing there.",
                wrong="multiple - len(W1) % multiple",
                right="-len(W1) % multiple",
            ),
            Mistake(
                "The new channels stand in front of the old ones in the first layer, and behind "
                "them in the second. Put all at the end.",
                wrong="torch.cat([rows, W1]), torch.cat([b1.new_zeros(more), b1])",
                right="torch.cat([W1, rows]), torch.cat([b1, b1.new_zeros(more)])",
            ),
            Mistake(
                "The second layer does not read the new channels yet. W2 needs a column for each "
                "of them.",
                wrong="W2",
                right="torch.cat([W2, columns], 1)",
            ),
            Mistake(
                "You gave W2 more outputs. The new channels are its inputs, which are on axis 1.",
                wrong="torch.cat([W2, W2.new_zeros(more, *W2.shape[1:])])",
                right="torch.cat([W2, columns], 1)",
            ),
            Mistake(
                "Your new columns end up below W2. They belong beside the old ones: its inputs are "
                "on axis 1.",
                wrong="torch.cat([W2, columns])",
                right="torch.cat([W2, columns], 1)",
            ),
        ),
    ),
    Item(
        "keep_blocks",
        block_cases,
        block_oracle,
        view=as_numbers,
        minutes=10,
        dots=2,
        nudge="First how many: size - int(size * ratio) at least. -(-a // b) * b rounds a up to a "
        "multiple of b.",
        hint="Take min(size, the rounded number) of importance.argsort(descending=True), and sort "
        "these indices.",
        mistakes=(
            Mistake(
                "You round down, so fewer channels stay than the ratio asks for. Round up to a "
                "multiple.",
                wrong="least // multiple * multiple",
                right="-(-least // multiple) * multiple",
            ),
            Mistake(
                "Your channels are in order of importance. Sort their indices, so that they keep "
                "the order of the layer.",
                wrong="",
                right=".sort().values",
            ),
            Mistake(
                "You keep the share that ratio names. It is the share to be removed.",
                wrong="int(size * ratio)",
                right="size - int(size * ratio)",
            ),
            Mistake(
                "You keep the least important channels. The most important should stay.",
                wrong="descending=False",
                right="descending=True",
            ),
        ),
    ),
)
