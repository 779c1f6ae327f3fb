"""Real int8 kernels: PyTorch's own oneDNN convolutions on uint8 activations and int8 weights.

Four things need care.

* Without VNNI, x86 adds pairs of products in 16 bits and saturates (`weights.py` says when). `kernels_saturate` finds
  out by trying; a layer whose weights could be hit then runs in integer form instead.
* oneDNN is slow with a zero point on its input, so the kernel is always told 0. The correction is in the bias already,
  and a border is filled with the zero point by hand.
* The kernel multiplies by the scales of input and weight, adds the bias and divides by the scale of the output, each
  time rounding in float32; that decides some ties differently from `fixed_point.py`. Told that input and output have
  scale 1, and that the whole factor is the weight's scale, it is left with a product and a sum.
* The order in which the kernel reads its weights depends on the shape of its input. Weights packed for another one are
  brought into order again in every call, which was seen to take thirty times as long as the convolution.
"""

import functools
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from helpers.quantization.weights import PAIR_LIMIT, pair_sums

if TYPE_CHECKING:
    from helpers.quantization.layers import Layer

__all__ = ["PackedConv", "available", "kernels_saturate"]

SHAPES_KEPT = 4


@functools.cache
def available() -> bool:
    """Whether this build and processor run the kernels at all."""
    if not hasattr(torch.ops.onednn, "qconv2d_pointwise") or not torch.backends.mkldnn.is_available():
        return False
    try:
        _try_pair()
    except (RuntimeError, NotImplementedError):
        return False
    return True


@functools.cache
def kernels_saturate() -> bool:
    """Whether two large products next to each other come out too small: 255 * 127 + 255 * 127."""
    return _try_pair() != 2 * 255 * 127


def _try_pair() -> float:
    codes = torch.full((1, 16, 1, 1), 255, dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    weight = torch.zeros(16, 16, 1, 1, dtype=torch.int8)
    weight[:, :2] = 127
    one, zero = torch.ones(16), torch.zeros(16, dtype=torch.int64)
    geometry = ([1, 1], [0, 0], [1, 1], 1)
    packed = torch.ops.onednn.qconv_prepack(weight, one, 1.0, 0, *geometry, list(codes.shape))
    run = torch.ops.onednn.qconv2d_pointwise.default
    sums = run(codes, 1.0, 0, packed, one, zero, None, *geometry, 1.0, 0, torch.float32, "none", [], "")
    return sums[0, 0, 0, 0].item()


class PackedConv:
    """One layer as a oneDNN convolution; a linear layer is a convolution of 1x1 images.

    Attributes:
        usable: False when the kernel could saturate on this processor.
    """

    def __init__(self, layer: "Layer") -> None:
        self.layer = layer
        weight = layer.weight if layer.weight.ndim == 4 else layer.weight[:, :, None, None]
        attributes = layer.op.attributes or {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
        stride, padding, dilation = (list(attributes[name]) for name in ("stride", "padding", "dilation"))
        depthwise = weight.shape[1] == 1
        pair = int(pair_sums(weight.to(torch.int32)).max())
        self.usable = depthwise or pair <= PAIR_LIMIT or not kernels_saturate()
        self.border = [padding[1], padding[1], padding[0], padding[0]] if layer.zero_point and any(padding) else None
        if self.border:
            padding = [0, 0]
        self.geometry = (stride, padding, dilation, attributes["groups"])
        out_scale = layer.out_scale.double() if layer.coded else 1.0
        factor = layer.unit / out_scale
        self.scale, self.bias = factor.float(), (layer.folded_bias * factor).float()
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)
        self.weight = weight
        self.settings: dict[torch.Size, tuple] = {}  # of the kernel, by the shape of its input; the latest few are kept
        if layer.coded:
            output = (1.0, int(layer.out_zero_point), torch.uint8)
            self.limited = int(layer.first) > 0 or int(layer.last.min()) < 255
        else:
            output, self.limited = (1.0, 0, torch.float32), False
        self.after = (*output, "none", [], "")
        if len(layer.sources) == 2:
            factor = layer.sources[1].scale.double() / out_scale
            self.after = (*output, factor.item(), int(layer.sources[1].zero_point), "sum", 1.0, "none", [], "")

    def __call__(self, codes: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """Codes in, codes out (or floats, from the last layer)."""
        x = codes[:, :, None, None] if codes.ndim == 2 else codes
        if self.border:
            x = F.pad(x, self.border, value=self.layer.zero_point)
        x = x.contiguous(memory_format=torch.channels_last)
        weights, after = self.settings.get(x.shape) or self.prepare(x.shape)
        if residual is None:
            y = torch.ops.onednn.qconv2d_pointwise.default(x, *weights, *after)
        else:
            residual = residual.clone(memory_format=torch.channels_last)  # the kernel writes its result there
            y = torch.ops.onednn.qconv2d_pointwise.binary(x, *weights, residual, *after)
        if codes.ndim == 2:
            y = y[:, :, 0, 0]
        return self.layer.limit(y) if self.limited else y

    def prepare(self, shape: torch.Size) -> tuple[tuple, tuple]:
        """What the kernel is told besides its input: the weights in the order that suits this shape, and the rest."""
        if len(self.settings) == SHAPES_KEPT:
            del self.settings[next(iter(self.settings))]
        packed = torch.ops.onednn.qconv_prepack(self.weight, self.scale, 1.0, 0, *self.geometry, list(shape))
        weights = (1.0, 0, packed, self.scale, self.zeros)
        self.settings[shape] = weights, (self.bias, *self.geometry, *self.after)
        return self.settings[shape]
