"""A constant factor on the output of a convolution goes into its weight and bias.

    (W x + b) z  ->  W' = z W, b' = z b          (W x + b) / z  ->  W' = W / z, b' = b / z

Folds when z is a number or differs along the channels only, and neither shape nor dtype of the product depend on it.
z / (W x + b) is no affine map, so it is declined.
"""

import operator
from typing import Any

import torch
from torch import nn

from helpers.graphs.match import Match
from helpers.graphs.patterns import Constant, Op
from helpers.passes import registry
from helpers.passes.affine import LAYERS, AffineFold, MustNotFold, PerChannel, per_channel


def products_with(layers: tuple[Any, ...]) -> tuple[Op, ...]:
    """The ways to write a product or a quotient."""
    layer, z = Op(layers, name="layer"), Constant("z")
    return (
        Op([operator.mul], (layer, z), commutative=True, name="product"),
        Op([operator.truediv], (layer, z), name="quotient"),
        Op([operator.truediv], (z, layer), name="reciprocal"),
    )


class MulFold(AffineFold):
    """Folds the multiplication by a constant into the layer before it."""

    def affine(self, match: Match, layer: nn.Module) -> tuple[PerChannel, PerChannel]:
        """The constant as factor."""
        kind = next(part.name for part, node in match.nodes.items() if node is match.anchor)
        if kind == "reciprocal":
            raise MustNotFold(f"dividing by {match['layer']} is not an affine map of it")
        z = per_channel(match.constant("z"), match["layer"], layer)
        wide = torch.complex128 if isinstance(z, torch.Tensor) and z.is_complex() else torch.float64
        z = torch.as_tensor(z, dtype=wide)
        return (1 / z if kind == "quotient" else z), 0.0


@registry.register
class ConvMulFolding(MulFold):
    """W' = z W, b' = z b, when z is a constant per channel."""

    name = "conv_mul_folding"
    patterns = products_with(LAYERS)
