"""Means and covariances of a layer's input, seen as the layer sees it.

A convolution is a matrix product with the *columns* of its input: the patch under the kernel at every place of every
image, zeros of the padding included. All that the squared error of a layer's output depends on is in the first two
moments of these columns, so the images are needed once and never again.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from helpers.quantization.plan import Op
from helpers.quantization.walk import Batches

__all__ = ["Moments", "columns", "means", "moments", "rows"]

ENOUGH_PLACES = 1 << 14  # to know the second moments of a few inputs; of many inputs, PLACES_PER_INPUT for each
PLACES_PER_INPUT = 64


@dataclass(frozen=True)
class Moments:
    """Second central moments of the columns x of the float network and y of the quantized one.

    Attributes:
        exact: cov(x, x), one matrix per group of the convolution, (groups, size, size).
        cross: cov(x, y).
        rounded: cov(y, y).
    """

    exact: torch.Tensor
    cross: torch.Tensor
    rounded: torch.Tensor


def rows(op: Op, weight: torch.Tensor) -> torch.Tensor:
    """A weight as the matrix that multiplies the columns: (groups, outputs per group, size)."""
    groups = op.attributes.get("groups", 1)
    return weight.reshape(groups, weight.shape[0] // groups, -1)


def columns(op: Op, x: torch.Tensor) -> torch.Tensor:
    """The patches that a layer multiplies with its weights: (groups, size, places)."""
    if op.kind == "linear":
        return x.reshape(-1, x.shape[-1]).t().unsqueeze(0)
    groups = op.attributes["groups"]
    if tuple(op.weight.shape[2:]) != (1, 1) or op.attributes["padding"] != (0, 0):
        geometry = (op.attributes[name] for name in ("dilation", "padding", "stride"))
        x = F.unfold(x, op.weight.shape[2:], *geometry)
    elif op.attributes["stride"] != (1, 1):
        down, right = op.attributes["stride"]
        x = x[:, :, ::down, ::right]
    return x.flatten(2).transpose(0, 1).reshape(groups, x.shape[1] // groups, -1)


def means(op: Op, batches: Batches) -> torch.Tensor:
    """The mean column, (groups, size, 1). The patch of a sum is the sum of the patches, so images are added first."""
    patches = columns(op, sum(batch.sum(0, keepdim=True) for batch in batches))
    return patches.mean(2, keepdim=True) / sum(len(batch) for batch in batches)


def moments(op: Op, exact: Batches, rounded: Batches) -> Moments:
    """Second moments of a layer's input, from as many images as are enough.

    Args:
        op: the layer.
        exact: its input in the float network, in batches.
        rounded: its input in the quantized network, in the same batches.
    """
    size = op.weight[0].numel()
    enough = max(ENOUGH_PLACES, PLACES_PER_INPUT * size)
    products, x_sum, y_sum, places = [0, 0, 0], 0, 0, 0
    for one, other in zip(exact, rounded, strict=True):
        share = math.ceil((enough - places) / math.prod(op.shape[1:]))  # that many images have the places still missing
        x, y = columns(op, one[:share]), columns(op, other[:share])
        products = [
            total + (a @ b.mT).double() for total, (a, b) in zip(products, ((x, x), (x, y), (y, y)), strict=True)
        ]
        x_sum, y_sum = x_sum + x.double().sum(2, keepdim=True), y_sum + y.double().sum(2, keepdim=True)
        places += x.shape[2]
        if places >= enough:
            break
    means = ((x_sum, x_sum), (x_sum, y_sum), (y_sum, y_sum))
    return Moments(*((p - a @ b.mT / places).div(places).float() for p, (a, b) in zip(products, means, strict=True)))
