"""Which convolutions stay in float32 while the others train in bfloat16."""

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class StridedDepthwiseInFloat32(TorchFunctionMode):
    """Takes strided depthwise convolutions out of a CPU's autocast.

    There their gradient is some ten times as slow in bfloat16 (445 ms against 50 for 256 images of
    144 channels and 24 x 24 pixels, oneDNN 3.13), which made up 40 % of MobileNetV2's step.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.conv2d and torch.is_autocast_enabled("cpu"):
            function = conv2d
        return function(*args, **(kwargs or {}))


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """`F.conv2d`, without autocast if it is strided and each channel has a filter of its own."""
    slow = groups > 1 and groups == len(weight) and stride not in (1, (1, 1), [1, 1])
    if slow:
        input = input.to(weight.dtype)
    with torch.autocast("cpu", enabled=not slow):
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
