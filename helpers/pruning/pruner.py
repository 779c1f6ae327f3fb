"""`prune`: groups, importance, allocation and surgery in one call."""

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from helpers import models
from helpers.pruning.allocation import (
    checked_multiple,
    checked_ratio,
    cost_of,
    cut_of,
    fit_to_target,
    rank_units,
)
from helpers.pruning.discovery import channel_groups, first_misfit
from helpers.pruning.groups import ChannelGroups, Group, PruneError
from helpers.pruning.importance import Batches, scores
from helpers.pruning.reader import on_meta
from helpers.pruning.surgery import Cut, cut


def prune(
    model: nn.Module,
    example_inputs: torch.Tensor | tuple,
    ratio: float | None = None,
    importance: str = "l1",
    allocation: str | Mapping[str, float] = "uniform",
    scope: str = "hidden",
    *,
    target_params: float | None = None,
    target_macs: float | None = None,
    tolerance: float = 0.01,
    round_to: int = 1,
    batches: Batches = (),
    seed: int = 0,
) -> nn.Module:
    """Build a smaller network from one in eval mode, which stays as it is.

    Args:
        example_inputs: a tensor or a tuple of them, as forward takes them.
        ratio: the share of channels taken from each group, 0 <= ratio < 1, by default 0.5; at 0 the
            result is a copy.
        importance: l1, l2, bn_scale, geometric_median, random or taylor.
        allocation: "uniform"; "global" (one ranking over all groups, of scores divided by their
            group's mean unless taylor or random gave them); or a ratio for each group, by name,
            instead of `ratio` and of a target.
        scope: "hidden" cuts only channels inside a block, "all" also those outside the blocks and
            those that several blocks share.
        target_params, target_macs: what the whole network keeps, instead of `ratio`: a share (up to
            1) or a number (above 1) of its parameters, or of its multiply-adds for one image; the
            first axis of the inputs counts images. At most one of the two.
        tolerance: how far from the target the result may be.
        round_to: what a group keeps is a multiple of this.
        batches: [(normalised inputs, labels), ...] for taylor.
        seed: of importance="random".

    Returns:
        A network of the same class with smaller layers, in eval mode.

    Example:
        >>> small = prune(models.mobilenet_v2().eval(), torch.zeros(1, 3, 32, 32), ratio=0.5)
        >>> sum(p.numel() for p in small.parameters())
        1333226
    """
    targets = {"params": target_params, "macs": target_macs}
    targets = {what: target for what, target in targets.items() if target is not None}
    if len(targets) > 1:
        raise PruneError("give one target, not target_params and target_macs")
    if isinstance(allocation, Mapping) and (targets or ratio is not None):
        raise PruneError(
            "allocation gives each group its ratio: leave out ratio, target_params and target_macs"
        )
    if targets and ratio is not None:
        raise PruneError("a target says how much stays: leave out ratio")
    ratio = checked_ratio(0.5 if ratio is None else ratio)
    round_to = checked_multiple(round_to)
    groups = channel_groups(model, example_inputs)
    chosen = in_scope(groups, scope)
    if round_to >= (largest := max(group.size for group in chosen)):
        raise PruneError(f"round_to={round_to}: no group has more than {largest} units to keep")
    found = scores(model, groups, chosen, importance, batches, seed)
    ranking, first_n = rank_units(chosen, found, importance, allocation, ratio, round_to)
    if targets:
        what, target = targets.popitem()
        cost = cost_of(model, example_inputs, groups, what)

        @functools.cache
        def cost_without(count: int) -> int:
            return cost(cut_of(ranking[:count], chosen, round_to))

        advice = "more tolerance"
        if round_to > 1:
            advice = f"round_to=1 or {advice}"
        if scope == "hidden":
            advice = f"scope='all' or {advice}"
        first_n = fit_to_target(what, target, len(ranking), cost_without, tolerance, advice)
    removed = cut_of(ranking[:first_n], chosen, round_to)
    return remove_channels(model, groups, removed, example_inputs)


def in_scope(groups: ChannelGroups, scope: str) -> list[Group]:
    """The prunable groups of a scope, which has to hold some."""
    chosen = groups.prunable(scope)
    if not chosen:
        reasons = [f"{g.name}: {g.reason or 'outside the scope'}" for g in list(groups)[:3]]
        why = "; ".join(reasons) or "no layer makes channels"
        see = "see channel_groups(...).table()"
        raise PruneError(f"nothing can be pruned with scope={scope!r} ({why}); {see}")
    return chosen


def remove_channels(
    model: nn.Module, groups: ChannelGroups, removed: Cut, example_inputs: Any
) -> nn.Module:
    """Cut, see that forward does the same as before, and note how the structure can be built again.

    Nothing is noted if a parameter was cut whose layer has no sizes to note: a warning says so.
    """
    small, changes = cut(model, groups, removed)
    if misfit := first_misfit(groups, removed, on_meta(small), example_inputs):
        advice = (
            "choose another ratio or round_to, or leave the layers before it whole by"
            " allocation={group: ratio}"
        )
        raise PruneError(f"{misfit[1]}, which depends on how many are left; {advice}")
    bare = [path or type(small).__name__ for path, changed in changes.items() if not changed]
    if bare and models.spec_of(small):
        del small.spec
        warnings.warn(
            f"{bare[0]} holds a parameter that was cut, and no size that a file can note: to save"
            " this network, write a function that builds it in these sizes, and give its name to"
            " models.declare_builder",
            stacklevel=3,
        )
    elif changes:
        models.record(small, source=model, step="resize", changes=changes)
    return small
