"""What multiplies codes by weights: sums in int32, and real int8 kernels, PyTorch's own oneDNN convolutions.

With the latter four things need care.

* Without VNNI, x86 adds pairs of products in 16 bits and saturates (`weights.py` says when). `kernels_saturate` finds
  out by trying; a layer whose weights could be hit then runs in integer form instead.
* oneDNN is slow with a zero point on its input, so the kernel is always told 0. The correction is in the bias already,
  and a border is filled with the zero point by hand.
* The kernel rounds in float32 after each scale, which decides some ties differently from `fixed_point.py`. Told that
  input and output have scale 1, and that the whole factor is the weight's scale, it is left with a product and a sum.
* The order in which the kernel reads its weights depends on the shape of its input. Weights packed for another one are
  brought into order again in every call, which was seen to take thirty times as long as the convolution.
"""

import functools
import itertools
from typing import Any

import torch
import torch.nn.functional as F

from helpers.quantization.weights import PAIR_LIMIT, pair_sums

ONE_PIXEL = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
SHAPES_KEPT = 4
Pair = tuple[int, int]


def conv_sums(
    codes: torch.Tensor, weight: torch.Tensor, zero_point: int, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> torch.Tensor:
    """Sums of code * weight: uint8 (N, C, H, W) and int8 (O, C / groups, kh, kw) to int32 (N, O, ...)."""
    x, weight = codes.to(torch.int32), weight.to(torch.int32)  # F.conv2d sums int8 in int8 and overflows silently
    if any(padding):
        x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]), value=zero_point)
    depthwise = weight.shape[1] == 1 and groups == len(weight)
    if not depthwise and dilation == (1, 1):
        return F.conv2d(x, weight, None, stride, 0, 1, groups)
    # A sum over the kernel's positions, each of which sees a shifted image: for depthwise kernels that is ten times
    # faster than PyTorch's int32 convolution, which knows no dilation either.
    reach = [dilation[i] * (weight.shape[2 + i] - 1) for i in (0, 1)]
    rows, columns = ((x.shape[2 + i] - reach[i] - 1) // stride[i] + 1 for i in (0, 1))
    sums = torch.zeros(len(x), len(weight), rows, columns, dtype=torch.int32, device=x.device)
    for i, j in itertools.product(*map(range, weight.shape[2:])):
        shifted = x[:, :, i * dilation[0] :: stride[0], j * dilation[1] :: stride[1]][:, :, :rows, :columns]
        tap = weight[:, :, i : i + 1, j : j + 1]
        if depthwise:
            sums.addcmul_(shifted, tap.reshape(1, -1, 1, 1))
        else:
            sums += F.conv2d(shifted, tap, groups=groups)
    return sums


@functools.cache
def available() -> bool:
    """Whether this build and processor run the kernels at all."""
    try:
        kernels_saturate()
    except (AttributeError, RuntimeError):
        return False
    return torch.backends.mkldnn.is_available()


@functools.cache
def kernels_saturate() -> bool:
    """Whether two large products next to each other come out too small: 255 * 127 + 255 * 127."""
    weight = torch.zeros(16, 16, 1, 1, dtype=torch.int8)
    weight[:, :2] = 127
    convolve = PackedConv(weight, torch.ones(16), torch.zeros(16), ONE_PIXEL, zero_in=0, zero_out=None)
    return convolve(torch.full((1, 16, 1, 1), 255, dtype=torch.uint8))[0, 0, 0, 0].item() != 2 * 255 * 127


class PackedConv:
    """A convolution of codes by oneDNN; a linear layer is a convolution of 1x1 images.

    Args:
        weight: int8 codes (O, I / groups, kh, kw).
        factor, bias: float32 (O,), of one unit of the sums, in units of the output; zero_in is in the bias already.
        geometry: stride, padding, dilation, groups.
        zero_in, zero_out: zero points of input (it fills the border) and output (None for float output).
        residual: factor and zero point of a second input that is added.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        factor: torch.Tensor,
        bias: torch.Tensor,
        geometry: dict[str, Any],
        zero_in: int,
        zero_out: int | None,
        residual: tuple[float, int] = (),
    ) -> None:
        stride, padding, dilation = (list(geometry[name]) for name in ("stride", "padding", "dilation"))
        self.border, self.zero_in = None, zero_in
        if zero_in and any(padding):
            self.border, padding = [padding[1], padding[1], padding[0], padding[0]], [0, 0]
        self.weight, self.factor, self.geometry = weight, factor, (stride, padding, dilation, geometry["groups"])
        output = (1.0, 0, torch.float32) if zero_out is None else (1.0, zero_out, torch.uint8)
        sum_with = (*residual, "sum", 1.0) if residual else ()
        self.after = (bias, *self.geometry, *output, *sum_with, "none", [], "")
        self.in_order = functools.lru_cache(SHAPES_KEPT)(self._in_order)

    @functools.cached_property
    def usable(self) -> bool:
        """Whether the kernel cannot saturate with these weights on this processor."""
        return int(pair_sums(self.weight.to(torch.int32)).max()) <= PAIR_LIMIT or not kernels_saturate()

    def __call__(self, codes: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """Codes in, codes out (or floats, without an output zero point); not yet clamped."""
        x = F.pad(codes, self.border, value=self.zero_in) if self.border else codes
        x = x.contiguous(memory_format=torch.channels_last)
        if residual is None:
            return torch.ops.onednn.qconv2d_pointwise.default(x, *self.in_order(x.shape), *self.after)
        residual = residual.clone(memory_format=torch.channels_last)  # the kernel writes its result there
        return torch.ops.onednn.qconv2d_pointwise.binary(x, *self.in_order(x.shape), residual, *self.after)

    def _in_order(self, shape: torch.Size) -> tuple:
        """What the kernel is told of its input and of the weights, which are brought into the order for this shape."""
        packed = torch.ops.onednn.qconv_prepack(self.weight, self.factor, 1.0, 0, *self.geometry, list(shape))
        return 1.0, 0, packed, self.factor, torch.zeros(len(self.weight), dtype=torch.int64)
