"""Take channels out: a new network with smaller tensors, in which nothing is left of what was cut."""

from typing import Any

import numpy as np
import torch
from torch import nn

from helpers.pruning.groups import ChannelGroups
from helpers.pruning.reader import on_new_tensors

Plan = dict[str, np.ndarray]  # name of a group -> the numbers of its units that go
Changes = dict[str, dict[str, Any]]  # module -> attribute -> new value


def kept_atoms(groups: ChannelGroups, plan: Plan) -> np.ndarray:
    """For each atom whether it stays."""
    keep = np.ones(len(groups.roots), dtype=bool)
    for name, units in plan.items():
        keep[groups[name].units[units]] = False
    return keep[groups.roots]


def cut(model: nn.Module, groups: ChannelGroups, plan: Plan) -> tuple[nn.Module, Changes]:
    """A copy of the network without the planned channels, and the attributes that changed on the
    way.

    Every tensor of the copy is new, and is sliced once, from the original. (Writing the layers of a
    chain one after the other and reading them again is how a depthwise weight gets cut twice.)

    Args:
        model: left as it is.
        plan: which units of which prunable groups go; at least one of each group stays.

    Returns:
        The small network, and {module: {attribute: new value}} for each that holds a smaller
        tensor.
    """
    keep = kept_atoms(groups, plan)

    def left_of(name: str, tensor: torch.Tensor) -> torch.Tensor:
        left = whole = tensor.detach()
        for dim, labels in sorted(
            groups.axes.get(name, {}).items()
        ):  # rows first: they lie together
            stays = np.flatnonzero(keep[labels])
            if len(stays) < len(labels):
                left = left.index_select(dim, torch.from_numpy(stays).to(left.device))
        return whole.clone() if left is whole else left

    small, changes, whole = on_new_tensors(model, left_of), {}, groups.labelling.shapes
    for path, layer in small.named_modules():  # each once, though it may have two names
        own = (*layer.named_parameters(path, False), *layer.named_buffers(path, False))
        if any(tensor.shape != whole[name] for name, tensor in own):
            sizes = sizes_of(layer, path in groups.labelling.whole)
            changes[path] = {
                name: size for name, size in sizes.items() if size != getattr(layer, name)
            }
            vars(layer).update(
                changes[path]
            )  # what setattr does with a number, at a tenth of the time
    return small, changes


def sizes_of(layer: nn.Module, whole: bool) -> dict[str, int]:
    """The attributes of a layer that its tensors decide; `whole` if it is a convolution that lost
    whole groups.
    """
    if isinstance(layer, nn.modules.batchnorm._NormBase):
        return {
            "num_features": len(layer.weight if layer.running_mean is None else layer.running_mean)
        }
    if isinstance(layer, nn.modules.conv._ConvNd):
        out, into = layer.weight.shape[:2][:: -1 if layer.transposed else 1]
        groups = layer.groups * out // layer.out_channels if whole else layer.groups
        return {"out_channels": out, "in_channels": into * groups, "groups": groups}
    if isinstance(layer, nn.Linear):
        return {"out_features": len(layer.weight), "in_features": layer.weight.shape[1]}
    return {"num_parameters": len(layer.weight)} if isinstance(layer, nn.PReLU) else {}
