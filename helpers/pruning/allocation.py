"""How many units of each group go: the same share everywhere, or one ranking for all, or a ratio for each group."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from helpers.pruning.criteria import CRITERIA
from helpers.pruning.groups import Group
from helpers.pruning.surgery import Plan

Scores = dict[str, np.ndarray]
Counts = dict[str, int]  # group -> how many units go


class AllocationError(ValueError):
    """A ratio or a width is impossible; says which and what is allowed."""


@dataclass(frozen=True)
class Limits:
    """What is left of a group is at least `min_width` units, and a multiple of `round_to` (or everything)."""

    min_width: int = 1
    round_to: int = 1

    def __post_init__(self) -> None:
        for name, value in (("min_width", self.min_width), ("round_to", self.round_to)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise AllocationError(f"{name} is {value!r}; expected a whole number of 1 or more")

    def clamp(self, size: int, count: int) -> int:
        """The number of units that may go when `count` of `size` are asked for."""
        left = max(size - count, self.min_width)
        return size - min(size, -(-left // self.round_to) * self.round_to)


def checked_ratio(ratio: float, what: str = "ratio") -> float:
    """A share from 0 (nothing goes) to below 1."""
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio < 1:
        raise AllocationError(f"{what} is {ratio!r}; expected 0 <= {what} < 1 (at 1 a layer would be empty)")
    return float(ratio)


def share(size: int, ratio: float) -> int:
    """The whole units in a share; the small addition keeps 0.7 * 10 from being 6."""
    return int(size * ratio + 1e-9)


def uniform(groups: list[Group], ratio: float, limits: Limits) -> Counts:
    """The same share of every group."""
    return {g.name: limits.clamp(g.size, share(g.size, ratio)) for g in groups}


def individual(groups: list[Group], ratios: Mapping[str, float], limits: Limits) -> Counts:
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
    comparable = CRITERIA[importance].comparable
    ranked = [scores[g.name] if comparable else scores[g.name] / max(scores[g.name].mean(), 1e-30) for g in groups]
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
