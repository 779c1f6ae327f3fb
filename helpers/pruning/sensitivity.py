"""Sensitivity scan: how much quality does each group cost, when it alone is pruned? And ratios that follow from it."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from torch import nn
from tqdm.auto import tqdm

from helpers.pruning.allocation import AllocationError, Scores, choose, share
from helpers.pruning.groups import ChannelGroups, Group
from helpers.pruning.surgery import cut

RATIOS = (0.25, 0.5, 0.75, 1.0)  # 1 leaves a single unit


def scan(
    model: nn.Module,
    groups: ChannelGroups,
    chosen: list[Group],
    scores: Scores,
    evaluate: Callable[[nn.Module], float],
    ratios: Sequence[float] = RATIOS,
) -> pd.DataFrame:
    """Prune one group at a time, at each ratio, and rate the network.

    Returns:
        One row for each group and ratio: group, ratio, quality, drop (against the whole network).
    """
    whole = rated(model, evaluate, "the whole network")
    rows = []
    for group in tqdm(chosen, desc="sensitivity", leave=False):
        for ratio in ratios:
            count = min(share(group.size, ratio), group.size - 1)
            small, _ = cut(model, groups, choose({group.name: scores[group.name]}, {group.name: count}))
            quality = rated(small, evaluate, f"the network with a share {ratio} of group {group.name!r} removed")
            rows.append((group.name, ratio, quality, whole - quality))
    return pd.DataFrame(rows, columns=["group", "ratio", "quality", "drop"])


def rated(model: nn.Module, evaluate: Callable[[nn.Module], float], what: str) -> float:
    """The quality of a network, which has to be a finite number: others cannot be compared."""
    quality = evaluate(model)
    if not math.isfinite(quality):
        raise AllocationError(f"evaluate rates {what} {quality!r}; it has to give a finite number, larger for better")
    return quality


def curves(table: pd.DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each group (drop, ratio), from (0, 0), with drops that never fall: more pruning cannot cost less."""
    result = {}
    for name, rows in table.sort_values("ratio").groupby("group", sort=False):
        drops = np.maximum.accumulate(np.maximum([0.0, *rows["drop"]], 0.0))
        result[name] = (drops, np.array([0.0, *rows["ratio"]]))
    return result


def ratios(table: pd.DataFrame, chosen: list[Group], ratio: float) -> dict[str, float]:
    """A ratio for each group, so that every group costs the same drop and together they lose the share `ratio`.

    The common drop is found by bisection; at a drop each group is pruned as far as its curve allows, but for one unit.
    """
    known = curves(table)
    sizes = np.array([g.size for g in chosen], dtype=float)

    def at(drop: float) -> np.ndarray:
        # The scan calls it 1 when a single unit is left, which the other groups have to make up for.
        return np.minimum([furthest(*known[g.name], drop) for g in chosen], 1 - 1 / sizes)

    low, high = 0.0, max(drops[-1] for drops, _ in known.values())
    if sizes @ at(low) >= ratio * sizes.sum():  # free even at no drop at all: take the same part of what is free
        free = at(low)
        return dict(zip([g.name for g in chosen], free * ratio * sizes.sum() / (sizes @ free or 1), strict=True))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sizes @ at(middle) < ratio * sizes.sum() else (low, middle)
    # Where curves are flat the ratio jumps between the two drops: go as far between them as the total asks for.
    below, above = at(low), at(high)
    part = (ratio * sizes.sum() - sizes @ below) / max(sizes @ (above - below), 1e-12)
    return dict(zip([g.name for g in chosen], below + np.clip(part, 0, 1) * (above - below), strict=True))


def furthest(drops: np.ndarray, reached: np.ndarray, drop: float) -> float:
    """The largest ratio whose drop is not above `drop`, on the line through the scanned points."""
    last = int(np.searchsorted(drops, drop, side="right")) - 1
    if last == len(drops) - 1:
        return float(reached[-1])
    part = (drop - drops[last]) / (drops[last + 1] - drops[last])
    return float(reached[last] + part * (reached[last + 1] - reached[last]))


def plot(table: pd.DataFrame, axes: Axes) -> Axes:
    """One line for each group: quality against the ratio at which it alone was pruned."""
    for name, rows in table.groupby("group", sort=False):
        axes.plot(rows["ratio"], rows["quality"], marker=".", label=name)
    axes.set(xlabel="share of the group's channels removed", ylabel="quality with this group alone pruned")
    axes.legend(fontsize="xx-small", ncols=2)
    return axes
