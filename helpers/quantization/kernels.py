"""What multiplies codes by weights: sums in int32, and real int8 kernels, PyTorch's own oneDNN
convolutions.

The kernels need care in four places.

* Without VNNI, x86 adds pairs of products in 16 bits and saturates (`weights.py` says when).
  `kernels_saturate` finds out by trying; a layer whose weights could be hit then runs in integer
  form instead.
* oneDNN is slow with a zero point on its input, so the kernel is always told 0. The correction is
  in the bias already, and a border is filled with the zero point by hand.
* The kernel rounds in float32 after each scale, which decides some ties differently from
  `fixed_point`. Told that input and output have scale 1, and that the whole factor is the weight's
  scale, it is left with a product and a sum.
* The order in which the kernel reads its weights depends on the shape of its input. Weights packed
  for another one are brought into order again in every call, which was seen to take thirty times as
  long as the convolution.
"""

import contextlib
import functools
import itertools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.quantization.weights import pairs_fit

ONE_PIXEL = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
SHAPES_KEPT = 4
Pair = tuple[int, int]


def conv_sums(
    codes: Tensor,
    weight: Tensor,
    zero_point: int,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    """Sums of code * weight. F.conv2d takes int32, but not together with a dilation: then one
    place of the filter after the other is multiplied with the part of the image that it meets.

    uint8 (N, C, H, W) and int8 (O, C / groups, kh, kw) to int32 (N, O, rows, columns)
    """
    border = (padding[1], padding[1], padding[0], padding[0])
    x = F.pad(codes.to(torch.int32), border, value=zero_point)
    filters = weight.to(torch.int32)
    if tuple(dilation) == (1, 1):
        return F.conv2d(x, filters, stride=stride, groups=groups)
    reach = [(size - 1) * step for size, step in zip(weight.shape[2:], dilation, strict=True)]
    rows, columns = (size - last for size, last in zip(x.shape[2:], reach, strict=True))
    total = 0
    for row, column in itertools.product(*map(range, weight.shape[2:])):
        top = row * dilation[0]
        left = column * dilation[1]
        part = x[:, :, top : top + rows : stride[0], left : left + columns : stride[1]]
        one_place = filters[:, :, row : row + 1, column : column + 1]
        total = total + F.conv2d(part, one_place, groups=groups)
    return total


@functools.cache
def available() -> bool:
    """Whether this build and processor run the kernels at all."""
    with contextlib.suppress(AttributeError, RuntimeError):
        kernels_saturate()
        return torch.backends.mkldnn.is_available()
    return False


@functools.cache
def kernels_saturate() -> bool:
    """Whether two large products next to each other come out too small: 255 * 127 + 255 * 127."""
    weight = torch.zeros(16, 16, 1, 1, dtype=torch.int8)
    weight[:, :2] = 127
    convolve = PackedConv(weight, torch.ones(16), torch.zeros(16), ONE_PIXEL, 0, None)
    sums = convolve(torch.full((1, 16, 1, 1), 255, dtype=torch.uint8))
    return sums[0, 0, 0, 0].item() != 2 * 255 * 127


@dataclass(eq=False)
class PackedConv:
    """A convolution of codes by oneDNN; a linear layer is a convolution of 1x1 images.

    Attributes:
        weight: int8 codes (O, I / groups, kh, kw).
        factor: float32 (O,): how many units of the output one unit of the sums is.
        bias: float32 (O,), in units of the output; the input's zero point is in it already.
        geometry: stride, padding, dilation, groups.
        zero_in: zero point of the input, which fills the border.
        zero_out: zero point of the output; None for float output.
        residual: factor and zero point of a second input that is added; may be empty.
    """

    weight: Tensor
    factor: Tensor
    bias: Tensor
    geometry: dict[str, Any]
    zero_in: int
    zero_out: int | None
    residual: tuple[float, int] | tuple[()] = ()

    def __post_init__(self) -> None:
        stride, padding, dilation = (
            list(self.geometry[name]) for name in ("stride", "padding", "dilation")
        )
        self.border = None
        if self.zero_in and any(padding):
            self.border = [padding[1], padding[1], padding[0], padding[0]]
            padding = [0, 0]
        self.window = (stride, padding, dilation, self.geometry["groups"])
        output = (1.0, 0, torch.float32)
        if self.zero_out is not None:
            output = (1.0, self.zero_out, torch.uint8)
        sum_with = (*self.residual, "sum", 1.0) if self.residual else ()
        self.after = (self.bias, *self.window, *output, *sum_with, "none", [], "")
        self.arguments_for = functools.lru_cache(SHAPES_KEPT)(self._arguments_for)

    @functools.cached_property
    def usable(self) -> bool:
        """Whether the kernel cannot saturate with these weights on this processor."""
        return pairs_fit(self.weight) or not kernels_saturate()

    def __call__(self, codes: Tensor, residual: Tensor | None = None) -> Tensor:
        """Codes in, codes out (or floats, without an output zero point); not yet clamped."""
        x = F.pad(codes, self.border, value=self.zero_in) if self.border else codes
        x = x.contiguous(memory_format=torch.channels_last)
        before = (x, *self.arguments_for(x.shape))
        if residual is None:
            return torch.ops.onednn.qconv2d_pointwise.default(*before, *self.after)
        # The kernel writes its result into the residual.
        residual = residual.clone(memory_format=torch.channels_last)
        return torch.ops.onednn.qconv2d_pointwise.binary(*before, residual, *self.after)

    def _arguments_for(self, shape):
        """The kernel's arguments for an input of this shape: its scale and zero point, the weights
        in the order for this shape, and their scales and zero points.
        """
        packed = torch.ops.onednn.qconv_prepack(
            self.weight, self.factor, 1.0, 0, *self.window, list(shape)
        )
        return 1.0, 0, packed, self.factor, torch.zeros(len(self.weight), dtype=torch.int64)
