"""Take channels out: a new network with smaller tensors, in which nothing is left of what was cut."""

from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import nn

from helpers.pruning.groups import ChannelGroups, Group, PruneError
from helpers.pruning.reader import stored_tensors, with_tensors

Plan = dict[str, np.ndarray]  # name of a group -> the numbers of its units that go
Changes = dict[str, dict[str, Any]]  # module -> attribute -> new value


def kept_atoms(groups: ChannelGroups, plan: Plan) -> np.ndarray:
    """For each atom whether it stays. Refuses a plan that names what cannot be cut, before anything is touched."""
    keep = np.ones(len(groups.roots), dtype=bool)
    for name, units in plan.items():
        group = groups[name]
        keep[group.units[checked_units(group, units)]] = False
    return keep[groups.roots]


def checked_units(group: Group, units: Any) -> np.ndarray:
    """The numbers of the units that go, each once; refuses those that the group does not have or cannot spare."""
    found = units.tolist() if hasattr(units, "tolist") else [*units]
    if not all(issubclass(kind, Integral) and kind is not bool for kind in set(map(type, found))):  # e.g. a mask
        raise PruneError(
            f"group {group.name}: expected a list of unit numbers, got {found[:3]}...;"
            " for a mask of the units that go, give np.flatnonzero(mask)"
        )
    units = np.unique(np.array(found, dtype=np.int64))
    if len(units) and group.reason:
        raise PruneError(f"group {group.name} cannot be pruned: {group.reason}")
    if len(units) and (units[0] < 0 or units[-1] >= group.size):
        wrong = f"it has units 0 to {group.size - 1}, asked to cut {units[0]} to {units[-1]}"
    elif len(units) >= group.size:
        wrong = f"cutting {len(units)} of {group.size} units would empty it; keep at least one"
    else:
        return units
    raise PruneError(f"group {group.name}: {wrong}")


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
    keep, found = kept_atoms(groups, plan), stored_tensors(model)
    for name in groups.axes:
        before, shape = groups.labelling.shapes[name], tuple(found[name].shape) if name in found else None
        if shape != before:
            raise PruneError(
                f"these groups were found in another network: {name} had the shape {before} there and"
                f" {f'has the shape {shape}' if name in found else 'is missing'} here; call channel_groups for this one"
            )

    def left_of(name: str, tensor: torch.Tensor) -> torch.Tensor:
        left = whole = tensor.detach()
        for dim, labels in sorted(groups.axes.get(name, {}).items()):  # rows first: they lie together
            if not keep[labels].all():
                left = left.index_select(dim, torch.from_numpy(np.flatnonzero(keep[labels])).to(left.device))
        return whole.clone() if left is whole else left

    small, changes = with_tensors(model, left_of), {}
    for (path, attribute), (labels, divisor) in groups.labelling.sizes.items():
        if not keep[labels].all():
            changes.setdefault(path, {})[attribute] = int(keep[labels].sum()) // divisor
    for path, attributes in changes.items():
        vars(small.get_submodule(path)).update(attributes)  # what setattr does with a number, at a tenth of the time
    return small, changes
