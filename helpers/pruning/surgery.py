"""Take channels out: a new network with smaller tensors, in which nothing is left of what was cut."""

from typing import Any

import numpy as np
import torch
from torch import nn

from helpers.pruning.groups import ChannelGroups
from helpers.pruning.reader import with_tensors

Plan = dict[str, np.ndarray]  # name of a group -> the numbers of its units that go
Changes = dict[str, dict[str, Any]]  # module -> attribute -> new value


def kept_atoms(groups: ChannelGroups, plan: Plan) -> np.ndarray:
    """For each atom whether it stays."""
    keep = np.ones(len(groups.roots), dtype=bool)
    for name, units in plan.items():
        keep[groups[name].units[units]] = False
    return keep[groups.roots]


def cut(model: nn.Module, groups: ChannelGroups, plan: Plan) -> tuple[nn.Module, Changes]:
    """A copy of the network without the planned channels, and the attributes that changed on the way.

    Every tensor of the copy is new, and is sliced once, from the original. (Writing the layers of a chain one after
    the other and reading them again is how a depthwise weight gets cut twice.)

    Args:
        model: the network; left as it is.
        groups: what `channel_groups` found in it.
        plan: which units of which prunable groups go; at least one of each group stays.

    Returns:
        The small network, and {module: {attribute: new value}}.
    """
    keep = kept_atoms(groups, plan)

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
