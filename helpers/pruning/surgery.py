"""Take channels out: a new network with smaller tensors, in which nothing is left of what was cut."""

from typing import Any

import numpy as np
import torch
from torch import nn

from helpers.passes.copying import structural_copy
from helpers.pruning.groups import ChannelGroups

Plan = dict[str, np.ndarray]  # name of a group -> the numbers of its units that go
Changes = dict[str, dict[str, Any]]  # module -> attribute -> new value


class PlanError(ValueError):
    """A plan asks for something that cannot be cut."""


def kept_atoms(groups: ChannelGroups, plan: Plan) -> np.ndarray:
    """For each atom whether it stays. Refuses a plan that names what cannot be cut, before anything is touched."""
    keep = np.ones(len(groups.roots), dtype=bool)
    for name, units in plan.items():
        group = groups[name]
        units = np.unique(np.asarray(units, dtype=np.int64))
        if len(units) and group.reason:
            raise PlanError(f"group {name} cannot be pruned: {group.reason}")
        if len(units) >= group.size:
            raise PlanError(
                f"group {name}: cutting {len(units)} of {group.size} units would empty it; keep at least one"
            )
        if len(units) and (units[0] < 0 or units[-1] >= group.size):
            raise PlanError(f"group {name}: it has units 0 to {group.size - 1}, asked to cut {units[0]} to {units[-1]}")
        keep[group.units[units]] = False
    return keep[groups.roots]


def cut(model: nn.Module, groups: ChannelGroups, plan: Plan) -> tuple[nn.Module, Changes]:
    """A copy of the network without the planned channels, and the attributes that changed on the way.

    Every tensor of the copy is new, and is sliced once, from the original. (Writing the layers of a chain one after
    the other and reading them again is how a depthwise weight gets cut twice.)

    Args:
        model: the network; left as it is.
        groups: what `channel_groups` found in it.
        plan: which units of which groups go.

    Returns:
        The small network, and {module: {attribute: new value}}.
    """
    keep = kept_atoms(groups, plan)
    # The copy has what the memo holds in the place of the original, shared parameters included.
    memo: dict[int, Any] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        smaller = sliced(tensor.detach(), groups.axes.get(name, {}), keep)
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(smaller, tensor.requires_grad) if is_parameter else smaller
    small = structural_copy(model, memo)
    changes: Changes = {}
    for (path, attribute), (labels, divisor) in groups.sizes.items():
        left = int(keep[labels].sum())
        if left != len(labels):
            changes.setdefault(path, {})[attribute] = left // divisor
            setattr(small.get_submodule(path), attribute, left // divisor)
    return small, changes


def sliced(tensor: torch.Tensor, axes: dict[int, np.ndarray], keep: np.ndarray) -> torch.Tensor:
    """The kept indices of every axis, in memory of their own."""
    original = tensor
    for dim, labels in sorted(axes.items()):  # rows first: they lie together, so fewer bytes are gathered afterwards
        stays = keep[labels]
        if not stays.all():
            tensor = tensor.index_select(dim, torch.from_numpy(np.flatnonzero(stays)).to(tensor.device))
    return tensor.clone() if tensor is original else tensor
