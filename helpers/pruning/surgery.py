"""Take channels out: a new network with smaller tensors, in which nothing is left of what was cut."""

from typing import Any

import numpy as np
import torch
from torch import nn

from helpers.pruning.groups import ChannelGroups, Group
from helpers.pruning.reader import with_tensors

Plan = dict[str, np.ndarray]  # name of a group -> the numbers of its units that go
Changes = dict[str, dict[str, Any]]  # module -> attribute -> new value


class PlanError(ValueError):
    """A plan asks for something that cannot be cut."""


def kept_atoms(groups: ChannelGroups, plan: Plan) -> np.ndarray:
    """For each atom whether it stays. Refuses a plan that names what cannot be cut, before anything is touched."""
    keep = np.ones(len(groups.roots), dtype=bool)
    for name, units in plan.items():
        group = groups[name]
        keep[group.units[checked_units(group, units)]] = False
    return keep[groups.roots]


def checked_units(group: Group, units: Any) -> np.ndarray:
    """The numbers of the units that go, each once; refuses those that the group does not have or cannot spare."""
    try:
        found = np.asarray(units)
    except ValueError:  # lists of different lengths
        found = np.array(units, dtype=object)
    # Of anything else NumPy would make numbers, too, and it means something else: a mask.
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise PlanError(
            f"group {group.name}: expected a list of unit numbers, got {found.dtype} of shape {found.shape};"
            " for a mask of the units that go, give np.flatnonzero(mask)"
        )
    units = np.unique(found.astype(np.int64))
    if len(units) and group.reason:
        raise PlanError(f"group {group.name} cannot be pruned: {group.reason}")
    if len(units) and (units[0] < 0 or units[-1] >= group.size):
        raise PlanError(
            f"group {group.name}: it has units 0 to {group.size - 1}, asked to cut {units[0]} to {units[-1]}"
        )
    if len(units) >= group.size:
        raise PlanError(
            f"group {group.name}: cutting {len(units)} of {group.size} units would empty it; keep at least one"
        )
    return units


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
    keep, missing = kept_atoms(groups, plan), dict.fromkeys(groups.axes)

    def left_of(name: str, tensor: torch.Tensor) -> torch.Tensor:
        missing.pop(name, None)
        check_shape(groups, name, tuple(tensor.shape))
        left = whole = tensor.detach()
        for dim, labels in sorted(groups.axes.get(name, {}).items()):  # rows first: they lie together
            if not keep[labels].all():
                left = left.index_select(dim, torch.from_numpy(np.flatnonzero(keep[labels])).to(left.device))
        return whole.clone() if left is whole else left

    small = with_tensors(model, left_of)
    for name in missing:
        check_shape(groups, name, None)
    return small, resize(small, groups, keep)


def check_shape(groups: ChannelGroups, name: str, shape: tuple[int, ...] | None) -> None:
    """Refuse a network that lacks a tensor in which the groups have channels, or has it in another shape."""
    if name in groups.axes and shape != (before := groups.labelling.shapes[name]):
        found = "is missing" if shape is None else f"has the shape {shape}"
        raise PlanError(
            f"these groups were found in another network: {name} had the shape {before} there and {found} here;"
            " call channel_groups for this one"
        )


def resize(small: nn.Module, groups: ChannelGroups, keep: np.ndarray) -> Changes:
    """Let the attributes of the layers follow."""
    changes: Changes = {}
    for (path, attribute), (labels, divisor) in groups.sizes.items():
        if isinstance(labels, np.ndarray) and not keep[labels].all():
            changes.setdefault(path, {})[attribute] = int(keep[labels].sum()) // divisor
    for path, attributes in changes.items():
        vars(small.get_submodule(path)).update(attributes)  # what setattr does with a number, at a tenth of the time
    return changes
