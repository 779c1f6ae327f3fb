"""Take channels out: a new network with smaller tensors, in which nothing is left of what was cut."""

from types import EllipsisType
from typing import Any

import numpy as np
import torch
from torch import nn

from helpers.pruning.atoms import Labels
from helpers.pruning.groups import ChannelGroups, Group
from helpers.pruning.reader import stored_tensors, with_tensors

Plan = dict[str, np.ndarray]  # name of a group -> the numbers of its units that go
Indices = dict[int, torch.Tensor]  # axis -> what stays of it
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
    units = np.unique(unit_numbers(group, units))
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


def unit_numbers(group: Group, units: Any) -> np.ndarray:
    """Whole numbers in a row. Anything else that NumPy would make such numbers of means something else: a mask."""
    try:
        found = np.asarray(units)
    except ValueError:  # lists of different lengths
        found = np.array(units, dtype=object)
    if found.ndim == 1 and (found.dtype.kind in "iu" or not len(found)):
        return found.astype(np.int64, copy=False)
    raise PlanError(
        f"group {group.name}: expected a list of unit numbers, got {found.dtype} of shape {found.shape};"
        " for a mask of the units that go, give np.flatnonzero(mask)"
    )


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
    stays, missing = Stays(kept_atoms(groups, plan)), dict.fromkeys(groups.axes)

    def left_of(name: str, tensor: torch.Tensor) -> torch.Tensor:
        missing.pop(name, None)
        check_shape(groups, name, tuple(tensor.shape))
        return sliced(tensor.detach(), stays.indices(groups, name))

    small = with_tensors(model, left_of)
    for name in missing:
        check_shape(groups, name, None)
    return small, resize(small, groups, stays)


def check_shape(groups: ChannelGroups, name: str, shape: tuple[int, ...] | None) -> None:
    """Refuse a network that lacks a tensor in which the groups have channels, or has it in another shape."""
    if name in groups.axes and shape != (before := groups.labelling.shapes[name]):
        found = "is missing" if shape is None else f"has the shape {shape}"
        raise PlanError(
            f"these groups were found in another network: {name} had the shape {before} there and {found} here;"
            " call channel_groups for this one"
        )


def shrink(root: nn.Module, groups: ChannelGroups, stays: "Stays") -> None:
    """The same in place, for a network without content: its tensors get the sizes that would be left."""
    for name, tensor in stored_tensors(root).items():
        if indices := stays.indices(groups, name):
            shape = [indices[d].numel() if d in indices else n for d, n in enumerate(tensor.shape)]
            tensor.data = torch.empty(shape, dtype=tensor.dtype, device="meta")
    resize(root, groups, stays)


def resize(small: nn.Module, groups: ChannelGroups, stays: "Stays") -> Changes:
    """Let the attributes of the layers follow."""
    changes: Changes = {}
    for (path, attribute), (labels, divisor) in groups.sizes.items():
        if (left := stays(labels)) is not None:
            changes.setdefault(path, {})[attribute] = left.numel() // divisor
    for path, attributes in changes.items():
        vars(small.get_submodule(path)).update(attributes)  # what setattr does with a number, at a tenth of the time
    return changes


class Stays:
    """The indices of an axis that stay, None if all do. Axes that share their labels are looked at once."""

    def __init__(self, keep: np.ndarray) -> None:
        self.keep = keep
        self.known: dict[int, torch.Tensor | None] = {}

    def __call__(self, labels: Labels | EllipsisType | None) -> torch.Tensor | None:
        """By the identity of the labels, which the groups keep alive."""
        if id(labels) not in self.known:
            stays = self.keep[labels] if isinstance(labels, np.ndarray) else np.True_
            self.known[id(labels)] = None if stays.all() else torch.from_numpy(np.flatnonzero(stays))
        return self.known[id(labels)]

    def indices(self, groups: ChannelGroups, name: str) -> Indices:
        """What stays of a tensor, for every axis that loses something."""
        axes = {dim: self(labels) for dim, labels in groups.axes.get(name, {}).items()}
        return {dim: index for dim, index in axes.items() if index is not None}


def sliced(tensor: torch.Tensor, indices: Indices) -> torch.Tensor:
    """The kept indices of every axis, in memory of their own."""
    for dim, index in sorted(indices.items()):  # rows first: they lie together, so fewer bytes are gathered afterwards
        tensor = tensor.index_select(dim, index.to(tensor.device))
    return tensor if indices else tensor.clone()
