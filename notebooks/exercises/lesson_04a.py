"""Lesson 04a. The oracles try every way, or sort the graph."""

import operator
import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import permutations, product
from typing import Any

import torch
from exercise_inputs import between
from torch import fx

from helpers.checks.specification import Case, Item, Mistake


def cycle_cases(rng: torch.Generator) -> list[Case]:
    """Ways back over one node and over many, none at all though edges enter and leave, and one from
    the middle.
    """
    names = [f"n{number}" for number in torch.randperm(90, generator=rng)[:7].tolist()]
    a, b, c, d, e, f, g = names
    graphs = {
        "a way back over one node": ([(a, b), (b, c), (a, c), (c, d)], [a, c]),
        "a way back over two nodes": ([(a, b), (b, c), (c, d), (a, d), (d, e)], [a, d]),
        "a way back over five nodes": (
            [(a, b), (b, c), (c, d), (d, e), (e, f), (f, g), (a, g)],
            [a, g],
        ),
        "edges enter and leave": ([(e, a), (a, b), (b, c), (f, b), (c, d)], [a, b]),
        "two ways, both inside": ([(a, b), (a, c), (b, d), (c, d), (d, e)], [a, b, c, d]),
        "a way back in a larger group": (
            [(a, b), (b, c), (b, e), (e, f), (f, d), (c, d)],
            [a, b, c, d],
        ),
    }
    return [
        Case(
            f"{label} (edges {arrows(edges)}; group {' '.join(group)})",
            {"edges": edges, "group": group},
        )
        for label, (edges, group) in graphs.items()
    ]


def arrows(edges: list[tuple[str, str]]) -> str:
    """Edges for a reader."""
    return " ".join(f"{start}->{end}" for start, end in edges)


def cycle_oracle(inputs: dict, probe: dict) -> bool:
    """Let the group be one node, and try to sort what comes out."""
    sorter, group = TopologicalSorter(), set(inputs["group"])
    for start, end in inputs["edges"]:
        if start not in group or end not in group:
            sorter.add("group" if end in group else end, "group" if start in group else start)
    try:
        sorter.prepare()
    except CycleError:
        return True
    return False


def expression(inputs: dict) -> fx.Graph:
    """A graph from a list of calls: (name of the operation, numbers of earlier values)."""
    graph = fx.Graph()
    values = [graph.placeholder(name) for name in ("a", "b")]
    for name, reads in inputs["calls"]:
        values.append(
            graph.call_function(getattr(operator, name), tuple(values[number] for number in reads))
        )
    graph.output(tuple(values[2:]))
    return graph


def named(pattern: list | str) -> tuple | str:
    """A pattern with operations in the place of their names; what is no list stands for a value."""
    if isinstance(pattern, str):
        return pattern
    return (getattr(operator, pattern[0]), *map(named, pattern[1:]))


def match_cases(rng: torch.Generator) -> list[Case]:
    """Operands in either order, values that must be the same, first tries that fail later on, near
    misses.
    """
    turn = between(rng, 0, 1)

    def pair(one: int, other: int) -> tuple:
        return (one, other) if turn else (other, one)

    swish = ["mul", "x", ["neg", "x"]]
    both = ["mul", ["neg", "x"], ["abs", "y"]]
    nested = ["add", ["mul", "x", "y"], ["mul", "y", "z"]]
    graphs = {
        "either order": (
            swish,
            [("neg", (0,)), ("mul", pair(0, 2)), ("mul", pair(1, 2)), ("mul", pair(2, 2))],
        ),
        "two names": (
            both,
            [("neg", (0,)), ("abs", (1,)), ("mul", pair(2, 3)), ("mul", (2, 2)), ("add", (2, 3))],
        ),
        "both orders fit": (
            ["add", "x", "y"],
            [("add", (0, 1)), ("add", (1, 1)), ("mul", (0, 1)), ("sub", (0, 1))],
        ),
        "a first try that fails": (
            ["mul", ["add", "x", "y"], "x"],
            [("add", pair(0, 1)), ("mul", (2, 1)), ("mul", (0, 2)), ("mul", (2, 2)), ("neg", (2,))],
        ),
        "a try that fails deeper": (
            nested,
            [("mul", pair(0, 1)), ("mul", pair(1, 2)), ("add", pair(2, 3)), ("add", (3, 3))],
        ),
        "an order that counts": (
            ["sub", "x", ["neg", "x"]],
            [("neg", (0,)), ("sub", (0, 2)), ("sub", (2, 0)), ("neg", (2,))],
        ),
        "more operands than in the pattern": (
            ["neg", "x"],
            [("neg", (0,)), ("neg", (0, 2)), ("neg", (3,)), ("abs", (0,))],
        ),
    }
    cases = [
        Case(f"{label}, pattern {spelled(pattern)}", {"pattern": pattern, "calls": calls})
        for label, (pattern, calls) in graphs.items()
    ]
    swapped = {"pattern": ["add", "x", ["sub", "x", "y"]], "commutative": ["sub"]}
    swapped["calls"] = [("sub", (0, 1)), ("sub", (1, 0)), ("add", (0, 2)), ("add", (2, 0))]
    return [*cases, Case("commutative=(operator.sub,), and a sum in one order", swapped)]


def spelled(pattern: list | str) -> str:
    """A pattern for a reader."""
    return pattern if isinstance(pattern, str) else f"({', '.join(map(spelled, pattern))})"


def ways(found: list[dict], node: fx.Node, bound: dict) -> tuple[str, str]:
    """A node as it is computed, and the ways to match it, both for a reader."""
    is_call = node.op == "call_function"
    place = (
        f"{node} = {node.target.__name__}({', '.join(map(str, node.args))})"
        if is_call
        else str(node)
    )
    texts = {
        ", ".join(f"{name} is {value}" for name, value in sorted(one.items())) for one in found
    }
    return f"{place}{', x bound to a' if bound else ''}", "; ".join(sorted(texts)) or "no match"


def run_match(student: Mapping[str, Any], inputs: dict) -> dict:
    """Try the pattern at each node; something may be bound beforehand, and must stay as it is."""
    found = {}
    nodes = list(expression(inputs).nodes)[:-1]
    given_by_name = {}
    if "commutative" in inputs:
        operations = tuple(getattr(operator, name) for name in inputs["commutative"])
        given_by_name = {"commutative": operations}
    for node in nodes:
        for bound in ({}, {"x": nodes[0]}):
            given = dict(bound)
            solutions = [
                dict(one)
                for one in student["match"](named(inputs["pattern"]), node, given, **given_by_name)
            ]
            if given != bound:
                raise ValueError("bound has changed: work on a copy of it")
            place, words = ways(solutions, node, bound)
            found[place] = words
    return found


def match_oracle(inputs: dict, probe: dict) -> dict:
    """No search: every way to give the pattern's names a value is tried and seen as a whole."""
    nodes = list(expression(inputs).nodes)[:-1]
    names = sorted(set(re.findall(r"'([xyz])'", str(inputs["pattern"]))))

    def fits(pattern: list | str, node: fx.Node, given: dict) -> bool:
        if isinstance(pattern, str):
            return given[pattern] is node
        if node.target is not getattr(operator, pattern[0]) or len(node.args) != len(pattern) - 1:
            return False
        either = pattern[0] in inputs.get("commutative", ("add", "mul"))
        orders = permutations(node.args) if either else [node.args]
        return any(all(map(fits, pattern[1:], order, [given] * len(order))) for order in orders)

    found = {}
    for node in nodes:
        every = [
            dict(zip(names, values, strict=True)) for values in product(nodes, repeat=len(names))
        ]
        fitting = [given for given in every if fits(inputs["pattern"], node, given)]
        for bound in ({}, {"x": nodes[0]}):
            place, words = ways(
                [one for one in fitting if not bound or one["x"] is nodes[0]], node, bound
            )
            found[place] = words
    return found


def partition_cases(rng: torch.Generator) -> list[Case]:
    """Chains, ways around, two groups that are fine alone and wait for each other together, and
    drawn graphs.
    """
    names = [f"n{number}" for number in torch.randperm(90, generator=rng)[:9].tolist()]
    a, b, c, d, u, v, w = names[:7]
    graphs = {
        "a chain with a gap": ([(a, b), (b, u), (u, c), (c, d)], [a, b, c, d]),
        "a way around": ([(a, b), (a, u), (u, b), (b, c), (a, c)], [a, b, c]),
        "a long way around": (
            [(a, u), (u, v), (v, w), (w, b), (a, b), (a, c), (c, d)],
            [a, c, d, b],
        ),
        "two that wait for each other": (
            [(a, d), (b, c), (a, u), (u, c), (b, v), (v, d)],
            [a, b, c, d],
        ),
        "two groups to choose from": ([(a, c), (b, c), (a, d), (b, d), (c, d)], [a, b, c, d]),
        "nothing touches": ([(a, u), (b, u), (u, c), (u, d)], [a, b, c, d]),
        "nodes that are numbers": ([(5, 0), (0, 6), (5, 6), (6, 1), (1, 7)], [5, 6, 7]),
    }
    for number in (1, 2):
        edges = [
            (one, other)
            for i, one in enumerate(names)
            for other in names[i + 1 :]
            if torch.rand((), generator=rng) < 0.3
        ]
        supported = [name for name in names if torch.rand((), generator=rng) < 0.7]
        graphs[f"drawn at random, {number}"] = (edges, supported)
    return [
        Case(
            f"{label} (edges {arrows(edges)}; supported {' '.join(map(str, known))})",
            {"edges": edges, "supported": known},
        )
        for label, (edges, known) in graphs.items()
    ]


def partition_oracle(inputs: dict, probe: dict) -> str:
    """The standard library says whether the graph of groups can still be put in order."""
    home = {}
    for node in inputs["supported"]:
        sources = [start for start, end in inputs["edges"] if end == node]
        for group in sorted({home[source] for source in sources if source in home}):
            trial = {one: f"group {home[one]}" for one in home} | {node: f"group {group}"}
            arrows = {
                (trial.get(start, start), trial.get(end, end)) for start, end in inputs["edges"]
            }
            order = TopologicalSorter()
            for start, end in arrows:
                if start != end:
                    order.add(end, start)
            try:
                order.prepare()
            except CycleError:
                continue
            home[node] = group
            break
        else:
            home[node] = len(set(home.values()))
    return as_groups(
        [[node for node in home if home[node] == number] for number in set(home.values())], probe
    )


def as_groups(answer: Any, probe: dict) -> str:
    """Groups of names, in one order."""
    return " | ".join(sorted(" ".join(sorted(map(str, group))) for group in answer))


# The first or the last node of a name stays, and operands are swapped in the pattern or the node.
ANY_NODE = """
if isinstance(pattern, str):
    return [{kept}]
target, *operands = pattern
if getattr(node, "target", None) is not target or len(node.args) != len(operands):
    return []
found = []
for turn in (1, -1) if target in commutative else (1,):
    some = [bound]
    for part, arg in zip({pairs}):
        some = [new for old in some for new in match(part, arg, old, commutative)]
    found += some
return found
"""
BOUND_TWICE = tuple(
    Mistake(
        "A name stands for the same node wherever it occurs. Look whether it is already bound to "
        "another one.",
        wrong=ANY_NODE.format(kept=kept, pairs=pairs),
    )
    for kept in ("{**bound, pattern: node}", "{pattern: node, **bound}")
    for pairs in ("operands[::turn], node.args", "operands, node.args[::turn]")
)

ITEMS = (
    Item(
        "waits_for_itself",
        cycle_cases,
        cycle_oracle,
        view=lambda answer, probe: bool(answer),
        minutes=12,
        dots=3,
        nudge="A path that comes back must first leave the group.",
        hint="Start at the outside nodes that read from the group, follow the edges, and see if "
        "you come back into it.",
        mistakes=(
            Mistake(
                "An edge that enters the group is no cycle yet. Its start must also be reached "
                "from the group, by a path that leaves it and comes back.",
                wrong="group = set(group)\n"
                "return any(start not in group and end in group for start, end in edges)",
            ),
            Mistake(
                "You find paths over one node outside the group. They can be longer: follow the "
                "edges as far as they lead.",
                wrong="group = set(group)\n"
                "out = {end for start, end in edges if start in group} - group\n"
                "return any(start in out and end in group for start, end in edges)",
            ),
            Mistake(
                "You find a way back in every graph. An edge inside the group is not a way back. "
                "Start from the outside nodes that read from the group.",
                wrong="",
                right=" and end not in group",
            ),
        ),
    ),
    Item(
        "match",
        match_cases,
        match_oracle,
        run=run_match,
        minutes=25,
        dots=3,
        nudge="Yield the solutions one by one: only the last operand shows which of them holds.",
        hint="A string: yield {**bound, pattern: node} if the name is free or bound to this node. "
        "A tuple: check target and number of operands; "
        "for each order, match the first operand, and for each solution the rest.",
        mistakes=(
            Mistake(
                "You try the operands in one order only. For a commutative operation, try the "
                "other order, too.",
                wrong="[operands]",
                right="[operands, operands[::-1]] if target in commutative else [operands]",
            ),
            Mistake(
                "You swap the operands of every operation. Only commutative ones allow the other "
                "order: a - b is not b - a.",
                wrong="",
                right=" if target in commutative else [operands]",
            ),
            *BOUND_TWICE,
            Mistake(
                "You go on with the first solution of an operand alone. If a later operand rules "
                "it out, the others must be tried.",
                wrong="nodes[1:], one, commutative)\n        return",
                right="nodes[1:], one, commutative)",
            ),
        ),
    ),
    Item(
        "partition",
        partition_cases,
        partition_oracle,
        view=as_groups,
        minutes=25,
        dots=3,
        nudge="Try the group with the node in it. Then draw every group as one dot: is there a "
        "cycle?",
        hint="Give each node the number of its group, or itself, and look at the arrows between "
        "different ones. Take away what no arrow points at, again and again; "
        "if something is left, there is a cycle.",
        mistakes=(
            Mistake(
                "Some of your groups wait for themselves. Before a node joins a group, look for "
                "a cycle.",
                wrong="",
                right=" and not closes_a_cycle(trial)",
            ),
            Mistake(
                "Each of your groups is fine alone, but two of them wait for each other. Look "
                "for cycles with all groups drawn as dots.",
                wrong="[[*group, node]]",
                right="groups[:number] + [[*group, node]] + groups[number + 1 :]",
            ),
            Mistake(
                "You put nodes into a group that have no edge to it. A node joins only a group "
                "that it reads from.",
                wrong="",
                right="read & set(group) and ",
            ),
        ),
    ),
)
