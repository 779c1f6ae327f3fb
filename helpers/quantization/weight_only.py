"""Integer weights alone: activations stay in float, the file shrinks to a fourth and less.

Every convolution and linear layer keeps codes of a few bits in place of its weight, decodes them whenever it runs, and
computes in float as before. So the file is smaller, and the network is no faster. Two forms of code:

    grid      w ~ scale * code, an even grid: one scale per output channel, or per group of neighbours
    codebook  w ~ centres[code], 2^bits shared values that lie anywhere (`codebook.py`)
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from helpers import models
from helpers.quantization import affine, codebook
from helpers.quantization.affine import Affine, QuantizationError
from helpers.quantization.packing import pack, unpack

__all__ = ["FORMS", "CodedLayer", "weights_only"]

FORMS = ("grid", "codebook")
# Exactly these: what is derived from them (the output layer of attention, say) may be read in other ways.
LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def weights_only(
    model: nn.Module,
    bits: int = 8,
    form: str = "grid",
    layer_bits: Mapping[str, int] | None = None,
    group_size: int | None = None,
) -> nn.Module:
    """A copy whose convolutions and linear layers store integers; everything else stays in float.

    Args:
        model: in eval mode; it is not changed.
        bits: 2 to 8, for every layer that `layer_bits` does not name.
        form: "grid" or "codebook".
        layer_bits: bits of single layers, by name.
        group_size: of a grid: so many neighbours along the last dimension share a scale, instead of a whole channel.

    Example:
        >>> small = weights_only(models.mobilenet_v2().eval(), bits=4)
        >>> small.classifier[1].codes.dtype
        torch.int8
    """
    layer_bits = dict(layer_bits or {})
    layers = {name: layer for name, layer in model.named_modules() if type(layer) in LAYERS}
    check(layers, form, layer_bits, group_size)
    small = copy.deepcopy(model)
    for name, layer in layers.items():
        try:
            coded = CodedLayer(copy.deepcopy(layer), layer_bits.get(name, bits), form, group_size)
        except QuantizationError as error:
            raise type(error)(f"{name}: {error}") from error
        replace(small, small.get_submodule(name), coded)
    arguments = {"bits": bits, "form": form, "layer_bits": layer_bits, "group_size": group_size}
    return models.record(small.eval(), source=model, step="weights_only", **arguments)


def check(layers: Mapping[str, nn.Module], form: str, layer_bits: Mapping[str, int], group_size: int | None) -> None:
    """Refuse what cannot be done, before anything is built."""
    if form not in FORMS:
        raise QuantizationError(f"form: expected one of {FORMS}, got {form!r}")
    if form == "codebook" and group_size is not None:
        raise QuantizationError("group_size belongs to a grid; a codebook is shared by the whole layer")
    if not layers:
        raise QuantizationError("weights_only: the network has no convolution or linear layer to store in integers")
    if unknown := layer_bits.keys() - layers.keys():
        raise QuantizationError(f"layer_bits: no layer is called {sorted(unknown)}; the layers are {list(layers)}")


def replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put `new` wherever a module of the network holds `old`: a shared layer stays shared."""
    for parent in model.modules():
        for name in [
            name for name, child in parent._modules.items() if child is old
        ]:  # named_children has one name each
            setattr(parent, name, new)


class CodedLayer(nn.Module):
    """A layer whose weight is decoded whenever it runs.

    Attributes:
        codes: of the weight's shape, int8 (grid) or uint8 (codebook); packed when saved.
        values: the scales of a grid, or the centres of a codebook, float32.
        layer: everything else that the layer has.
    """

    def __init__(self, layer: nn.Module, bits: int, form: str, group_size: int | None) -> None:
        super().__init__()
        self.bits, self.form, self.group_size = bits, form, group_size
        weight = layer.weight.detach()
        if form == "grid":
            grid = affine.fit(weight, bits, axis=None if group_size else 0, group_size=group_size)
            codes, values = grid.quantize(weight), grid.scale
        else:
            book = codebook.fit(weight, bits)
            codes, values = book.indices, book.centres
        self.register_buffer("codes", codes)
        self.register_buffer("values", values)
        del layer.weight
        self.layer = layer

    def weight(self) -> torch.Tensor:
        """What the codes stand for."""
        if self.form == "codebook":
            return self.values[self.codes.long()]
        zero, axis = torch.zeros_like(self.values, dtype=torch.int32), None if self.group_size else 0
        grid = Affine(self.values, zero, self.bits, signed=True, narrow=True, axis=axis, group_size=self.group_size)
        return grid.dequantize(self.codes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer with the decoded weight."""
        if isinstance(self.layer, nn.Linear):
            return F.linear(x, self.weight(), self.layer.bias)
        return self.layer._conv_forward(x, self.weight(), self.layer.bias)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "codes"] = pack(self.codes, self.bits, signed=self.form == "grid")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if (key := prefix + "codes") in state_dict:
            state_dict[key] = unpack(state_dict[key], self.bits, tuple(self.codes.shape), self.form == "grid")
        super()._load_from_state_dict(state_dict, prefix, *args)
