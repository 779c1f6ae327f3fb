"""Lesson 02b.

The learner's functions get a traced network; the oracles know how it was put together.
"""

import torch
from exercise_inputs import between

from helpers.checks.specification import Case, Item, Mistake


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
