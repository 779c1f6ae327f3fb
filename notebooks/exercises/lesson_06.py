"""Lesson 06. The oracles look at what the network computes once the unwanted channels are held at zero."""

import torch
from torch.nn import functional as F

from helpers.checks.compare import Tolerance
from helpers.checks.inputs import between, normal, statistics
from helpers.checks.specification import Case, Item

CLOSE = Tolerance(relative=1e-8, absolute=1e-10)


def weakest_cases(rng: torch.Generator) -> list[Case]:
    """Filters of many sizes: the smallest sum holds the largest weight, and a large sum has negative weights alone."""
    cases = []
    for _ in range(3):
        channels = between(rng, 6, 12)
        W = normal(rng, channels, 4, 3, 3) * torch.empty(channels, 1, 1, 1).uniform_(0.5, 0.8, generator=rng)
        W[0], W[1] = 0.0, -1.2
        W[0, 0, 0, 0] = 7.0
        cases.append(Case(f"{channels} filters", {"W": W, "count": between(rng, 2, channels - 2)}))
    return cases


def weakest_oracle(inputs: dict, probe: dict) -> list[int]:
    """In plain Python: add up, sort, take the first ones."""
    sizes = [(sum(abs(w) for w in filters.flatten().tolist()), o) for o, filters in enumerate(inputs["W"])]
    return sorted(o for _, o in sorted(sizes)[: inputs["count"]])


def as_set(answer: object, probe: dict) -> list[int]:
    """Channel numbers in any order and any container."""
    return sorted(int(one) for one in answer)


def block_cases(rng: torch.Generator) -> list[Case]:
    """An expanding layer, its BatchNorm, a depthwise and a projecting layer."""
    cases = []
    for _ in range(2):
        c, hidden = between(rng, 2, 4), between(rng, 6, 9)
        weights = {"W1": normal(rng, hidden, c, 1, 1), "W2": normal(rng, hidden, 1, 3, 3)}
        weights |= {"W3": normal(rng, c, hidden, 1, 1)}
        norm = {k: v for k, v in statistics(rng, hidden).items() if k != "eps"}
        # Neither the first channels nor the last ones, so that a slice cannot pass for the choice.
        keep = torch.cat(
            [torch.randperm(hidden - 2, generator=rng)[: hidden // 2 - 1].sort().values, torch.tensor([hidden - 1])]
        )
        probe = {"x": normal(rng, 2, c, 5, 5), "keep": keep, "hidden": hidden} | weights | norm
        cases.append(Case(f"{hidden} hidden channels", weights | norm | {"keep": keep}, probe))
    return cases


def run_block(p: dict, x: torch.Tensor, alive: torch.Tensor | None = None) -> torch.Tensor:
    """The block in inference; `alive` holds hidden channels at zero."""
    y = F.conv2d(x, p["W1"])
    y = F.batch_norm(y, p["mu"].clone(), p["variance"].clone(), p["gamma"], p["beta"]).clamp(0, 6)
    y = F.conv2d(y, p["W2"], padding=1, groups=len(p["W2"]))
    return F.conv2d(y if alive is None else y * alive[:, None, None], p["W3"])


def block_oracle(inputs: dict, probe: dict) -> list:
    """The whole block with the other channels held at zero; and how many channels are left."""
    alive = torch.zeros(probe["hidden"], dtype=torch.float64)
    alive[probe["keep"]] = 1
    return [run_block(inputs, probe["x"], alive), len(probe["keep"])]


def block_view(answer: dict, probe: dict) -> list:
    """What the small block computes, and its hidden width."""
    return [run_block(answer, probe["x"]), len(answer["W1"])]


ITEMS = (
    Item(
        name="weakest_channels",
        function="weakest_channels",
        points=1,
        cases=weakest_cases,
        oracle=weakest_oracle,
        view=as_set,
        hint="Add up the absolute values of all weights of a filter W[o], then take the smallest sums.",
        nudge="One number per filter first; then sort.",
        minutes=5,
        dots=1,
    ),
    Item(
        name="prune_block",
        function="prune_block",
        points=1,
        cases=block_cases,
        oracle=block_oracle,
        view=block_view,
        tolerance=CLOSE,
        hint="W1 loses outputs, all four BatchNorm vectors lose entries, W2 loses channels, W3 loses inputs (axis 1).",
        nudge="Go through the tensors one by one: which of their axes counts the channels that go?",
        minutes=10,
        dots=2,
    ),
)
