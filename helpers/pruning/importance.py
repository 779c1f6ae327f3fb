"""How much a channel matters: scores for the units of a group. The lowest go first.

A unit usually holds a filter in more than one layer (an expansion and the depthwise convolution after it, or every
layer that adds to a residual trunk). `aggregate="group"` sums over all of these; `"layer"` looks at the first alone.

    l1, l2             norm of the filter
    bn_scale           size of the BatchNorm scale gamma
    geometric_median   distance to all other filters: a filter in their midst is replaceable
    lamp               squared norm over the sum of the squared norms that are not smaller
    random             the control
    taylor             change of the loss, to first order, if the filter were zero (criteria.py)
    reconstruction     change of the next layer's output without the channel (criteria.py)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from helpers.pruning.groups import ChannelGroups, Group, Member
from helpers.pruning.stored import stored_tensors

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]
IN_CACHE = 1 << 16  # numbers that are small enough, in bytes, to stay in the cache of one core


class ImportanceError(ValueError):
    """A criterion is unknown, or cannot be applied here; says where and what to use instead."""


@dataclass(frozen=True)
class Setting:
    """All that a criterion may look at."""

    model: nn.Module
    groups: ChannelGroups
    aggregate: str = "group"
    batches: Batches = ()  # of (normalised inputs, labels)
    seed: int = 0

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The parameters by name."""
        return stored_tensors(self.model)

    @cached_property
    def rows(self) -> set[tuple[str, int]]:
        """The axis of each weight along which its filters lie."""
        return {(layer.weight, layer.out_dim) for layer in self.groups.layers}

    def weight(self, member: Member) -> torch.Tensor:
        """The tensor of a member with its channel axis first and the rest flattened: (C, everything else)."""
        tensor = self.tensors[member.tensor].detach().cpu().movedim(member.dim, 0)
        return tensor.reshape(len(tensor), -1)

    def producers(self, group: Group) -> list[Member]:
        """The weights that have one filter for each channel of the group, in the order in which they run."""
        found = [m for m in group.members if (m.tensor, m.dim) in self.rows]
        return found if self.aggregate == "group" else found[:1]


def per_unit(group: Group, member: Member, per_index: torch.Tensor) -> np.ndarray:
    """Sum a value of every index of an axis over the units of the group."""
    values = per_index.detach().double().cpu().numpy()[member.positions]
    return np.bincount(member.units, weights=values, minlength=group.size)


def absolute_sums(filters: torch.Tensor) -> torch.Tensor:
    """The sum of the absolute values of each row; `vector_norm` takes two to eight times as long.

    Some rows at a time: the absolute values of a whole weight would go through the machine's memory.
    """
    rows = max(1, IN_CACHE // max(1, filters.shape[1]))
    return torch.cat([some.abs().sum(1) for some in filters.split(rows)])


def l1(setting: Setting, group: Group) -> np.ndarray:
    """Sum of absolute weights of the unit's filters."""
    return sum(per_unit(group, m, absolute_sums(setting.weight(m))) for m in setting.producers(group))


def squared(setting: Setting, group: Group) -> np.ndarray:
    """Sum of squared weights of the unit's filters."""
    return sum(
        per_unit(group, m, setting.weight(m).square().sum(1, dtype=torch.float64)) for m in setting.producers(group)
    )


def l2(setting: Setting, group: Group) -> np.ndarray:
    """Euclidean norm of the unit's filters, taken as one long vector."""
    return np.sqrt(squared(setting, group))


def lamp(setting: Setting, group: Group) -> np.ndarray:
    """w_i^2 / sum of all w_j^2 >= w_i^2: the share of what is left when everything smaller has gone."""
    squares = squared(setting, group)
    left = (squares * (squares[:, None] <= squares)).sum(1)
    return np.divide(squares, left, out=np.zeros_like(squares), where=left > 0)


def bn_scale(setting: Setting, group: Group) -> np.ndarray:
    """Sum of |gamma| over the BatchNorms of the unit."""
    scales = {f"{path}.weight" for path, attribute in setting.groups.sizes if attribute == "num_features"}
    found = [m for m in group.members if m.tensor in scales]
    if not found:
        raise ImportanceError(f"group {group.name} has no BatchNorm scale; use importance='l1' for this network")
    found = found if setting.aggregate == "group" else found[:1]
    return sum(per_unit(group, m, setting.weight(m).abs().squeeze(1)) for m in found)


def geometric_median(setting: Setting, group: Group) -> np.ndarray:
    """Sum of the distances from a filter to all other filters of the group in the same layer."""
    total = np.zeros(group.size)
    for member in setting.producers(group):
        filters = setting.weight(member).double()[torch.from_numpy(member.positions)]
        distances = torch.cdist(filters, filters, compute_mode="donot_use_mm_for_euclid_dist").sum(1)
        total += np.bincount(member.units, weights=distances.numpy(), minlength=group.size)
    return total


def random(setting: Setting, group: Group) -> np.ndarray:
    """A number from the seed; every group has its own."""
    if setting.seed < 0:
        raise ImportanceError(f"seed is {setting.seed!r}; importance='random' needs a whole number of 0 or more")
    place = [g.name for g in setting.groups].index(group.name)
    return np.random.default_rng([setting.seed, place]).random(group.size)


@dataclass(frozen=True)
class Criterion:
    """A way to score units; `comparable` scores mean the same in every group, others are divided by their mean."""

    score: Callable[[Setting, Group], np.ndarray]
    comparable: bool = False
    needs_batches: bool = False
