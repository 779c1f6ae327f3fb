"""Unstructured magnitude pruning, as the comparison: many zeros, and nothing that is smaller or faster for it."""

import copy

import torch
from torch import nn

from helpers.pruning.allocation import AllocationError, checked_ratio, share

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED, nn.Linear)


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
