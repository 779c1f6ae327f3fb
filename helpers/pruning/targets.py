"""Prune down to a number: parameters, multiply-adds or measured milliseconds."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from helpers import metrics
from helpers.pruning.allocation import Counts
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.surgery import Plan, cut, kept_atoms
from helpers.pruning.tracing import as_tuple

Cost = Callable[[Plan], float]
HALVINGS = 40
MEASUREMENTS, RUNS = 10, 15


class TargetError(ValueError):
    """A target cannot be met; says what can."""


def parameter_cost(model: nn.Module, groups: ChannelGroups, example_inputs: Any) -> Cost:
    """Parameters that a plan leaves, counted without carrying it out."""
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return lambda plan: sum(elements(shapes, groups, kept_atoms(groups, plan)).values())


def mac_cost(model: nn.Module, groups: ChannelGroups, example_inputs: Any) -> Cost:
    """Multiply-adds of convolutions and linear layers that a plan leaves, for the batch of the example inputs."""
    weights = {layer.weight for layer in groups.layers}
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if name in weights}

    def cost(plan: Plan) -> float:
        left = elements(shapes, groups, kept_atoms(groups, plan))
        return sum(left[layer.weight] * layer.places for layer in groups.layers)

    return cost


def latency_cost(model: nn.Module, groups: ChannelGroups, example_inputs: Any) -> Cost:
    """Median milliseconds of the network that a plan leaves, measured; every plan once.

    Each is timed in turn with the whole network and counts as a share of it: a machine that is slower for a while is
    slower for both.
    """
    example, *more = as_tuple(example_inputs)
    if more:
        raise TargetError(f"target_latency_ms: only networks of one input are timed, and this one has {1 + len(more)}")
    whole_ms = metrics.latency(model, example, runs=RUNS).median_ms
    measured: dict[bytes, float] = {kept_atoms(groups, {}).tobytes(): whole_ms}

    def cost(plan: Plan) -> float:
        key = kept_atoms(groups, plan).tobytes()
        if key not in measured:
            small, _ = cut(model, groups, plan)
            whole, left = metrics.compare_latency({"whole": model, "small": small}, example, runs=RUNS).median_ms
            measured[key] = whole_ms * left / whole
        return measured[key]

    return cost


def elements(shapes: dict[str, tuple[int, ...]], groups: ChannelGroups, keep: np.ndarray) -> dict[str, int]:
    """How many elements of each tensor are left."""
    left = {}
    for name, shape in shapes.items():
        axes = groups.axes.get(name, {})
        left[name] = int(np.prod([int(keep[axes[d]].sum()) if d in axes else n for d, n in enumerate(shape)]))
    return left


def meet(
    target: float,
    cost: Cost,
    counts_at: Callable[[float], Counts],
    plan_of: Callable[[Counts], Plan],
    tolerance: float,
    measured: bool = False,
) -> Plan:
    """Find the plan whose cost is nearest to the target, by halving the interval of ratios in which it lies.

    Counted costs: the search ends between two neighbouring plans that differ in many groups at once; from the larger
    to the smaller of them the groups are then switched one after the other. Measured costs take time and have noise
    above such differences, so a few halvings have to do; one of them may take a wrong turn, and no later one comes
    back, so the nearest of all that was measured counts.

    Args:
        target: a share of the whole network's cost up to 1, or the cost itself above 1.
        cost: of a plan; smaller with every unit that goes.
        counts_at: how many units of each group go at a ratio.
        plan_of: which ones.
        tolerance: how far off the result may be, as a share of the target.
        measured: the cost is a measurement.
    """
    whole = cost({})
    if isinstance(target, bool) or not isinstance(target, int | float) or not target > 0:
        raise TargetError(f"target is {target!r}; expected a share of the network (0 < share <= 1) or a number above 1")
    goal = target * whole if target <= 1 else float(target)
    if goal > whole:
        raise TargetError(f"target {goal:,.0f} is more than the {whole:,.0f} that the network has now")
    low, high, tried = 0.0, 1.0 - 1e-9, []
    for _ in range(MEASUREMENTS if measured else HALVINGS):
        middle = (low + high) / 2
        tried.append(plan_of(counts_at(middle)))
        low, high = (middle, high) if cost(tried[-1]) > goal else (low, middle)
    large, small = counts_at(low), counts_at(high)
    names = [] if measured else list(large)
    mixtures = [{n: (small if i < k else large)[n] for i, n in enumerate(names)} for k in range(1, len(names))]
    mixed = [plan_of(counts) for counts in (*mixtures, large, small)]
    best = min((*mixed, *tried), key=lambda plan: abs(cost(plan) - goal))
    reached = cost(best)
    if abs(reached - goal) > tolerance * goal:
        raise TargetError(
            f"target {goal:,.4g} cannot be met within {tolerance:.0%}: the nearest is {reached:,.4g}"
            " (try scope='all', a smaller min_width or round_to=1)"
        )
    return best
