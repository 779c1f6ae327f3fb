"""Lesson 04b.

Weights are sorted out in plain Python; graphs are run, and the permutations in their code counted.
"""

from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between
from torch import fx, nn
from torch.nn import functional as F

from helpers.checks.specification import Case, Item, Mistake

FORTH, BACK, OTHER = (0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3)


def sparsity_cases(rng: torch.Generator) -> list[Case]:
    """Weights of both signs, no two of a four of the same magnitude."""
    cases = []
    sides = {
        "one row of four": (1, 1),
        "small weights": (3, 2),
        "more rows": (between(rng, 4, 6), 3),
    }
    for label, (rows, fours) in sides.items():
        sizes = (
            torch.rand(rows * fours, 4, generator=rng).argsort(1)
            + torch.rand(rows * fours, 1, generator=rng)
            + 0.1
        )
        sizes[::2] *= 9  # so that half of a whole row is another answer
        signs = 1 - 2 * torch.randint(0, 2, sizes.shape, generator=rng)
        weight = (0.1 if label == "small weights" else 1.0) * (sizes * signs).reshape(
            rows, 4 * fours
        )
        cases.append(Case(label, {"weight": weight}))
    tied = torch.tensor([[9.0, 9.0, -4.0, 9.0, 5.0, -5.0, 8.0, 4.0]])
    return [*cases, Case("equal magnitudes", {"weight": tied}, {"tied": tied})]


def sparsity_oracle(inputs: dict, probe: dict) -> dict:
    """Four numbers at a time, sorted by magnitude; of equal ones any may stay, but two of four."""
    if probe:
        largest = probe["tied"].reshape(-1, 4).abs().sort(1).values[:, 2:]
        return {"sparse": F.pad(largest, (2, 0)), "kept": largest}
    sparse, places = [], []
    numbers = inputs["weight"].flatten().tolist()
    for start in range(0, len(numbers), 4):
        four = numbers[start : start + 4]
        kept = sorted(sorted(range(4), key=lambda place: -abs(four[place]))[:2])
        sparse += [value if place in kept else 0.0 for place, value in enumerate(four)]
        places.append(kept)
    return {
        "sparse": torch.tensor(sparse).reshape(inputs["weight"].shape),
        "kept": torch.tensor(places),
    }


def sparsity_view(answer: list, probe: dict) -> dict:
    """Both parts by name."""
    sparse, kept = answer
    if probe:
        fours = sparse.reshape(-1, 4).abs()
        kept = fours.gather(1, kept.long()).sort(1).values
        return {"sparse": fours.sort(1).values, "kept": kept}
    return {"sparse": sparse, "kept": kept.long()}


def permute_cases(rng: torch.Generator) -> list[Case]:
    """Pairs that cancel or not, chains, values that something else reads as well, and axes counted
    from the end.

    A step is the number of the value that it reads (0 is the input), and its axes, or None for a
    ReLU.
    """
    some = tuple(torch.randperm(4, generator=rng).tolist())
    steps = {
        "a pair that cancels": ([(0, FORTH), (1, BACK), (2, None)], [3]),
        "a pair that becomes one": ([(0, FORTH), (1, (1, 0, 2, 3)), (2, None)], [3]),
        "a chain of four": ([(0, FORTH), (1, some), (2, FORTH), (3, (2, 1, 0, 3)), (4, None)], [5]),
        "an operation between": ([(0, FORTH), (1, None), (2, BACK), (3, OTHER)], [4]),
        "the first is read twice": ([(0, FORTH), (1, BACK), (1, None), (2, None)], [3, 4]),
        "three read the first": ([(0, FORTH), (1, BACK), (1, OTHER), (1, FORTH)], [2, 3, 4]),
        "one that moves nothing": ([(0, (0, 1, 2, 3)), (1, None), (2, OTHER)], [3]),
        "axes counted from the end": ([(0, (0, -1, 1, 2)), (1, (0, 2, 3, -3)), (2, None)], [3]),
        "a pair on three axes": ([(0, (2, 0, -2)), (1, (1, 2, 0)), (2, None)], [3]),
        "a single one on three axes": ([(0, (2, -3, 1)), (1, None)], [2]),
    }
    x = torch.randn(2, 3, 4, 5, generator=rng)
    return [
        Case(
            f"{label}: {spelled(calls)}",
            {"calls": calls, "returned": returned, "x": x[0] if "three axes" in label else x},
        )
        for label, (calls, returned) in steps.items()
    ]


def spelled(calls: list[tuple]) -> str:
    """The graph for a reader."""
    names = ["x", *(f"v{number}" for number in range(1, len(calls) + 1))]
    texts = (
        f"permute({names[source]}, {axes})" if axes else f"relu({names[source]})"
        for source, axes in calls
    )
    return "; ".join(f"{name} = {text}" for name, text in zip(names[1:], texts, strict=True))


def run_merge(student: Mapping[str, Any], inputs: dict) -> dict:
    """Hand over the graph; run what became of it, and look at its code."""
    graph = fx.Graph()
    values = [graph.placeholder("x")]
    for source, axes in inputs["calls"]:
        read = (values[source], tuple(axes)) if axes else (values[source],)
        values.append(graph.call_function(torch.permute if axes else torch.relu, read))
    graph.output(tuple(values[number] for number in inputs["returned"]))
    graph_module = fx.GraphModule(nn.Module(), graph)
    student["merge_permutes"](graph_module)
    graph_module.graph.lint()
    return {
        "outputs": graph_module(inputs["x"]),
        "permutations left in .code": graph_module.code.count("permute("),
    }


def merge_oracle(inputs: dict, probe: dict) -> dict:
    """Every value as it was; a permutation is needed if it moves something and anything but a
    permutation reads it.
    """
    values, needed = [inputs["x"]], set(inputs["returned"])
    moved = [tuple(range(inputs["x"].dim()))]
    for source, order in inputs["calls"]:
        values.append(values[source].permute(order) if order else values[source].relu())
        moved.append(tuple(moved[source][axis] for axis in order) if order else moved[0])
        needed |= set() if order else {source}
    left = [n for n in needed if n and inputs["calls"][n - 1][1] and moved[n] != moved[0]]
    return {
        "outputs": [values[n] for n in inputs["returned"]],
        "permutations left in .code": len(left),
    }


ITEMS = (
    Item(
        "keep_two_of_four",
        sparsity_cases,
        sparsity_oracle,
        view=sparsity_view,
        minutes=10,
        dots=2,
        nudge="Reshape to rows of four. Which two of each row are kept is a question about "
        "magnitudes.",
        hint="fours.abs().topk(2, dim=1).indices gives the indices, largest first; "
        "sort them. scatter puts the kept values, taken with gather, into a matrix of zeros.",
        mistakes=(
            Mistake(
                "You compare the weights with their signs. A large negative weight matters as "
                "much as a positive one, so compare magnitudes.",
                wrong="fours",
                right="fours.abs()",
            ),
            Mistake(
                "The indices come in order of magnitude. Sort them, so that they ascend in each "
                "row.",
                wrong="",
                right=".sort(1).values",
            ),
            Mistake(
                "You keep the two smallest of each four. The largest should stay.",
                wrong="topk(2, dim=1, largest=False)",
                right="topk(2, dim=1)",
            ),
            Mistake(
                "You choose among all weights of a row. Two must stay in every four neighbours.",
                wrong="half = weight.shape[1] // 2\n"
                "kept = weight.abs().topk(half, dim=1).indices.sort(1).values\n"
                "sparse = torch.zeros_like(weight).scatter(1, kept, weight.gather(1, kept))\n"
                "return sparse, (kept % 4).reshape(-1, 2)",
            ),
        ),
    ),
    Item(
        "merge_permutes",
        permute_cases,
        merge_oracle,
        run=run_merge,
        minutes=20,
        dots=3,
        nudge="Go through the nodes in order. If a permutation reads a permutation, it can read "
        "that one's input instead, with other axes. Which ones?",
        hint="Axis i of the result is axis inner[outer[i]] of the input. Write that into "
        "node.args; if the axes are 0, 1, 2, ..., rewire the node's users to its input. Then "
        "eliminate_dead_code and recompile. Bring axes below 0 into range first, with %.",
        mistakes=(
            Mistake(
                "You combine the axes in the wrong order. The outer permutation picks from what "
                "the inner one has arranged.",
                wrong="[axes[axis] for axis in inner]",
                right="[inner[axis] for axis in axes]",
            ),
            Mistake(
                "The old permutations are still in the code. Remove from the graph what nothing "
                "reads, which is dead code, and recompile at the end.",
                wrong="",
                right="    graph.eliminate_dead_code()\n",
            ),
            Mistake(
                "An axis may be negative, counted from the end. Bring all axes into the range "
                "from 0 first.",
                wrong="list(axes)",
                right="[axis % len(axes) for axis in axes]",
            ),
        ),
    ),
)
