"""Unstructured magnitude pruning, as the comparison: many zeros, and nothing that is smaller or faster for it."""

import copy
import tempfile
import zlib
from pathlib import Path

import torch
from torch import nn

from helpers import models
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


def share_of_zeros(model: nn.Module) -> float:
    """How many of the weights of all convolutions and linear layers are zero."""
    weights = [m.weight for m in model.modules() if isinstance(m, WEIGHTED)]
    return 1 - sum(int(w.count_nonzero()) for w in weights) / sum(w.numel() for w in weights)


def file_sizes(model: nn.Module) -> tuple[int, int]:
    """Bytes of the file that `models.save` writes, and of the same after entropy coding (deflate)."""
    with tempfile.TemporaryDirectory() as folder:
        stored = models.save(model, Path(folder) / "model.safetensors").read_bytes()
    return len(stored), len(zlib.compress(stored, level=6))
