"""How many units of each group go: the same share everywhere, or one ranking for all, or a ratio for each group.

And how to meet a target: so many parameters or multiply-adds are to be left.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from helpers.pruning.groups import ChannelGroups, Group
from helpers.pruning.importance import COMPARABLE
from helpers.pruning.surgery import Plan, kept_atoms

Scores = dict[str, np.ndarray]
Counts = dict[str, int]  # group -> how many units go
Cost = Callable[[Plan], float]
HALVINGS, LAST_RATIO = 40, 1.0 - 1e-9


class AllocationError(ValueError):
    """A ratio or a width is impossible; says which and what is allowed."""


class TargetError(ValueError):
    """A target cannot be met; says what can."""


@dataclass(frozen=True)
class Limits:
    """What is left of a group is at least `min_width` units, and a multiple of `round_to` (or everything)."""

    min_width: int = 1
    round_to: int = 1

    def __post_init__(self) -> None:
        for name, value in (("min_width", self.min_width), ("round_to", self.round_to)):
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise AllocationError(f"{name} is {value!r}; expected a whole number of 1 or more")

    def clamp(self, size: int, count: int) -> int:
        """The number of units that may go when `count` of `size` are asked for."""
        left = max(size - count, self.min_width)
        return size - min(size, -(-left // self.round_to) * self.round_to)


def checked_ratio(ratio: float, what: str = "ratio") -> float:
    """A share from 0 (nothing goes) to below 1."""
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 <= ratio < 1:
        raise AllocationError(f"{what} is {ratio!r}; expected 0 <= {what} < 1 (at 1 a layer would be empty)")
    return float(ratio)


def share(size: int, ratio: float) -> int:
    """The whole units in a share; the small addition keeps 0.7 * 10 from being 6."""
    return int(size * ratio + 1e-9)


def by_ratios(groups: list[Group], ratios: Mapping[str, float], limits: Limits) -> Counts:
    """A ratio for each group that is named; the others stay whole."""
    unknown = ratios.keys() - {g.name for g in groups}
    if unknown:
        raise AllocationError(f"allocation names {sorted(unknown)[0]!r}, which is no prunable group of this scope")
    given = {name: checked_ratio(r, f"allocation[{name!r}]") for name, r in ratios.items()}
    return {g.name: limits.clamp(g.size, share(g.size, given.get(g.name, 0.0))) for g in groups}


def global_ranking(groups: list[Group], scores: Scores, importance: str, ratio: float, limits: Limits) -> Counts:
    """Rank the units of all groups together and cut the lowest; a group that is down to its least width is skipped.

    Among equal scores the earlier group, and in it the unit with the lower number, goes first.
    """
    ranked = [scores[g.name] for g in groups]
    if importance not in COMPARABLE:
        ranked = [values / max(values.mean(), 1e-30) for values in ranked]
    owners = np.repeat(np.arange(len(groups)), [g.size for g in groups])
    room = [limits.clamp(g.size, g.size) for g in groups]
    counts = [0] * len(groups)
    wanted = share(len(owners), ratio)
    for owner in owners[np.argsort(np.concatenate(ranked), kind="stable")].tolist():
        if not wanted:
            break
        if counts[owner] < room[owner]:
            counts[owner] += 1
            wanted -= 1
    return {g.name: limits.clamp(g.size, count) for g, count in zip(groups, counts, strict=True)}


def choose(scores: Scores, counts: Counts) -> Plan:
    """The units with the lowest scores; among equal ones those with the lower numbers."""
    return {name: np.sort(np.argsort(scores[name], kind="stable")[:count]) for name, count in counts.items()}


def cost_of(groups: ChannelGroups, what: str) -> Cost:
    """What a plan leaves, counted without carrying it out.

    Args:
        groups: of the network.
        what: "params"; or "macs", multiply-adds of convolutions and linear layers for the batch of the example inputs.
    """
    layers = [(layer.weight, layer.places) for layer in groups.layers]
    counted = layers if what == "macs" else [(name, 1) for name in groups.labelling.learned]

    def cost(plan: Plan) -> float:
        keep, total = kept_atoms(groups, plan), 0
        for name, times in counted:
            axes = groups.axes.get(name, {})
            sizes = (keep[axes[d]].sum() if d in axes else n for d, n in enumerate(groups.labelling.shapes[name]))
            total += times * math.prod(map(int, sizes))
        return total

    return cost


def meet(
    target: float, cost: Cost, counts_at: Callable[[float], Counts], plan_of: Callable[[Counts], Plan], tolerance: float
) -> Plan:
    """Find the plan whose counted cost is nearest to the target, by halving the interval of ratios in which it lies.

    That ends between two neighbouring plans that differ in many groups at once; from the larger to the smaller of them
    the groups are then switched one after the other.

    Args:
        target: a share of the whole network's cost up to 1, or the cost itself above 1.
        cost: of a plan; smaller with every unit that goes.
        counts_at: how many units of each group go at a ratio.
        plan_of: which ones.
        tolerance: how far off the result may be, as a share of the target.
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not 0 <= tolerance < 1:
        raise TargetError(f"tolerance is {tolerance!r}; expected a share of the target, 0 <= tolerance < 1")
    if isinstance(target, bool) or not isinstance(target, Real) or not target > 0:
        raise TargetError(f"target is {target!r}; expected a share of the network (0 < share <= 1) or a number above 1")
    whole = cost({})
    goal = target * whole if target <= 1 else float(target)
    if goal > whole:
        raise TargetError(f"target {goal:,.0f} is more than the {whole:,.0f} that the network has now")
    low, high = 0.0, LAST_RATIO
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(plan_of(counts_at(middle))) > goal else (low, middle)
    large, small = counts_at(low), counts_at(high)
    names = list(large)
    mixtures = [{n: (small if i < k else large)[n] for i, n in enumerate(names)} for k in range(1, len(names))]
    best = min((plan_of(counts) for counts in (*mixtures, large, small)), key=lambda plan: abs(cost(plan) - goal))
    if abs(cost(best) - goal) > tolerance * goal:
        raise TargetError(
            f"target {goal:,.4g} cannot be met within {tolerance:.0%}: the nearest is {cost(best):,.4g}"
            " (try scope='all', a smaller min_width or round_to=1)"
        )
    return best
