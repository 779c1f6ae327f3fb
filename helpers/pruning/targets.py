"""Prune down to a number: parameters, multiply-adds or measured milliseconds."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn
from tqdm.auto import tqdm

from helpers import metrics
from helpers.pruning.allocation import Counts
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.reader import as_tuple
from helpers.pruning.stored import stored_tensors
from helpers.pruning.surgery import Plan, cut, kept_atoms

Cost = Callable[[Plan], float]
HALVINGS, LAST_RATIO = 40, 1.0 - 1e-9
# Many plans are measured roughly, and those that seem to meet the target thoroughly.
MEASUREMENTS, ROUGH_RUNS, THOROUGH_RUNS = 30, 15, 60
ROUGHNESS = 0.03  # what a rough reading may be off
# A gap between ratios is split where a straight line meets the goal, if that is not too near to an end.
SHARES = 0.2, 0.8


class TargetError(ValueError):
    """A target cannot be met; says what can."""


def parameter_cost(model: nn.Module, groups: ChannelGroups, example_inputs: Any) -> Cost:
    """Parameters that a plan leaves, counted without carrying it out."""
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return lambda plan: sum(elements(shapes, groups, kept_atoms(groups, plan)).values())


def mac_cost(model: nn.Module, groups: ChannelGroups, example_inputs: Any) -> Cost:
    """Multiply-adds of convolutions and linear layers that a plan leaves, for the batch of the example inputs."""
    weights = {layer.weight for layer in groups.layers}
    # A weight may be a buffer as well: a filter that is not learned.
    shapes = {name: tuple(tensor.shape) for name, tensor in stored_tensors(model).items() if name in weights}

    def cost(plan: Plan) -> float:
        left = elements(shapes, groups, kept_atoms(groups, plan))
        return sum(left[layer.weight] * layer.places for layer in groups.layers)

    return cost


def latency_costs(model: nn.Module, groups: ChannelGroups, example_inputs: Any) -> tuple[Cost, Cost]:
    """Median milliseconds of the network that a plan leaves, measured roughly and thoroughly; every plan once.

    Each is timed in turn with the whole network and counts as a share of it: a machine that is slower for a while is
    slower for both.
    """
    example, *more = as_tuple(example_inputs)
    if more:
        raise TargetError(f"target_latency_ms: only networks of one input are timed, and this one has {1 + len(more)}")
    whole_ms = metrics.latency(model, example, runs=THOROUGH_RUNS).median_ms

    def cost_by(runs: int) -> Cost:
        measured: dict[bytes, float] = {kept_atoms(groups, {}).tobytes(): whole_ms}

        def cost(plan: Plan) -> float:
            key = kept_atoms(groups, plan).tobytes()
            if key not in measured:
                small, _ = cut(model, groups, plan)
                whole, left = metrics.compare_latency({"whole": model, "small": small}, example, runs=runs).median_ms
                measured[key] = whole_ms * left / whole
            return measured[key]

        return cost

    return cost_by(ROUGH_RUNS), cost_by(THOROUGH_RUNS)


def elements(shapes: dict[str, tuple[int, ...]], groups: ChannelGroups, keep: np.ndarray) -> dict[str, int]:
    """How many elements of each tensor are left."""
    left = {}
    for name, shape in shapes.items():
        axes = groups.axes.get(name, {})
        left[name] = int(np.prod([int(keep[axes[d]].sum()) if d in axes else n for d, n in enumerate(shape)]))
    return left


def reach(name: str, target: float, network: tuple, search: tuple) -> Plan:
    """The plan that meets a target of params, macs or latency_ms.

    Args:
        name: of the target.
        target: a share or a number, see `meet`.
        network: model, groups and example inputs.
        search: the last three arguments of `meet`.
    """
    if name == "latency_ms":
        return meet_measured(target, *latency_costs(*network), *search)
    counted = {"params": parameter_cost, "macs": mac_cost}[name]
    return meet(target, counted(*network), *search)


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
    goal = checked_goal(target, cost({}), tolerance)
    low, high = 0.0, LAST_RATIO
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(plan_of(counts_at(middle))) > goal else (low, middle)
    large, small = counts_at(low), counts_at(high)
    names = list(large)
    mixtures = [{n: (small if i < k else large)[n] for i, n in enumerate(names)} for k in range(1, len(names))]
    best = min((plan_of(counts) for counts in (*mixtures, large, small)), key=lambda plan: abs(cost(plan) - goal))
    if off(cost(best), goal) > tolerance:
        raise out_of_reach(goal, cost(best), tolerance)
    return best


def meet_measured(
    target: float,
    rough: Cost,
    thorough: Cost,
    counts_at: Callable[[float], Counts],
    plan_of: Callable[[Counts], Plan],
    tolerance: float,
) -> Plan:
    """Find a plan whose measured cost meets the target; arguments as in `meet`.

    Halving an interval does not work here. A reading has noise, and a network with a few channels less may well be
    slower, because its widths are no multiples of eight any more: the search would end at such a step, above the target
    on one side of it and below on the other. So no part of the range is given up for good.
    """
    whole = rough({})
    goal = checked_goal(target, whole, tolerance)
    readings = {0.0: whole, 1.0: rough(plan_of(counts_at(LAST_RATIO)))}
    for _ in tqdm(range(MEASUREMENTS), desc="latency", leave=False):
        ratio = most_promising(readings, goal)
        plan = plan_of(counts_at(ratio))
        readings[ratio] = rough(plan)
        if off(readings[ratio], goal) <= tolerance + ROUGHNESS:
            readings[ratio] = thorough(plan)
        if off(readings[ratio], goal) <= tolerance:
            return plan
    raise out_of_reach(goal, min(readings.values(), key=lambda reading: off(reading, goal)), tolerance)


def most_promising(readings: dict[float, float], goal: float) -> float:
    """A ratio in the gap between measured ones that is wide, and whose ends were near the goal or on both its sides.

    The third power weighs nearness against width; of those tried on curves with steps and noise it needed the fewest
    measurements.
    """

    def promise(gap: tuple[float, float]) -> float:
        ends = sorted(readings[ratio] for ratio in gap)
        return (gap[1] - gap[0]) / (ROUGHNESS + off(float(np.clip(goal, *ends)), goal)) ** 3

    start, end = max(itertools.pairwise(sorted(readings)), key=promise)
    drop = readings[start] - readings[end]
    share = float(np.clip((readings[start] - goal) / drop, *SHARES)) if drop else 0.5
    return start + share * (end - start)


def checked_goal(target: float, whole: float, tolerance: float) -> float:
    """The cost to reach: a share of the whole network's cost up to 1, or the cost itself above 1."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise TargetError(f"tolerance is {tolerance!r}; expected a share of the target, 0 <= tolerance < 1")
    if isinstance(target, bool) or not isinstance(target, int | float) or not target > 0:
        raise TargetError(f"target is {target!r}; expected a share of the network (0 < share <= 1) or a number above 1")
    goal = target * whole if target <= 1 else float(target)
    if goal > whole:
        raise TargetError(f"target {goal:,.0f} is more than the {whole:,.0f} that the network has now")
    return goal


def off(cost: float, goal: float) -> float:
    """How far a cost is from the goal, as a share of it."""
    return abs(cost - goal) / goal


def out_of_reach(goal: float, nearest: float, tolerance: float) -> TargetError:
    """What to say of a goal that no plan meets."""
    return TargetError(
        f"target {goal:,.4g} cannot be met within {tolerance:.0%}: the nearest is {nearest:,.4g}"
        " (try scope='all', a smaller min_width or round_to=1)"
    )
