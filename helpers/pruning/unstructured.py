"""Unstructured magnitude pruning, as the comparison: many zeros, and nothing that is smaller or faster for it."""

import copy
import io
import zlib

import torch
from torch import nn

from helpers.pruning.allocation import checked_ratio

WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def zero_small_weights(model: nn.Module, sparsity: float) -> nn.Module:
    """A copy in which the smallest weights of all convolutions and linear layers together are zero.

    Args:
        model: left as it is.
        sparsity: the share of these weights that become zero; ties go in the order of the layers.
    """
    checked_ratio(sparsity, "sparsity")
    sparse = copy.deepcopy(model)
    weights = list({id(m.weight): m.weight for m in sparse.modules() if isinstance(m, WEIGHTED)}.values())
    sizes = torch.cat([w.detach().abs().flatten() for w in weights])
    keep = torch.ones_like(sizes)
    keep[sizes.argsort(stable=True)[: int(len(sizes) * sparsity)]] = 0
    with torch.no_grad():
        for weight, mask in zip(weights, keep.split([w.numel() for w in weights]), strict=True):
            weight.mul_(mask.view_as(weight))
    return sparse


def file_sizes(model: nn.Module) -> tuple[int, int]:
    """Bytes of the stored tensors as they are, and after entropy coding (deflate)."""
    stored = io.BytesIO()
    torch.save(model.state_dict(), stored)
    return len(stored.getvalue()), len(zlib.compress(stored.getvalue(), level=6))
