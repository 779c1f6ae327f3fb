"""Lesson 07. The oracles let torch do the bookkeeping."""

import torch
from torch.nn import functional as F

from helpers.checks.compare import Tolerance
from helpers.checks.inputs import between, normal
from helpers.checks.specification import Case, Item

CLOSE = Tolerance(relative=1e-8, absolute=1e-10)


def statistics_cases(rng: torch.Generator) -> list[Case]:
    """A few batches of one size, with means and spreads of their own."""
    cases = []
    for count in (1, between(rng, 2, 5)):
        shape = (between(rng, 4, 8), 3, 4, 4)
        batches = [normal(rng, *shape) * between(rng, 1, 4) + between(rng, -3, 3) for _ in range(count)]
        cases.append(Case(f"{count} batches", {"batches": batches}))
    return cases


def statistics_oracle(inputs: dict, probe: dict) -> list[torch.Tensor]:
    """torch's BatchNorm with momentum None keeps the plain average over the batches."""
    norm = torch.nn.BatchNorm2d(3, momentum=None, dtype=torch.float64).train()
    for batch in inputs["batches"]:
        norm(batch)
    return [norm.running_mean, norm.running_var]


def distillation_cases(rng: torch.Generator) -> list[Case]:
    """Scores of two networks, at two temperatures."""
    cases = []
    for temperature in (4.0, 1.5):
        images = between(rng, 3, 9)
        inputs = {"student": 3 * normal(rng, images, 10), "teacher": 3 * normal(rng, images, 10)}
        cases.append(Case(f"temperature {temperature}", inputs | {"temperature": temperature}))
    return cases


def distillation_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """torch's Kullback-Leibler divergence."""
    t = inputs["temperature"]
    student, teacher = (inputs[name].div(t).log_softmax(1) for name in ("student", "teacher"))
    return t**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)


ITEMS = (
    Item(
        name="measure_again",
        function="measure_again",
        points=1,
        cases=statistics_cases,
        oracle=statistics_oracle,
        tolerance=CLOSE,
        hint="One mean and variance per channel and batch, over images, rows and columns; then the plain average.",
        nudge="Over which axes does the mean of one channel run?",
        minutes=6,
        dots=1,
    ),
    Item(
        name="distillation_loss",
        function="distillation_loss",
        points=1,
        cases=distillation_cases,
        oracle=distillation_oracle,
        tolerance=CLOSE,
        hint="Soften both, sum p * (log p - log q) over the classes, average over the images, times T squared.",
        nudge="Soften both answers with the temperature before you compare them.",
        minutes=8,
        dots=2,
    ),
)
