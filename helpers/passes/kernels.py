"""The kernels that a fused convolution or linear layer can run on, and when each of them applies.

    onednn           one call computes convolution, bias, residual and activation; the weight is packed beforehand
    onednn_product   the same for a 1x1 convolution, which in channels_last memory *is* a matrix product
    gemm             the product without oneDNN; the activation follows in place
    cudnn            convolution + bias (+ residual) + ReLU in one cuDNN call

A kernel says in one line why it does not apply (`objection`). Where it does, it is bound once to a weight, an input
shape and the settings (`bind`), so that the calls that follow have little left to do but to compute.

One difference to know: oneDNN's relu and hardtanh turn a NaN into 0, where PyTorch's own keep it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.passes.activations import NO_ACTIVATION, RULES, Activation
from helpers.passes.how import Geometry


class Operands(NamedTuple):
    """What a fused layer computes with: activation(layer(x, weight, bias) + other). A linear layer has no geometry."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None
    other: Tensor | None = None
    geometry: Geometry | None = None
    activation: Activation = NO_ACTIVATION

    def output_shape(self) -> tuple[int, ...]:
        """The shape of layer(x, weight, bias)."""
        if self.geometry is None:
            return (*self.x.shape[:-1], self.weight.shape[0])
        sides = zip(self.x.shape[2:], self.weight.shape[2:], *self.geometry[:3], strict=True)
        spatial = ((size + 2 * pad - dil * (k - 1) - 1) // step + 1 for size, k, step, pad, dil in sides)
        return (self.x.shape[0], self.weight.shape[0], *spatial)


# A bound kernel: takes x, bias and other.
Run = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]


@dataclass(frozen=True)
class Kernel:
    """One way to run a fused layer."""

    name: str
    target: str
    objection: Callable[[Operands], str | None]
    bind: Callable[[Operands], Run]


def _cpu_objection(call: Operands) -> str | None:
    """What oneDNN and the matrix product have in common."""
    x, weight, other = call.x, call.weight, call.other
    if call.geometry is not None and x.dim() != 4:
        return f"the kernels take a batch of images (4 dimensions), not {x.dim()} dimensions"
    if other is not None and (tuple(other.shape) != call.output_shape() or other.dtype != x.dtype):
        return f"what is added ({tuple(other.shape)}, {other.dtype}) is not of the output's shape and dtype"
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        return f"the kernels are for float32, not {weight.dtype if x.dtype == torch.float32 else x.dtype}"
    if weight.device.type != "cpu":
        return f"the kernels are for cpu, not {weight.device.type}"
    return None


def _onednn_objection(call: Operands) -> str | None:
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return "this build of PyTorch has no oneDNN, or it is switched off (torch.backends.mkldnn)"
    if call.weight.is_inference():
        return "the weight was made in inference mode, where a change to it cannot be noticed: make it outside"
    if call.other is not None and call.activation.name not in ("none", "relu"):
        return f"oneDNN adds and then applies relu or nothing, not {call.activation}"
    if call.other is not None and call.geometry is None and call.activation.name != "none":
        return "oneDNN's linear layer adds without an activation"
    return _cpu_objection(call)


def _onednn_conv(call: Operands) -> Run:
    stride, padding, dilation, groups = call.geometry
    dense = call.weight.detach().contiguous(memory_format=torch.channels_last)
    with torch.inference_mode(False):
        packed = torch.ops.mkldnn._reorder_convolution_weight(
            dense, padding, stride, dilation, groups, tuple(call.x.shape)
        )
    name, scalars = call.activation
    rule, unary = RULES[name], None if name == "none" else RULES[name].onednn
    one, two = torch.ops.mkldnn._convolution_pointwise.default, torch.ops.mkldnn._convolution_pointwise.binary

    def alone(x: Tensor, bias: Tensor | None, other: None) -> Tensor:
        return one(x, packed, bias, padding, stride, dilation, groups, rule.onednn, scalars, rule.algorithm)

    def added(x: Tensor, bias: Tensor | None, other: Tensor) -> Tensor:
        return two(x, other, packed, bias, padding, stride, dilation, groups, "add", 1.0, unary, (), None)

    return alone if call.other is None else added


def _onednn_linear(call: Operands) -> Run:
    rows = call.x.numel() // call.x.shape[-1]
    with torch.inference_mode(False):
        packed = torch.ops.mkldnn._reorder_linear_weight(call.weight.detach(), rows)
    name, scalars = call.activation
    rule = RULES[name]
    one, two = torch.ops.mkldnn._linear_pointwise.default, torch.ops.mkldnn._linear_pointwise.binary
    if call.other is None:
        return lambda x, bias, other: one(x, packed, bias, rule.onednn, scalars, rule.algorithm)
    return lambda x, bias, other: two(x, other, packed, bias, "add")


def _is_product(call: Operands) -> bool:
    ones, zeros = (1, 1), (0, 0)
    return call.geometry is None or (tuple(call.weight.shape[2:]), *call.geometry) == (ones, ones, zeros, ones, 1)


NO_PRODUCT = "only a 1x1 convolution with stride 1 and one group is a matrix product"


def _product_objection(call: Operands) -> str | None:
    if not _is_product(call):
        return NO_PRODUCT
    if call.other is not None and call.activation.name != "none":
        return "oneDNN's product adds without an activation"
    return _onednn_objection(call)


def _onednn_product(call: Operands) -> Run:
    """A linear layer over the channels of each place; the images are only looked at in another order of axes."""
    weight = call.weight.detach().flatten(1)
    run = _onednn_linear(call._replace(x=call.x.permute(0, 2, 3, 1), weight=weight))

    def permuted(x: Tensor, bias: Tensor | None, other: Tensor | None) -> Tensor:
        other = None if other is None else other.permute(0, 2, 3, 1)
        return run(x.permute(0, 2, 3, 1), bias, other).permute(0, 3, 1, 2)

    return permuted


def _gemm_objection(call: Operands) -> str | None:
    return _cpu_objection(call) if _is_product(call) else NO_PRODUCT


def _gemm_conv(call: Operands) -> Run:
    batch, channels, height, width = call.x.shape
    matrix = call.weight.detach().view(-1, channels).t()
    shape = (batch, height, width, -1)
    activate, scalars = RULES[call.activation.name].in_place, call.activation.scalars

    def run(x: Tensor, bias: Tensor | None, other: Tensor | None) -> Tensor:
        rows = x.permute(0, 2, 3, 1).reshape(-1, channels)
        flat = rows @ matrix if bias is None else torch.addmm(bias, rows, matrix)
        result = flat.view(shape).permute(0, 3, 1, 2)
        if other is not None:
            result.add_(other)
        activate(flat, *scalars)
        return result

    return run


def _gemm_linear(call: Operands) -> Run:
    weight = call.weight.detach()
    activate, scalars = RULES[call.activation.name].in_place, call.activation.scalars

    def run(x: Tensor, bias: Tensor | None, other: Tensor | None) -> Tensor:
        result = F.linear(x, weight, bias)
        return activate(result if other is None else result.add_(other), *scalars)

    return run


def _cudnn_objection(call: Operands) -> str | None:
    if call.weight.device.type != "cuda":
        return f"cuDNN is for cuda, not {call.weight.device.type}"
    if call.activation.name != "relu":
        return f"cuDNN's fused convolution ends in relu, not {call.activation}"
    if call.x.dtype not in (torch.float32, torch.float16):
        return f"cuDNN's fused convolution is for float32 and float16, not {call.x.dtype}"
    if call.other is not None and tuple(call.other.shape) != call.output_shape():
        return f"what is added ({tuple(call.other.shape)}) is not of the output's shape"
    return None


def _cudnn_conv(call: Operands) -> Run:
    weight, geometry = call.weight.detach(), call.geometry
    one, two = torch.ops.aten.cudnn_convolution_relu.default, torch.ops.aten.cudnn_convolution_add_relu.default
    if call.other is None:
        return lambda x, bias, other: one(x, weight, bias, *geometry)
    return lambda x, bias, other: two(x, weight, other, 1.0, bias, *geometry)


CONV_KERNELS = {
    "onednn_product": Kernel("onednn_product", "cpu", _product_objection, _onednn_product),
    "gemm": Kernel("gemm", "cpu", _gemm_objection, _gemm_conv),
    "onednn": Kernel("onednn", "cpu", _onednn_objection, _onednn_conv),
    "cudnn": Kernel("cudnn", "cuda", _cudnn_objection, _cudnn_conv),
}
LINEAR_KERNELS = {
    "gemm": Kernel("gemm", "cpu", _gemm_objection, _gemm_linear),
    "onednn": Kernel("onednn", "cpu", _onednn_objection, _onednn_linear),
}
