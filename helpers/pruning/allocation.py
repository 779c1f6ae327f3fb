"""How many units of each group go, and which: every allocation is a queue in which all units stand
in line.

    uniform          all groups lose the same share: the k-th of a group's n units goes at the ratio
        k / n
    {group: ratio}   the same, each group at a ratio of its own
    global           the k-th of all N units goes at the ratio k / N, ranked by their scores: as
    they are if taylor or
                     random gave them, else each divided by the mean of its group

A ratio takes the front of the queue. A target (so many parameters or multiply-adds) takes the front
that comes nearest.
"""

import bisect
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.utils.flop_counter import FlopCounterMode

from helpers.graphs.operations import KEEPS_SHAPE, operation
from helpers.graphs.recording import perform
from helpers.passes.optimizer import as_tuple
from helpers.pruning.groups import ChannelGroups, Group, PruneError
from helpers.pruning.importance import COMPARABLE, Scores
from helpers.pruning.reader import called_module, on_meta, read
from helpers.pruning.surgery import Plan, cut

ROUNDING = 1e-9  # keeps 0.7 * 10 from being 6


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


def clamp(size: int, count: int, round_to: int) -> int:
    """How many units may go when `count` of `size` are asked for: a multiple of `round_to` is left,
    or everything.
    """
    return size - min(size, -(-max(size - count, 1) // round_to) * round_to)


def queue(
    groups: list[Group],
    scores: Scores,
    importance: str,
    allocation: str | Mapping,
    ratio: float,
    round_to: int,
) -> tuple[np.ndarray, int]:
    """For each place in the queue the number of the group that loses a unit, and how many places go
    at this ratio.
    """
    sizes = np.array([group.size for group in groups])
    owners = np.repeat(np.arange(len(groups)), sizes)
    if allocation == "global":
        values = [scores[group.name] for group in groups]
        values = values if importance in COMPARABLE else [v / max(v.mean(), 1e-30) for v in values]
        owners = owners[
            np.argsort(np.concatenate(values), kind="stable")
        ]  # among equals the first group and unit
        for number, size in enumerate(
            sizes.tolist()
        ):  # a group that has no more to give is skipped
            owners = np.delete(
                owners, np.flatnonzero(owners == number)[clamp(size, size, round_to) :]
            )
        return owners, int(sizes.sum() * ratio + ROUNDING)
    if isinstance(allocation, Mapping):
        if unknown := allocation.keys() - {group.name for group in groups}:
            raise PruneError(
                f"allocation names {sorted(unknown)[0]!r}, which is no prunable group of this scope"
            )
        ratios = [
            checked_ratio(allocation.get(group.name, 0), f"allocation[{group.name!r}]")
            for group in groups
        ]
        owners = np.repeat(np.arange(len(groups)), (sizes * ratios + ROUNDING).astype(int))
        return owners, len(owners)
    if allocation != "uniform":
        raise PruneError(
            f"unknown allocation {allocation!r}; choose 'uniform', 'global' or {{group: ratio}}"
        )
    at = np.concatenate(
        [(np.arange(1, size + 1) - ROUNDING) / size for size in sizes]
    )  # the ratio at which it goes
    return owners[np.argsort(at, kind="stable")], int((at <= ratio).sum())


def plan_of(groups: list[Group], scores: Scores, front: np.ndarray, round_to: int) -> Plan:
    """The units with the lowest scores, as many of each group as it has places at the front of the
    queue.
    """
    counts = np.bincount(front, minlength=len(groups)).tolist()
    going = {
        group.name: clamp(group.size, count, round_to)
        for group, count in zip(groups, counts, strict=True)
    }
    return {
        name: np.sort(np.argsort(scores[name], kind="stable")[:count])
        for name, count in going.items()
    }


def cost_of(
    model: nn.Module, example_inputs: Any, groups: ChannelGroups, what: str
) -> Callable[[Plan], int]:
    """What a plan leaves: "params", or "macs", the multiply-adds for an image; both counted without
    any content.
    """
    root, images = on_meta(model), len(as_tuple(example_inputs)[0])

    def cost(plan: Plan) -> int:
        small, _ = cut(root, groups, plan)
        if what == "params":
            return sum(p.numel() for p in small.parameters())
        return multiply_adds(read(small, example_inputs)) // images

    return cost


def multiply_adds(nodes: list[fx.Node]) -> int:
    """Of all operations of a network on the meta device, which are done once more."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for node in nodes:
            if node.op.startswith("call") and operation(node) not in KEEPS_SHAPE:
                args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
                perform(called_module(node) or node.target, args, kwargs)
    return counter.get_total_flops() // 2


def meet(
    what: str, target: float, longest: int, cost: Callable[[int], int], tolerance: float, room: str
) -> int:
    """How many places of the queue, `longest` at most, go so that the cost of what is left is
    nearest to the target:

    a share of the whole network's cost up to 1, or the cost itself above 1. `tolerance` is a share
    of the target.
    """
    checked_ratio(tolerance, "tolerance")
    if isinstance(target, bool) or not isinstance(target, Real) or not target > 0:
        raise PruneError(
            f"target_{what} is {target!r}; expected a share (0 < share <= 1) or a number above 1"
        )
    whole = cost(0)
    goal = target * whole if target <= 1 else float(target)
    if goal > whole:
        raise PruneError(
            f"target_{what} {goal:,.0f} is more than the {whole:,.0f} {what} that the network"
            " has now"
        )
    first = bisect.bisect_left(range(longest), -goal, key=lambda length: -cost(length))
    best = min(first, max(first - 1, 0), key=lambda length: abs(cost(length) - goal))
    if abs(cost(best) - goal) > tolerance * goal:
        nearest = f"the nearest is {cost(best):,.4g} {what} (try {room})"
        raise PruneError(
            f"target_{what} {goal:,.4g} cannot be met within {tolerance:.0%}: {nearest}"
        )
    return best
