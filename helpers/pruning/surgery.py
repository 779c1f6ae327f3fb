"""Take channels out: a new network with smaller tensors, without a trace of what was cut."""

from typing import Any

import numpy as np
import torch
from torch import nn

from helpers.pruning.groups import ChannelGroups
from helpers.pruning.reader import on_new_tensors

Cut = dict[str, np.ndarray]  # name of a group -> the numbers of its units that go
Changes = dict[str, dict[str, Any]]  # module -> attribute -> new value


def kept_labels(groups: ChannelGroups, removed: Cut) -> np.ndarray:
    """For each label whether it stays."""
    keep = np.ones(len(groups.unit_of), dtype=bool)
    for name, numbers in removed.items():
        keep[groups[name].units[numbers]] = False
    return keep[groups.unit_of]


def cut(
    model: nn.Module, groups: ChannelGroups, removed: Cut, device: str | None = None
) -> tuple[nn.Module, Changes]:
    """A copy of the network without some channels, and the attributes that changed on the way.

    Every tensor of the copy is new, and is sliced once, from the original: where layers are cut one
    after the other, a depthwise weight is easily cut twice: with its inputs and its outputs.

    Args:
        model: left as it is.
        removed: which units of which prunable groups go; at least one of each group stays.
        device: of the copy's tensors, if not that of the model's; on "meta" nothing is copied.

    Returns:
        The small network, and {module: {attribute: new value}} for each that holds a smaller
        tensor.
    """
    keep = kept_labels(groups, removed)
    shapes = groups.labelling.shapes

    def left_of(name: str, tensor: torch.Tensor) -> torch.Tensor:
        kept = tensor.detach().to(device)
        for dim, units in sorted(groups.axes.get(name, {}).items()):
            stays = np.flatnonzero(keep[units])
            if len(stays) < len(units):
                kept = kept.index_select(dim, torch.from_numpy(stays).to(kept.device))
        return kept.clone() if kept.shape == tensor.shape else kept

    small = on_new_tensors(model, left_of)
    changes = {}
    for path, layer in small.named_modules():  # each once, though it may have two names
        tensors = [*layer.named_parameters(path, False), *layer.named_buffers(path, False)]
        if any(tensor.shape != shapes[name] for name, tensor in tensors):
            sizes = sizes_of(layer, path in groups.labelling.loses_whole_groups)
            changed = {name: n for name, n in sizes.items() if n != getattr(layer, name)}
            vars(layer).update(changed)  # what setattr does with a number, at a tenth of the time
            changes[path] = changed
    return small, changes


def sizes_of(layer: nn.Module, loses_whole_groups: bool) -> dict[str, int]:
    """The attributes of a layer that its tensors decide."""
    weight = getattr(layer, "weight", None)
    if isinstance(layer, nn.modules.batchnorm._NormBase):
        return {"num_features": len(weight if layer.running_mean is None else layer.running_mean)}
    if isinstance(layer, nn.modules.conv._ConvNd):
        outputs, inputs = weight.shape[:2]
        if layer.transposed:
            inputs, outputs = weight.shape[:2]
        groups = layer.groups
        if loses_whole_groups:
            groups = groups * outputs // layer.out_channels
        return {"out_channels": outputs, "in_channels": inputs * groups, "groups": groups}
    if isinstance(layer, nn.Linear):
        return {"out_features": weight.shape[0], "in_features": weight.shape[1]}
    return {"num_parameters": len(weight)} if isinstance(layer, nn.PReLU) else {}
