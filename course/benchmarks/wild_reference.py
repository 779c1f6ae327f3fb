"""What eight bits do to a network, by PyTorch's own fake quantization: the measure for `quantize`.

Some networks lose much by any quantization: an untrained one whose answer hardly depends on the
image, or one whose errors grow from layer to layer. So a quantized network is not held to a number
of decibels, but to what the same network loses when its values are rounded where it stands: inputs,
weights and results of layers, and the results of sums, means and concatenations. A layer and the
batch norm behind it are rounded as one: the constants of the norm belong to what is stored. Nothing
of `helpers` takes part. PyTorch tells of each operation that it calls; a first run notes the
ranges, a second one rounds.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

MARGIN = 6  # decibels: an error twice as large as that of the reference
LEVELS = 255  # of an activation; weights have codes from -127 to 127
LEAST = 1e-12  # the smallest scale
# Where the input and the weight stand among the arguments, and the weight's output channels.
LAYERS = {
    "aten.convolution.default": (0, 1, 0),
    "aten.addmm.default": (1, 2, 1),
    "aten.mm.default": (0, 1, 1),
}
NORM = "aten.native_batch_norm.default"
SUMS = ("aten.add.Tensor", "aten.add_.Tensor", "aten.cat.default", "aten.mean.dim")
SUMS += ("aten.avg_pool2d.default", "aten._adaptive_avg_pool2d.default")


class _Rounding(TorchDispatchMode):
    """Notes the range of each value in the order of the calls, or rounds the value."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[float, float]] = []
        self.notes = True
        self.place = 0
        self.made: Tensor | None = None  # by the last layer
        self.exact: set[int] = set()  # places of layers whose batch norm is rounded instead

    def start(self, notes: bool) -> "_Rounding":
        """From the first call on, note or round."""
        self.notes = notes
        self.place = 0
        return self

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        """Compute one operation; round what goes into a layer, and what a layer or a sum makes."""
        name = str(function)
        layer = name in LAYERS and not is_transposed(args)
        if layer:
            args = self.rounded_arguments(args, *LAYERS[name])
        result = function(*args, **(kwargs or {}))
        if layer:
            self.made = result
        elif name == NORM and args[0] is self.made:
            self.exact.add(self.place - 1)
            result[0].copy_(self.rounded(result[0]))
        if layer or (name in SUMS and is_sum(args, result)):
            result.copy_(self.rounded(result))
        return result

    def rounded_arguments(self, args: tuple, source: int, weight: int, axis: int) -> tuple:
        """The arguments of a layer with its input and its weight rounded."""
        changed = list(args)
        changed[source] = self.rounded(args[source])
        if not self.notes:
            changed[weight] = rounded_weight(args[weight], axis)
        return tuple(changed)

    def rounded(self, x: Tensor) -> Tensor:
        """A value, rounded to the codes of its range; or the value, its range noted."""
        low, high = (bound.item() for bound in x.aminmax())
        place = self.place
        self.place += 1
        if self.notes:
            if place == len(self.ranges):
                self.ranges.append((0.0, 0.0))
            before = self.ranges[place]
            self.ranges[place] = (min(low, before[0]), max(high, before[1]))
        if self.notes or place in self.exact:
            return x
        low, high = self.ranges[place]
        scale = max((high - low) / LEVELS, LEAST)
        return torch.fake_quantize_per_tensor_affine(x, scale, round(-low / scale), 0, LEVELS)


def is_transposed(args: tuple) -> bool:
    """Whether these are the arguments of a transposed convolution, which stays in float."""
    return len(args) > 6 and args[6]


def is_sum(args: tuple, result: Tensor) -> bool:
    """Whether an operation sums up values of the network; adding a bias or a constant does not."""
    if result.dtype != torch.float32 or result.ndim < 2 or not result.numel():
        return False
    if len(args) > 1 and isinstance(args[0], Tensor) and not isinstance(args[1], list):
        return isinstance(args[1], Tensor) and args[0].shape == args[1].shape
    return True


def rounded_weight(weight: Tensor, axis: int) -> Tensor:
    """A weight with a scale for each output channel."""
    others = [dim for dim in range(weight.ndim) if dim != axis]
    scale = (weight.abs().amax(others) / 127).clamp(min=LEAST)
    zeros = torch.zeros(len(scale), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weight, scale, zeros, axis, -127, 127)


def decibels(expected: Tensor, found: Tensor) -> float:
    """The power of the answers over that of the error."""
    error = (found - expected).square().mean().clamp(min=1e-20)
    return 10 * math.log10((expected.square().mean() / error).item())


@functools.cache
@torch.no_grad()
def reference(model: nn.Module, images: Tensor, inputs: tuple[Tensor, ...]) -> float:
    """How far from the network its answers are when PyTorch rounds it to eight bits."""
    rounding = _Rounding()
    for part in images.split(len(inputs[0])):
        with rounding.start(notes=True):
            model(part.clone())
    with rounding.start(notes=False):
        found = model(*(x.clone() for x in inputs))
    return decibels(model(*inputs), found)
