"""The operations of a network on integer tensors: codes in, int32 sums or codes out, nothing in between is float.

Sums are int32. `F.conv2d` on int8 tensors would sum in int8 and overflow silently, so codes are widened first.
Products of codes are at most 255 * 127, so 2^31 is safe for up to 66,000 of them; `steps.py` checks that.
"""

import torch
import torch.nn.functional as F

__all__ = ["average_sums", "conv_sums", "linear_sums"]


def conv_sums(
    codes: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    zero_point: int,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> torch.Tensor:
    """Convolve codes: sum over the window of code * weight, plus bias.

    sum (code - zero_point) * weight = sum code * weight - zero_point * sum weight. The second part is the same for
    every position when the border is filled with zero_point, the code of real 0: the caller puts it into the bias.

    Args:
        codes: uint8 (N, C, H, W).
        weight: int8 (O, C / groups, kh, kw).
        bias: int32 (O,), with -zero_point * sum weight in it.

    Returns:
        int32 (N, O, H', W').
    """
    x = codes.to(torch.int32)
    if any(padding):
        x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]), value=zero_point)
    depthwise = weight.shape[1] == 1 and groups == len(weight)
    if depthwise or dilation != (1, 1):
        sums = _sum_of_taps(x, weight.to(torch.int32), stride, dilation, groups)
    else:
        sums = F.conv2d(x, weight.to(torch.int32), None, stride, 0, 1, groups)
    return sums.add_(bias[:, None, None])


def _sum_of_taps(
    x: torch.Tensor, weight: torch.Tensor, stride: tuple[int, int], dilation: tuple[int, int], groups: int
) -> torch.Tensor:
    """A convolution as a sum over the kernel's positions, each of which sees a shifted image.

    For depthwise kernels that is ten times faster than PyTorch's int32 convolution, which knows no dilation either.
    """
    kernel = weight.shape[2:]
    rows, columns = ((x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1))
    sums = torch.zeros(len(x), len(weight), rows, columns, dtype=torch.int32, device=x.device)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            shifted = x[:, :, i * dilation[0] :: stride[0], j * dilation[1] :: stride[1]][:, :, :rows, :columns]
            tap = weight[:, :, i : i + 1, j : j + 1]
            if weight.shape[1] == 1 and groups == len(weight):
                sums.addcmul_(shifted, tap.reshape(1, -1, 1, 1))
            else:
                sums += F.conv2d(shifted, tap, groups=groups)
    return sums


def linear_sums(codes: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """codes @ weight.T + bias in int32: (N, I), (O, I), (O,) -> (N, O)."""
    return codes.to(torch.int32) @ weight.to(torch.int32).T + bias


def average_sums(codes: torch.Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> torch.Tensor:
    """Sum of the codes in each window, int32; the division is part of the rescaling that follows."""
    if kernel == tuple(codes.shape[2:]):
        return codes.sum((2, 3), keepdim=True, dtype=torch.int32)
    windows = codes.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
    return windows.sum((4, 5), dtype=torch.int32)
