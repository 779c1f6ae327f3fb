"""`prune`: groups, importance, allocation and surgery in one call. And zeros instead, for comparison."""

import copy
import functools
from collections.abc import Mapping

import torch
from torch import nn

from helpers import models
from helpers.pruning.allocation import (
    AllocationError,
    Counts,
    Limits,
    by_ratios,
    checked_ratio,
    choose,
    cost_of,
    global_ranking,
    meet,
    share,
)
from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import ChannelGroups, Group
from helpers.pruning.importance import Batches, Setting, scores
from helpers.pruning.reader import stored_tensors
from helpers.pruning.surgery import Plan, cut

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED, nn.Linear)
SCOPES = ("hidden", "all")


class PruneError(ValueError):
    """The arguments of `prune` do not fit together or with the network."""


def prune(
    model: nn.Module,
    example_inputs: torch.Tensor | tuple,
    ratio: float = 0.5,
    importance: str = "l1",
    allocation: str | Mapping[str, float] = "uniform",
    scope: str = "hidden",
    *,
    target_params: float | None = None,
    target_macs: float | None = None,
    tolerance: float = 0.01,
    min_width: int = 1,
    round_to: int = 1,
    aggregate: str = "group",
    batches: Batches = (),
    seed: int = 0,
) -> nn.Module:
    """Build a smaller network from one in eval mode, which stays as it is.

    Args:
        model: the network.
        example_inputs: a tensor or a tuple of them, as forward takes them.
        ratio: the share of channels taken from each group, 0 <= ratio < 1; at 0 the result is a plain copy.
        importance: l1, l2, bn_scale, geometric_median, random, taylor or reconstruction.
        allocation: "uniform"; "global" (one ranking over all groups); or a ratio for each group, by name.
        scope: "hidden" cuts only channels inside a block, "all" also the trunk that blocks add to.
        target_params, target_macs: instead of `ratio`: what the whole network keeps, as a share up to 1 or as a number
            above 1; at most one of them.
        tolerance: how far from the target the result may be.
        min_width: units that a group keeps at least.
        round_to: what a group keeps is a multiple of this.
        aggregate: "group" adds up all filters of a unit, "layer" takes those of the first layer alone.
        batches: [(normalised inputs, labels), ...] for taylor and reconstruction.
        seed: of importance="random".

    Returns:
        A network of the same class with smaller layers, in eval mode.

    Example:
        >>> small = prune(models.mobilenet_v2().eval(), torch.zeros(1, 3, 32, 32), ratio=0.5)
        >>> sum(p.numel() for p in small.parameters())
        1333226
    """
    targets = {k: target for k, target in (("params", target_params), ("macs", target_macs)) if target is not None}
    if len(targets) > 1:
        raise PruneError("give one target, not target_params and target_macs")
    ratio, limits = checked_ratio(ratio), Limits(min_width, round_to)
    groups = channel_groups(model, example_inputs)
    chosen = in_scope(groups, scope)
    if max(min_width, round_to) > (largest := max(group.size for group in chosen)):
        raise PruneError(f"min_width={min_width}, round_to={round_to}: no group has more than {largest} units to keep")
    found = scores(Setting(model, groups, aggregate, batches, seed), chosen, importance)
    if allocation not in ("uniform", "global") and not isinstance(allocation, Mapping):
        raise PruneError(f"unknown allocation {allocation!r}; choose 'uniform', 'global' or {{group: ratio}}")

    def counts_at(ratio: float) -> Counts:
        if allocation == "global":
            return global_ranking(chosen, found, importance, ratio, limits)
        uniform = {group.name: ratio for group in chosen}
        return by_ratios(chosen, uniform if allocation == "uniform" else allocation, limits)

    plan = choose(found, counts_at(ratio))
    for what, target in targets.items():
        plan = meet(target, cost_of(groups, what), counts_at, functools.partial(choose, found), tolerance)
    return without(model, groups, plan)


def in_scope(groups: ChannelGroups, scope: str) -> list[Group]:
    """The prunable groups of a scope, which has to hold some."""
    if scope not in SCOPES:
        raise PruneError(f"unknown scope {scope!r}; choose 'hidden' or 'all'")
    chosen = groups.prunable(scope)
    if not chosen:
        reasons = "; ".join(f"{g.name}: {g.reason or 'outside the scope'}" for g in list(groups)[:3])
        raise PruneError(f"nothing can be pruned with scope={scope!r} ({reasons}); see channel_groups(...).table()")
    return chosen


def without(model: nn.Module, groups: ChannelGroups, plan: Plan) -> nn.Module:
    """Carry a plan out, and note on the result how its structure can be built again.

    A bare parameter that was cut belongs to no layer whose sizes could be noted; such a network gets no specification,
    and `models.save` will say so.
    """
    small, changes = cut(model, groups, plan)
    before = groups.labelling.shapes
    shrunk = {name.rpartition(".")[0] for name, t in stored_tensors(small).items() if t.shape != before[name]}
    if shrunk <= changes.keys():
        return models.record(small, source=model, step="resize", changes=changes) if changes else small
    vars(small).pop("spec", None)
    return small


def zero_small_weights(model: nn.Module, sparsity: float) -> nn.Module:
    """A copy in which the smallest weights of all convolutions and linear layers together are zero.

    Args:
        model: left as it is.
        sparsity: the share of these weights that become zero; ties go in the order of the layers.
    """
    checked_ratio(sparsity, "sparsity")
    stored_weights(model)  # Refuses what cannot be copied, too.
    sparse = copy.deepcopy(model)
    weights = stored_weights(sparse)
    sizes = torch.cat([w.detach().abs().flatten() for w in weights])
    keep = torch.ones_like(sizes)
    keep[sizes.argsort(stable=True)[: share(len(sizes), sparsity)]] = 0
    with torch.no_grad():
        for weight, mask in zip(weights, keep.split([w.numel() for w in weights]), strict=True):
            weight.mul_(mask.view_as(weight))
    return sparse


def stored_weights(model: nn.Module) -> list[torch.Tensor]:
    """The weights of all convolutions and linear layers; one that two layers share is there once."""
    layers = {name: m for name, m in model.named_modules() if isinstance(m, WEIGHTED)}
    for name, layer in layers.items():
        if "weight" not in layer._parameters | layer._buffers:
            raise AllocationError(
                f"the weight of layer {name!r} is computed from others (as weight_norm does); store it with"
                " torch.nn.utils.parametrize.remove_parametrizations or torch.nn.utils.remove_weight_norm first"
            )
    if not layers:
        raise AllocationError(f"{type(model).__name__} has no convolution and no linear layer, so no weights to zero")
    return list({id(m.weight): m.weight for m in layers.values()}.values())
