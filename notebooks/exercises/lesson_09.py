"""Lesson 09. The oracles compute with fractions, which are exact however large the numbers are."""

import math
from fractions import Fraction

import torch

from helpers.checks.compare import Tolerance
from helpers.checks.inputs import between
from helpers.checks.specification import Case, Item

EXACT = Tolerance(relative=0.0, absolute=0.0)


def fixed_point_cases(rng: torch.Generator) -> list[Case]:
    """Factors as they occur, far below 1, near it, and above."""
    cases = []
    for label, exponent in (("a small factor", -between(rng, 7, 14)), ("near 1", 0), ("above 1", between(rng, 2, 6))):
        factor = math.ldexp(0.5 + 0.49 * torch.rand((), generator=rng, dtype=torch.float64).item(), exponent)
        cases.append(Case(label, {"factor": factor}))
    cases.append(Case("a power of two", {"factor": 2.0 ** -between(rng, 3, 9)}))
    for label, rest in (("a factor to round up", 0.7), ("a factor to round down", 0.3)):
        cases.append(Case(label, {"factor": (between(rng, 2**30, 2**31 - 2) + rest) / 2 ** between(rng, 32, 40)}))
    return cases


def fixed_point_oracle(inputs: dict, probe: dict) -> list[str]:
    """Double the fraction until it has 31 bits. Compared as text, which is exact for whole numbers of any size."""
    factor, shift = Fraction(inputs["factor"]), 0
    while factor < 2**30:
        factor, shift = factor * 2, shift + 1
    return [str(round(factor)), str(shift)]


def whole_pair(answer: list, probe: dict) -> list[str]:
    """Two whole numbers; a number that is not whole is no multiplier."""
    return [whole(part, probe) for part in answer]


def rescale_cases(rng: torch.Generator) -> list[Case]:
    """Sums of both signs, exact halves, and products so long that a float64 cannot tell them from a half."""
    cases = []
    for label in ("positive sums", "negative sums"):
        sign = 1 if label == "positive sums" else -1
        for _ in range(4):
            total, multiplier = sign * between(rng, 10**5, 10**8), between(rng, 2**30, 2**31 - 1)
            cases.append(Case(label, {"total": total, "multiplier": multiplier, "shift": between(rng, 38, 44)}))
    for odd in (1, 3, -1, -3, 5, -7):
        half = {"total": odd * 2 ** between(rng, 3, 9), "multiplier": 2**30}
        shift = 31 + int(math.log2(abs(half["total"]) / abs(odd)))
        cases.append(Case("an exact half", half | {"shift": shift}))
    cases += [Case("nearly a half", nearly_a_half(rng)) for _ in range(2)]
    return cases


def nearly_a_half(rng: torch.Generator) -> dict:
    """A product of 2^54 or more that misses a half by one: a float64 rounds it to the half, and so the other way."""
    while True:
        multiplier, miss = 2 * between(rng, 2**29, 2**30 - 1) + 1, (-1) ** between(rng, 0, 1)
        total = (2**30 + miss) * pow(multiplier, -1, 2**31) % 2**31
        whole_part = total * multiplier >> 31
        if total > 2**25 and whole_part % 2 == (miss < 0):
            return {"total": total, "multiplier": multiplier, "shift": 31}


def rescale_oracle(inputs: dict, probe: dict) -> str:
    """Python rounds a fraction to the nearest whole number, and a half to the even one."""
    return str(round(Fraction(inputs["total"] * inputs["multiplier"], 2 ** inputs["shift"])))


def whole(answer: int, probe: dict) -> str:
    """A whole number, also as a tensor of one element."""
    if int(answer) != answer:
        raise ValueError("it must be a whole number")
    return str(int(answer))


def layer_cases(rng: torch.Generator) -> list[Case]:
    """Codes as they are stored: uint8 and int8, which overflow when they are multiplied as they are."""
    cases = []
    for label, zero_in, zero_out in (("both zero points", 0, 0), ("zero points that differ", 17, 128)):
        zero_in, zero_out = zero_in and between(rng, 5, 90), zero_out and between(rng, 100, 150)
        rows, inputs = between(rng, 3, 7), 4 * between(rng, 5, 9)
        outputs = 2 * between(rng, 2, 5)
        codes = torch.randint(0, 256, (rows, inputs), generator=rng).to(torch.uint8)
        weight = torch.randint(-127, 128, (outputs, inputs), generator=rng).to(torch.int8)
        bias = torch.randint(-4000, 4000, (outputs,), generator=rng).to(torch.int32)
        layer = {"codes": codes, "weight": weight, "bias": bias, "zero_in": zero_in, "zero_out": zero_out}
        numbers = {"multiplier": between(rng, 2**30, 2**31 - 1), "shift": between(rng, 38, 39)}
        cases.append(Case(label if zero_in else "zero points 0", layer | numbers))
    halves = {
        "codes": torch.randint(0, 16, (6, 8), generator=rng).to(torch.uint8),
        "weight": torch.randint(-2, 3, (6, 8), generator=rng).to(torch.int8),
        "bias": torch.randint(-9, 10, (6,), generator=rng).to(torch.int32),
    }
    numbers = {"zero_in": 7, "zero_out": 128, "multiplier": 2**30, "shift": 31}
    return [*cases, Case("sums that end on an exact half", halves | numbers)]


def layer_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """One output after the other, in whole numbers and fractions."""
    factor = Fraction(inputs["multiplier"], 2 ** inputs["shift"])
    codes, weight, bias = (inputs[name].tolist() for name in ("codes", "weight", "bias"))
    result = []
    for row in codes:
        sums = [
            sum((code - inputs["zero_in"]) * w for code, w in zip(row, weights, strict=True)) + start
            for weights, start in zip(weight, bias, strict=True)
        ]
        result.append([min(255, max(0, round(total * factor) + inputs["zero_out"])) for total in sums])
    return torch.tensor(result, dtype=torch.float64)


def as_numbers(answer: torch.Tensor, probe: dict) -> torch.Tensor:
    """Codes in any type."""
    return answer.double()


ITEMS = (
    Item(
        name="fixed_point",
        function="fixed_point",
        points=1,
        cases=fixed_point_cases,
        oracle=fixed_point_oracle,
        view=whole_pair,
        hint="Double the factor until it is at least 2**30; the shift counts how often. Round once, at the end.",
        nudge="Doubling changes the shift by one; when does the factor have 31 bits?",
        minutes=8,
        dots=2,
    ),
    Item(
        name="rescale",
        function="rescale",
        points=1,
        cases=rescale_cases,
        oracle=rescale_oracle,
        view=whole,
        hint="Whole numbers only: >> rounds down, so add nearly half first; a half goes to the even neighbour.",
        nudge="What would you add before a shift so that it rounds to the nearest?",
        minutes=12,
        dots=3,
    ),
    Item(
        name="integer_layer",
        function="integer_layer",
        points=1,
        cases=layer_cases,
        oracle=layer_oracle,
        view=as_numbers,
        tolerance=EXACT,
        hint="Widen to int64 before you multiply; take zero_in off the codes; zero_out comes after the rescaling.",
        nudge="Four steps: sum of products, bias, rescaling, clamp. Which type holds each?",
        minutes=15,
        dots=3,
    ),
)
