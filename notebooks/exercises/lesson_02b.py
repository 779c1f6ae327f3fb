"""Lesson 02b.

The learner's functions get a traced network; the oracles know how it was put together.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between
from torch import fx, nn

from helpers.checks.specification import Case, Item, Mistake
from helpers.graphs.tracing import trace

# What each step does, the name of its node, and whether it gives its operand back (if that has the
# type of the result).
STEPS = {
    "x * 1": (lambda x: x * 1, "mul", True),
    "1 * x": (lambda x: 1 * x, "mul", True),
    "x * 1.0": (lambda x: x * 1.0, "mul", True),
    "x * 2": (lambda x: x * 2, "mul", False),
    "x * 0": (lambda x: x * 0, "mul", False),
    "x * x": (lambda x: x * x, "mul", False),
    "x + 0": (lambda x: x + 0, "add", True),
    "0 + x": (lambda x: 0 + x, "add", True),
    "x + 0.0": (lambda x: x + 0.0, "add", True),
    "x + 1": (lambda x: x + 1, "add", False),
    "x - 0": (lambda x: x - 0, "sub", True),
    "0 - x": (lambda x: 0 - x, "sub", False),
    "x - 1": (lambda x: x - 1, "sub", False),
    "x / 1": (lambda x: x / 1, "truediv", True),
    "1 / x": (lambda x: 1 / x, "truediv", False),
    "neg": (torch.neg, "neg", False),
}


class Row(nn.Module):
    """Steps one after the other."""

    def __init__(self, steps: list[str]):
        super().__init__()
        self.steps = steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take them."""
        for step in self.steps:
            x = STEPS[step][0](x)
        return x


def identity_cases(rng: torch.Generator) -> list[Case]:
    """Every step that changes nothing, between others; floats and whole numbers."""
    whole = ["x * 1", "x * 1.0", "x + 0.0", "x * 1"]
    cases = {
        "sums and products": ["x * 1", "neg", "x + 0", "x * 2", "x - 0", "x + 1"],
        "numbers in front": ["1 * x", "0 + x", "0 - x", "1 / x"],
        "two in a row": ["x + 1", "x / 1", "x * 1", "x * x"],
        "a factor of 0, and a 1 that is added": ["x * 0", "x - 1", "x + 1", "x + 0.0"],
    }
    order = [list(STEPS)[at] for at in torch.randperm(len(STEPS), generator=rng)]
    cases["everything, in some order"] = order
    made = [Case(label, {"steps": steps, "type": "float"}) for label, steps in cases.items()]
    made.append(Case("whole numbers, which 1.0 makes floats", {"steps": whole, "type": "int"}))
    return [*made, Case("whole numbers, divided", {"steps": ["x / 1", "x / 1"], "type": "int"})]


def run_identities(student: Mapping[str, Any], inputs: dict) -> dict:
    """Hand over the traced network; of the nodes that come back, take the names."""
    x = torch.arange(1, 4, dtype=getattr(torch, inputs["type"]))
    graph_module = trace(Row(inputs["steps"]).eval(), (x,), "fx")
    found = student["identities"](graph_module)
    if not all(isinstance(node, fx.Node) for pair in found.items() for node in pair):
        raise ValueError("return a dictionary of nodes: the keys and values are not all nodes")
    return {str(node): str(kept) for node, kept in found.items()}


def identity_oracle(inputs: dict, probe: dict) -> dict:
    """Known from the steps: their names are counted, and the type is followed."""
    is_float = inputs["type"] == "float"
    count: Counter[str] = Counter()
    found = {}
    before = "x"
    for step in inputs["steps"]:
        _, name, gives_back = STEPS[step]
        node = f"{name}_{count[name]}" if count[name] else name
        count[name] += 1
        becomes_float = is_float or "." in step or "/" in step
        if gives_back and becomes_float == is_float:
            found[node] = before
        is_float = becomes_float
        before = node
    return found


def plan_cases(rng: torch.Generator) -> list[Case]:
    """Lifetimes that touch, that nest, and that leave gaps which are just large enough or just too
    small.
    """
    chain = [(8 * between(rng, 1, 9), step, step + 1) for step in range(between(rng, 4, 7))]
    gap = 8 * between(rng, 2, 5)
    gaps = [(gap, 0, 2), (gap, 0, 9), (gap, 3, 5), (gap + 8, 6, 9), (8, 3, 4), (gap, 6, 7)]
    mixed = []
    for _ in range(between(rng, 6, 9)):
        first = between(rng, 0, 9)
        mixed.append((8 * between(rng, 1, 9), first, first + between(rng, 0, 5)))
    nested = [(4 * gap, 0, 2), (8, 3, 5), (8, 3, 5), (8, 0, 5)]
    below = [(4 * gap, 0, 2), (8, 0, 5), (8, 3, 5), (8, 4, 5)]
    cases = {
        "a chain": chain,
        "gaps": gaps,
        "one beside two": nested,
        "the lower of two places": below,
    }
    cases["lifetimes in any order"] = mixed
    cases["a single buffer"] = [(8, 0, 1)]
    cases["one that begins before the one before it"] = [(gap, 2, 3), (8, 0, 2)]
    long = [(8 * between(rng, 2, 4), 0, 5) for _ in range(3)]
    cases["two gaps, of which the later one fits better"] = [
        long[0],
        (24, 0, 1),
        long[1],
        (8, 0, 1),
        long[2],
        (8, 2, 3),
    ]
    return [
        Case(f"{label}, buffers {buffers}", {"buffers": buffers})
        for label, buffers in cases.items()
    ]


def plan_oracle(inputs: dict, probe: dict) -> list[int]:
    """Try every offset from 0 on, byte by byte in steps of 8, which all sizes are multiples of."""
    placed = []
    for size, first, last in inputs["buffers"]:
        busy = [
            (place, place + other)
            for other, begin, end, place in placed
            if begin <= last and first <= end
        ]
        offset = 0
        while any(offset < end and begin < offset + size for begin, end in busy):
            offset += 8
        placed.append((size, first, last, offset))
    return [offset for *_, offset in placed]


ITEMS = (
    Item(
        "identities",
        identity_cases,
        identity_oracle,
        run=run_identities,
        minutes=10,
        dots=2,
        nudge="Which number leaves the other operand as it is, for each of the four operators?",
        hint="Look at node.args: one operand must be a number, and on the left only for + and *. "
        "Compare it with 0 (+, -) or 1 (*, /). Then compare the dtype of node.meta['val'] with "
        "that of the other operand's meta['val'].",
        mistakes=(
            Mistake(
                "A whole number times 1.0, or divided by 1, becomes a float, so it is changed. "
                "Compare the types before and after.",
                wrong="if True:",
                right='if node.meta["val"].dtype == kept.meta["val"].dtype:',
            ),
            Mistake(
                "0 - x and 1 / x change x. A number on the left counts only for sums and products.",
                wrong="if not isinstance(kept, fx.Node):",
                right="if swaps and not isinstance(kept, fx.Node):",
            ),
            Mistake(
                "You only find numbers on the right. 1 * x gives x back as well.",
                wrong="pass",
                right="kept, number = number, kept",
            ),
            Mistake(
                "Where two such nodes follow each other, you skip one. Each gives back its own "
                "operand, also if that is a node which changes nothing.",
                wrong="found[node] = found.get(kept, kept)",
                right="found[node] = kept",
            ),
            Mistake(
                "You take 1 for every operator, but x + 1 is not x. For sums and differences it "
                "is 0.",
                wrong="number == 1",
                right="number == NEUTRAL[node.target]",
            ),
        ),
    ),
    Item(
        "place_buffers",
        plan_cases,
        plan_oracle,
        view=lambda answer, probe: [int(offset) for offset in answer],
        minutes=15,
        dots=2,
        nudge="Two buffers are alive at the same time if each begins no later than the other ends.",
        hint="Sort the buffers that are alive at the same time by offset, and take the first gap "
        "that is large enough.",
        mistakes=(
            Mistake(
                "You give every buffer a place of its own. Buffers that are never alive at the "
                "same time may overlap: take the lowest gap that is free.",
                wrong="if True",
                right="if begin <= last and first <= end",
            ),
            Mistake(
                "In its last step a buffer is still read, so one that begins in the same step "
                "must not overlap with it.",
                wrong="if begin < last and first < end",
                right="if begin <= last and first <= end",
            ),
            Mistake(
                "Your next free place can move back into a long buffer. It starts behind the "
                "farthest end so far: take the max.",
                wrong="end",
                right="max(place, end)",
            ),
            Mistake(
                "Sort the places that are taken by offset. In another order, what looks like a "
                "gap may be taken.",
                wrong="list(\n",
                right="sorted(\n",
            ),
            Mistake(
                "You put each buffer behind all that are alive with it. Look for room in front "
                "of them and between them, too.",
                wrong="",
                right="            if place + size <= begin:\n                break\n",
            ),
        ),
    ),
)
