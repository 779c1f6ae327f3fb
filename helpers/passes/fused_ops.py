"""Two operations of our own, known to PyTorch like its own ones: activation(layer(x, weight, bias) + other).

    torch.ops.course.conv_act(x, weight, bias, other, stride, padding, dilation, groups, activation, scalars, kernel)
    torch.ops.course.linear_act(x, weight, bias, other, activation, scalars, kernel)

This is what a plug-in operator consists of:

    define           the signature, as text: with it the operation can be traced, exported and saved
    register_fake    the shape and layout of the result without computing it
    CPU, CUDA        the computation: the kernel that was asked for, or the plain composition where it does not apply
    Autograd         with gradients wanted, the plain composition, which autograd can look into
    Autocast         the plain composition as well, so that each step is cast as it would be outside

`kernel` is "plain" or a name from `kernels.py`; `objection` tells why a kernel would not run. Registering with
`Library.impl` costs about half the time per call of the more comfortable `torch.library.custom_op`.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.passes.activations import RULES, Activation
from helpers.passes.kernels import CONV_KERNELS, LINEAR_KERNELS, Geometry, Operands

LIBRARY = torch.library.Library("course", "DEF")
LIBRARY.define(
    "conv_act(Tensor x, Tensor weight, Tensor? bias, Tensor? other, int[] stride, int[] padding, int[] dilation, "
    'int groups, str activation="none", float[] scalars=[], str kernel="plain") -> Tensor',
    tags=(torch.Tag.pt2_compliant_tag,),
)
LIBRARY.define(
    "linear_act(Tensor x, Tensor weight, Tensor? bias, Tensor? other, "
    'str activation="none", float[] scalars=[], str kernel="plain") -> Tensor',
    tags=(torch.Tag.pt2_compliant_tag,),
)
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def objection(call: Operands, kernel: str) -> str | None:
    """Why `kernel` cannot run this call; None when it can.

    Example:
        >>> objection(Operands(x.double(), weight.double(), geometry=Geometry()), "onednn")
        'the kernels are for float32, not torch.float64'
    """
    if kernel == "plain":
        return None
    known = LINEAR_KERNELS if call.geometry is None else CONV_KERNELS
    return known[kernel].objection(call) if kernel in known else f"there is no kernel {kernel!r}"


def plain(call: Operands) -> Tensor:
    """The composition of PyTorch's own operations that a fused operation stands for."""
    if call.geometry is None:
        result = F.linear(call.x, call.weight, call.bias)
    else:
        result = CONVOLUTIONS[call.weight.dim() - 2](call.x, call.weight, call.bias, *call.geometry)
    if call.other is not None:
        result = result + call.other
    return RULES[call.activation.name].plain(result, *call.activation.scalars)


def _run(call: Operands, kernel: str) -> Tensor:
    if kernel == "plain" or call.x.numel() == 0 or objection(call, kernel) is not None:
        return plain(call)
    return (LINEAR_KERNELS if call.geometry is None else CONV_KERNELS)[kernel].run(call)


def _fake(call: Operands, kernel: str) -> Tensor:
    result = plain(call)
    if kernel == "plain" or call.geometry is None or objection(call, kernel) is not None:
        return result
    return torch.empty_like(result, memory_format=torch.channels_last)


def _plain(call: Operands, kernel: str) -> Tensor:
    return plain(call)


def _conv(how: Callable[[Operands, str], Tensor]) -> Callable[..., Tensor]:
    """`how`, under the signature of conv_act."""

    def conv_act(
        x, weight, bias, other, stride, padding, dilation, groups, activation="none", scalars=(), kernel="plain"
    ):
        geometry = Geometry(tuple(stride), tuple(padding), tuple(dilation), groups)
        return how(Operands(x, weight, bias, other, geometry, Activation(activation, tuple(scalars))), kernel)

    return conv_act


def _linear(how: Callable[[Operands, str], Tensor]) -> Callable[..., Tensor]:
    """`how`, under the signature of linear_act."""

    def linear_act(x, weight, bias, other, activation="none", scalars=(), kernel="plain"):
        return how(Operands(x, weight, bias, other, None, Activation(activation, tuple(scalars))), kernel)

    return linear_act


def _with_gradients(op: Callable[..., Tensor], composition: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The composition when a gradient is wanted, else the operation below autograd."""

    def dispatch(*args):
        if torch.is_grad_enabled() and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args[:4]):
            return composition(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return dispatch


conv_act = torch.ops.course.conv_act.default
linear_act = torch.ops.course.linear_act.default

for _name, _op, _signature in (("conv_act", conv_act, _conv), ("linear_act", linear_act, _linear)):
    for _key in ("CPU", "CUDA"):
        LIBRARY.impl(_name, _signature(_run), _key)
    for _key in ("AutocastCPU", "AutocastCUDA"):
        LIBRARY.impl(_name, _signature(_plain), _key)
    LIBRARY.impl(_name, _with_gradients(_op, _signature(_plain)), "Autograd")
    torch.library.register_fake(f"course::{_name}", _signature(_fake), lib=LIBRARY)
