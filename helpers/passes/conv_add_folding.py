"""A constant added to the output of a convolution, or multiplied with it, goes into its weight and bias.

    (W x + b) + z  ->  b' = b + z        (W x + b) - z  ->  b' = b - z        z - (W x + b)  ->  W' = -W, b' = z - b
    (W x + b) z    ->  W' = z W, b' = z b                (W x + b) / z  ->  W' = W / z, b' = b / z

Folds when z is a number or differs along the channels only, and neither shape nor dtype of the result depend on it.
"""

import operator
from typing import ClassVar

from torch import nn

from helpers.graphs.matching import Match
from helpers.graphs.patterns import Constant, Op
from helpers.passes import registry
from helpers.passes.folding import CONVOLUTIONS, Fold, MustNotFold, PerChannel, Rules, with_constant


def sums_after(layers: tuple[type[nn.Module], ...]) -> Rules:
    """y + z, y - z, z - y for the output y of a layer."""
    y, z = Op(layers, name="layer"), Constant("z")
    return {
        Op([operator.add], (y, z), commutative=True): with_constant(lambda z: (1, z)),
        Op([operator.sub], (y, z)): with_constant(lambda z: (1, -z)),
        Op([operator.sub], (z, y)): with_constant(lambda z: (-1, z)),
    }


def products_after(layers: tuple[type[nn.Module], ...]) -> Rules:
    """y * z, y / z; z / y is declined."""
    y, z = Op(layers, name="layer"), Constant("z")
    return {
        Op([operator.mul], (y, z), commutative=True): with_constant(lambda z: (z, 0.0)),
        Op([operator.truediv], (y, z)): with_constant(lambda z: (1 / z, 0.0)),
        Op([operator.truediv], (z, y)): not_affine,
    }


def not_affine(match: Match, layer: nn.Module) -> tuple[PerChannel, PerChannel]:
    """z / (W x + b)."""
    raise MustNotFold(f"dividing by {match['layer']} is not an affine map of it")


@registry.register
class ConvAddFolding(Fold):
    """b' = b + z, when z is a constant per channel."""

    name = "conv_add_folding"
    rules: ClassVar[Rules] = sums_after(CONVOLUTIONS)


@registry.register
class ConvMulFolding(Fold):
    """W' = z W, b' = z b, when z is a constant per channel."""

    name = "conv_mul_folding"
    rules: ClassVar[Rules] = products_after(CONVOLUTIONS)
