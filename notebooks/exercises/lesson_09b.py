"""Lesson 09b.

Equalized layers are run, rounded weights are judged by the output they give, slopes by torch's own.
"""

from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between, normal
from torch.nn import functional as F

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake, Verdict

CLOSE = Tolerance(relative=1e-6, absolute=1e-8)


def equalize_cases(rng: torch.Generator) -> list[Case]:
    """Filters of very different sizes; one of them is 0, and one is read by nothing."""
    cases = []
    for label, kernel in (
        ("1 x 1", 1),
        ("3 x 3", 3),
        ("a filter of zeros", 3),
        ("a channel that nothing reads", 1),
    ):
        c_in, hidden, c_out = between(rng, 2, 4), between(rng, 5, 7), between(rng, 2, 4)
        sizes = 10 ** (4 * torch.rand(hidden, 1, 1, 1, generator=rng, dtype=torch.float64) - 2)
        W1, W2 = normal(rng, hidden, c_in, kernel, kernel) * sizes, normal(rng, c_out, hidden, 3, 3)
        if label == "a filter of zeros":
            W1[2] = 0
        if label == "a channel that nothing reads":
            W2[:, 1] = 0
        x = normal(rng, 2, c_in, 6, 6)
        cases.append(Case(label, {"W1": W1, "b1": normal(rng, hidden), "W2": W2}, {"x": x}))
    return cases


def two_layers(
    x: torch.Tensor, W1: torch.Tensor, b1: torch.Tensor, W2: torch.Tensor
) -> torch.Tensor:
    """Convolution, ReLU, convolution."""
    return F.conv2d(F.relu(F.conv2d(x, W1, b1)), W2)


def equalize_oracle(inputs: dict, probe: dict) -> dict:
    """The two layers as they were; and for each channel the range that both must have: the root of
    the product.
    """
    rows = [max(map(abs, row.flatten().tolist())) for row in inputs["W1"]]
    columns = [max(map(abs, column.flatten().tolist())) for column in inputs["W2"].transpose(0, 1)]
    pairs = [
        ((r * c) ** 0.5,) * 2 if r and c else (r, c) for r, c in zip(rows, columns, strict=True)
    ]
    return {
        "output": two_layers(probe["x"], **inputs),
        "ranges": torch.tensor(pairs, dtype=torch.float64),
    }


def equalize_view(answer: list, probe: dict) -> dict:
    """What the new layers compute, and the ranges of their channels."""
    W1, b1, W2 = answer
    ranges = torch.stack([W1.abs().amax((1, 2, 3)), W2.abs().amax((0, 2, 3))], dim=1)
    return {"output": two_layers(probe["x"], W1, b1, W2), "ranges": ranges}


def fake_cases(rng: torch.Generator) -> list[Case]:
    """Values inside the range, far outside, halves; none where float32 decides what is clamped."""
    cases = []
    for label, first, last, zero_point in (
        ("signed codes", -7, 7, 0),
        ("unsigned codes", 0, 255, between(rng, 30, 99)),
    ):
        scale = 0.01 * between(rng, 2, 40)
        steps = torch.randint(first - zero_point + 1, last - zero_point - 1, (20,), generator=rng)
        inside = (steps + 0.05 + 0.9 * torch.rand(20, generator=rng)) * scale
        outside = (
            torch.tensor([first - 3.2 - zero_point, last + 4.7 - zero_point, last + 90.0]) * scale
        )
        x = torch.cat([inside, outside])[torch.randperm(23, generator=rng)]
        codes = {"scale": scale, "zero_point": zero_point, "first": first, "last": last}
        cases.append(Case(label, {"x": x} | codes))
    halves = {
        "x": torch.tensor([-1.5, -0.5, 0.5, 1.5, 2.5, -40.0, 40.0]),
        "scale": 1.0,
        "zero_point": 1,
    }
    return [*cases, Case("exact halves", halves | {"first": -7, "last": 7})]


def value_and_slope(function: Any, inputs: dict) -> dict:
    """What goes forward, and what comes back when every output counts differently."""
    x = inputs["x"].clone().requires_grad_()
    with torch.enable_grad():
        y = function(**inputs | {"x": x})
        weights = torch.linspace(1, 2, len(x))
        slope = (
            torch.autograd.grad((y * weights).sum(), x, allow_unused=True)[0]
            if y.requires_grad
            else None
        )
    return {"value": y, "slope": torch.zeros_like(x) if slope is None else slope / weights}


def run_fake(student: Mapping[str, Any], inputs: dict) -> dict:
    """Run it in both directions."""
    return value_and_slope(student["fake_quantize"], inputs)


def fake_oracle(inputs: dict, probe: dict) -> dict:
    """The operator with which PyTorch trains quantized networks."""

    def theirs(
        x: torch.Tensor, scale: float, zero_point: int, first: int, last: int
    ) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, first, last)

    found = value_and_slope(theirs, inputs)
    return {name: tensor.detach() for name, tensor in found.items()}


def rounding_cases(rng: torch.Generator) -> list[Case]:
    """Inputs that hang together, so that errors of neighbouring weights can cancel each other."""
    cases = []
    for bits, outputs, inputs in ((3, 16, 36), (4, 24, 24)):
        x = normal(rng, 300, 5) @ normal(rng, 5, inputs) + 0.1 * normal(rng, 300, inputs)
        W = normal(rng, outputs, inputs).float()
        W[between(rng, 0, outputs - 1)] = 0  # a silenced filter
        largest = W.abs().amax(1, keepdim=True).clamp(min=1e-6)
        scale = largest / (2 ** (bits - 1) - 1.3)  # no weight lies on the last code
        case = {"W": W, "scale": scale, "x": x.float()}
        cases.append(Case(f"{bits} bits", case, case))
    return cases


def rounding_oracle(inputs: dict, probe: dict) -> dict:
    """The error of rounding to the nearest, which is to be beaten."""
    return {
        "on the grid": True,
        "up or down": True,
        "error": output_error(torch.round(probe["W"] / probe["scale"]), probe),
    }


def output_error(codes: torch.Tensor, probe: dict) -> float:
    """How far the layer's output is off, squared and in the mean."""
    wrong = codes.double() * probe["scale"].double() - probe["W"].double()
    return (probe["x"].double() @ wrong.T).square().mean().item()


def rounding_view(answer: torch.Tensor, probe: dict) -> dict:
    """The codes of the answer: whole numbers, next to the exact ones, and the error they make.

    An answer that is codes itself makes none, so that all of these look the same.
    """
    codes, exact = answer / probe["scale"], probe["W"] / probe["scale"]
    whole = torch.round(codes)
    on_grid = bool((codes - whole).abs().max() < 1e-3)
    unscaled = not on_grid and bool((answer == torch.round(answer)).all())
    return {
        "unscaled": unscaled,
        "on the grid": on_grid,
        "up or down": on_grid and bool((whole - exact).abs().max() < 1),
        "error": 0.0 if unscaled else output_error(whole, probe),
    }


def rounding_score(expected: dict, observed: dict, submitted_bytes: int) -> Verdict:
    """Half of the error must be gone."""
    if not observed["on the grid"]:
        return Verdict(0.0, "not every weight is a whole number of scales")
    if not observed["up or down"]:
        return Verdict(0.0, "not every weight is one of the two neighbours of the exact weight")
    share = observed["error"] / expected["error"]
    message = (
        f"the output's error is {share:.2f} times that of rounding to the nearest, and should be"
        " below 0.5"
    )
    return Verdict(float(share < 0.5), message)


ITEMS = (
    Item(
        "equalize",
        equalize_cases,
        equalize_oracle,
        view=equalize_view,
        tolerance=CLOSE,
        minutes=10,
        dots=2,
        nudge="Three tensors change. A channel that is 0 on one side has no k: leave it alone.",
        hint="k = sqrt(r1 / r2) with r1 = W1.abs().amax((1, 2, 3)) and r2 = "
        "W2.abs().amax((0, 2, 3)), and 1 where one of them is 0. Row i of W1 and entry i of b1 are "
        "divided by k[i]; column i of W2 is multiplied.",
        mistakes=(
            Mistake(
                "The bias belongs to the same channel as the row of W1, so divide it by k as well.",
                wrong="b1, ",
                right="b1 / k, ",
            ),
            Mistake(
                "Without the square root the two ranges change places. They should become equal.",
                wrong="rows / columns",
                right="torch.sqrt(rows / columns)",
            ),
            Mistake(
                "A channel that is 0 on one side makes k 0 or infinite. Leave such channels alone.",
                wrong="torch.sqrt(rows / columns)",
                right="torch.where((rows > 0) & (columns > 0), torch.sqrt(rows / columns), 1)",
            ),
            Mistake(
                "You divide both sides by k. The second layer has to undo what the first one "
                "did: multiply W2.",
                wrong="W2 / k",
                right="W2 * k",
            ),
        ),
    ),
    Item(
        "learn_rounding",
        rounding_cases,
        rounding_oracle,
        view=rounding_view,
        score=rounding_score,
        seconds=30.0,
        minutes=15,
        dots=3,
        nudge="Each weight has two values to choose from; which is better depends on the others.",
        hint="Start with codes = torch.round(W / scale). For each column j, set codes[:, j] to "
        "the floor, and then to the floor + 1. For both compute "
        "(x @ (scale * codes - W).T).square().mean(0), and let each row keep the better one. Go "
        "through all columns a few times.",
        mistakes=(
            Mistake(
                "This is rounding to the nearest. Choose for each weight whether it goes up or "
                "down, so that the error of the output falls.",
                wrong="return scale * torch.round(W / scale)",
            ),
            Mistake(
                "You return codes. Multiply them by the scale to get weights back.",
                wrong="return torch.round(W / scale)",
            ),
            Mistake(
                "All rows make the same choice. Each one has an output of its own, so take the "
                "mean over the samples alone.",
                wrong=".mean()",
                right=".mean(0)",
            ),
        ),
    ),
    Item(
        "fake_quantize",
        fake_cases,
        fake_oracle,
        run=run_fake,
        tolerance=Tolerance(1e-5, 1e-6),
        minutes=8,
        dots=2,
        nudge="detach() hides from the backward pass what it is applied to. Which part should be "
        "hidden?",
        hint="Compute the clamped code twice: hard, with torch.round, and soft, without. soft + "
        "(hard - soft).detach() has the value of the one and the slope of the other.",
        mistakes=(
            Mistake(
                "The values are right, but rounding has a slope of 0 and stops the gradient. Let "
                "it pass as if nothing had been rounded.",
                wrong="(hard - zero_point)",
                right="(soft + (hard - soft).detach() - zero_point)",
            ),
            Mistake(
                "Your gradient also passes where a value was clamped. Outside the range it "
                "should be 0.",
                wrong="hard = (torch.round(x / scale) + zero_point).clamp(first, last)\n"
                "return x + (scale * (hard - zero_point) - x).detach()",
            ),
            Mistake(
                "The zero point is still in your result. Subtract it from the codes before you "
                "multiply by the scale.",
                wrong=".detach()",
                right=".detach() - zero_point",
            ),
        ),
    ),
)
