"""A constant added to the output of a convolution goes into its bias.

    (W x + b) + z  ->  b' = b + z        (W x + b) - z  ->  b' = b - z        z - (W x + b)  ->  W' = -W, b' = z - b

Folds when z is a number or differs along the channels only, and neither shape nor dtype of the sum depend on it.
"""

import operator
from typing import Any

from torch import nn

from helpers.graphs.match import Match
from helpers.graphs.patterns import Constant, Op
from helpers.passes import registry
from helpers.passes.affine import LAYERS, AffineFold, PerChannel, per_channel


def sums_with(layers: tuple[Any, ...]) -> dict[Op, tuple[int, int]]:
    """For each way to write a sum: the pattern, and the signs of the layer's output and of z."""
    layer, z = Op(layers, name="layer"), Constant("z")
    return {
        Op([operator.add], (layer, z), commutative=True): (1, 1),
        Op([operator.sub], (layer, z)): (1, -1),
        Op([operator.sub], (z, layer)): (-1, 1),
    }


class AddFold(AffineFold):
    """Folds the addition of a constant into the layer before it."""

    signs: dict[Op, tuple[int, int]]

    def affine(self, match: Match, layer: nn.Module) -> tuple[PerChannel, PerChannel]:
        """The signs as factor, and the constant as summand."""
        factor, sign = next(signs for pattern, signs in self.signs.items() if pattern in match.nodes)
        return factor, sign * per_channel(match.constant("z"), match["layer"], layer)


@registry.register
class ConvAddFolding(AddFold):
    """b' = b + z, when z is a constant per channel."""

    name = "conv_add_folding"
    signs = sums_with(LAYERS)
    patterns = tuple(signs)
