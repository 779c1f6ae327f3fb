"""The recipe: everything that `quantize` lets one choose, in one small object that goes into the saved file."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.quantization.affine import QuantizationError, code_range

__all__ = ["CHOICES", "Recipe", "RecipeError"]

CHOICES = {
    "observer": ("minmax", "moving_average", "percentile", "mse", "entropy"),
    "weight_observer": ("minmax", "mse"),
    "weight_range": ("pairs", "full"),
    "residual": ("fused", "separate"),
    "unsupported": ("keep", "refuse"),
    "bias_correction": (None, "empirical", "analytic"),
    "rounding": ("nearest", "learned"),
}


class RecipeError(QuantizationError):
    """A recipe that asks for something that does not exist."""


@dataclass(frozen=True)
class Recipe:
    """How to quantize a network.

    Attributes:
        weight_bits: 2 to 8, for every layer that `layer_bits` does not name.
        layer_bits: bits of single layers, by name (mixed precision).
        activation_bits: 2 to 8; activations are unsigned codes with a zero point.
        per_channel: one weight scale per output channel instead of one per layer.
        observer: how the range of an activation follows from the calibration images.
        weight_observer: how the range of the weights follows from the weights.
        weight_range: "pairs" keeps the sum of two neighbouring weights within what int8 instructions without
            VNNI can add exactly (see `weights.py`); "full" uses every code.
        residual: "fused" adds the residual before the one rounding; "separate" rounds the convolution first.
        unsupported: "keep" leaves a layer that has no integer form in float and lists it; "refuse" raises.
        equalize, absorb_bias, bias_correction, rounding: the repairs, see `repairs.py`.

    Example:
        >>> Recipe(weight_bits=4, layer_bits={"classifier.1": 8}).bits_of("classifier.1")
        8
    """

    weight_bits: int = 8
    layer_bits: Mapping[str, int] = field(default_factory=dict)
    activation_bits: int = 8
    per_channel: bool = True
    observer: str = "mse"
    weight_observer: str = "minmax"
    weight_range: str = "pairs"
    residual: str = "fused"
    unsupported: str = "keep"
    equalize: bool = False
    absorb_bias: bool = False
    bias_correction: str | None = None
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        for bits in (self.weight_bits, self.activation_bits, *self.layer_bits.values()):
            code_range(bits, signed=True)
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise RecipeError(f"Recipe.{name}: expected one of {allowed}, got {getattr(self, name)!r}")

    def bits_of(self, layer: str) -> int:
        """The weight bits of one layer."""
        return self.layer_bits.get(layer, self.weight_bits)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary; `Recipe(**recipe.to_json())` is the same recipe again."""
        return {**dataclasses.asdict(self), "layer_bits": dict(self.layer_bits)}
