"""How many units of each group go, and which: every allocation is a ranking of all units.

    uniform          all groups lose the same share: the k-th of a group's n units goes at the
                     ratio k / n
    {group: ratio}   the same, each group at its ratio
    global           the k-th of all N units goes at the ratio k / N. Units are ranked by their
                     scores: as they are if taylor or random gave them, else each divided by the
                     mean of its group

Inside a group the units with the lowest scores go first. A ratio takes the first units of the
ranking; a target (so many parameters or multiply-adds) takes as many as come nearest to it.
"""

import bisect
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.utils.flop_counter import FlopCounterMode

from helpers.graphs.operations import KEEPS_SHAPE, called_module, operation, perform
from helpers.graphs.tracing import as_tuple
from helpers.pruning.groups import ChannelGroups, Group, PruneError
from helpers.pruning.importance import COMPARABLE, Scores
from helpers.pruning.reader import read
from helpers.pruning.surgery import Cut, cut

ROUNDING = 1e-9  # keeps 0.29 * 100 from being 28
Ranking = list[tuple[str, int]]  # (group, unit); the first one goes first


def checked_ratio(ratio: float, what: str = "ratio") -> float:
    """A share from 0 (nothing goes) to below 1."""
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 <= ratio < 1:
        raise PruneError(f"{what} is {ratio!r}; expected 0 <= {what} < 1")
    return float(ratio)


def checked_multiple(round_to: int) -> int:
    """What every width is to be a multiple of."""
    if isinstance(round_to, bool) or not isinstance(round_to, Integral) or round_to < 1:
        raise PruneError(f"round_to is {round_to!r}; expected a whole number of 1 or more")
    return int(round_to)


def removable(size: int, count: int, round_to: int) -> int:
    """How many of `size` units go if `count` may: a multiple of `round_to` stays, or all do."""
    multiples = -(-max(size - count, 1) // round_to)  # rounded up
    return size - min(size, multiples * round_to)


def rank_units(
    groups: list[Group],
    scores: Scores,
    importance: str,
    allocation: str | Mapping,
    ratio: float,
    round_to: int,
) -> tuple[Ranking, int]:
    """The units that can go, in order, and how many of them go at this ratio."""
    if isinstance(allocation, Mapping):
        if unknown := allocation.keys() - {group.name for group in groups}:
            raise PruneError(
                f"allocation names {min(unknown)!r}, which is no prunable group of this scope"
            )
    elif allocation not in ("uniform", "global"):
        raise PruneError(
            f"unknown allocation {allocation!r}; choose 'uniform', 'global' or {{group: ratio}}"
        )
    order: list[tuple[float, int, int]] = []  # (goes at, number of the group, unit)
    for number, group in enumerate(groups):
        name = group.name
        values = scores[name]
        units = np.argsort(values, kind="stable")[: removable(group.size, group.size, round_to)]
        goes_at = (np.arange(1, len(units) + 1) - ROUNDING) / group.size
        if isinstance(allocation, Mapping):
            ratio_of_group = checked_ratio(allocation.get(name, 0), f"allocation[{name!r}]")
            units = units[goes_at <= ratio_of_group]
        if allocation == "global":
            comparable = importance in COMPARABLE
            goes_at = values[units] if comparable else values[units] / max(values.mean(), 1e-30)
        for at, unit in zip(goes_at.tolist(), units.tolist(), strict=False):
            order.append((at, number, unit))
    order.sort()
    first_n = len(order)
    if allocation == "global":
        first_n = int(sum(group.size for group in groups) * ratio + ROUNDING)
    elif allocation == "uniform":
        first_n = sum(at <= ratio for at, _, _ in order)
    return [(groups[number].name, unit) for _, number, unit in order], first_n


def cut_of(ranking: Ranking, groups: list[Group], round_to: int) -> Cut:
    """The units of a ranking, or a few less where a group must keep a multiple of `round_to`."""
    units: dict[str, list[int]] = {group.name: [] for group in groups}
    for name, unit in ranking:
        units[name].append(unit)
    counts = {g.name: removable(g.size, len(units[g.name]), round_to) for g in groups}
    return {name: np.array(sorted(units[name][:count]), int) for name, count in counts.items()}


def cost_of(
    model: nn.Module, example_inputs: Any, groups: ChannelGroups, what: str
) -> Callable[[Cut], int]:
    """What a cut leaves: "params", or "macs", multiply-adds for one image; without data."""
    images = len(as_tuple(example_inputs)[0])

    def cost(removed: Cut) -> int:
        small, _ = cut(model, groups, removed, device="meta")
        if what == "params":
            return sum(p.numel() for p in small.parameters())
        return multiply_adds(read(small.eval(), example_inputs)) // images

    return cost


def multiply_adds(nodes: list[fx.Node]) -> int:
    """The multiply-adds of a network on the meta device, whose operations are called once more."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for node in nodes:
            if node.op.startswith("call") and operation(node) not in KEEPS_SHAPE:
                args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
                perform(called_module(node) or node.target, args, kwargs)
    return counter.get_total_flops() // 2


def fit_to_target(
    what: str,
    target: float,
    longest: int,
    cost: Callable[[int], int],
    tolerance: float,
    advice: str,
) -> int:
    """How many units of a ranking, `longest` at most, go to come nearest to the target.

    Args:
        target: a share of the whole network's cost up to 1, or the cost itself above 1.
        cost: of what is left when so many go.
        tolerance: a share of the target.
        advice: what to try if the target cannot be met.
    """
    checked_ratio(tolerance, "tolerance")
    if isinstance(target, bool) or not isinstance(target, Real) or not target > 0:
        raise PruneError(
            f"target_{what} is {target!r}; expected a share (0 < share <= 1) or a number above 1"
        )
    now = cost(0)
    goal = target * now if target <= 1 else float(target)
    if goal > now:
        raise PruneError(
            f"target_{what} {goal:,.0f} is more than the {now:,.0f} {what} that the network has now"
        )
    reached = bisect.bisect_left(range(longest), -goal, key=lambda count: -cost(count))
    best = min(reached, max(reached - 1, 0), key=lambda count: abs(cost(count) - goal))
    if abs(cost(best) - goal) > tolerance * goal:
        nearest = f"the nearest is {cost(best):,.4g} {what} (try {advice})"
        raise PruneError(
            f"target_{what} {goal:,.4g} cannot be met within {tolerance:.0%}: {nearest}"
        )
    return best
