"""Zeros instead of missing channels, to compare with: unstructured pruning by size."""

import copy

import torch
from torch import nn


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    """The weights of all convolutions and linear layers; a shared one is there once."""
    layers = [m for m in model.modules() if isinstance(m, nn.modules.conv._ConvNd | nn.Linear)]
    return list({id(layer.weight): layer.weight for layer in layers}.values())


@torch.no_grad()
def zero_small_weights(model: nn.Module, share: float) -> nn.Module:
    """A copy in which this share of all these weights is zero: the smallest; of equal ones those
    that come first.
    """
    sparse = copy.deepcopy(model)
    weights = weights_of(sparse)
    left = torch.cat([weight.abs().flatten() for weight in weights])
    left[left.argsort(stable=True)[: int(len(left) * share + 1e-9)]] = 0
    for weight, kept in zip(
        weights, left.split([weight.numel() for weight in weights]), strict=True
    ):
        weight.mul_(kept.view_as(weight) != 0)
    return sparse
