"""Two operations of our own, known to PyTorch like its own ones: activation(layer(x, weight, bias) + other).

    torch.ops.course.conv_act(x, weight, bias, other, how)
    torch.ops.course.linear_act(x, weight, bias, other, how)

This is what a plug-in operator consists of:

    define           the signature, as text: with it the operation can be traced, exported and saved
    register_fake    the shape and layout of the result without computing it
    CPU, CUDA        the computation: the kernel that was asked for, or the plain composition where it does not apply
    Autograd         with gradients wanted, the plain composition, which autograd can look into
    Autocast         the plain composition as well, so that each step is cast as it would be outside

`how` holds the settings (how.py), the kernel among them; `objection` tells why a kernel would not run. Registering with
`Library.impl` costs about half the time per call of the more comfortable `torch.library.custom_op`.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.passes.activations import RULES
from helpers.passes.how import parse
from helpers.passes.kernels import CONV_KERNELS, LINEAR_KERNELS, Operands, Run
from helpers.passes.prepared import prepared

LIBRARY = torch.library.Library("course", "DEF")
SIGNATURE = "(Tensor x, Tensor weight, Tensor? bias, Tensor? other, str how) -> Tensor"
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


def _operands(x: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None, how: str) -> Operands:
    geometry, activation, _ = parse(how)
    return Operands(x, weight, bias, other, geometry, activation)


def _composition(x: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None, how: str) -> Tensor:
    return plain(_operands(x, weight, bias, other, how))


def _compute(x: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None, how: str) -> Tensor:
    """Look the prepared call up by all that it depends on, and run it."""
    if weight.is_inference():
        return _composition(x, weight, bias, other, how)
    key = (how, x.shape, x.dtype) if other is None else (how, x.shape, x.dtype, other.shape, other.dtype)
    run = prepared(weight, key, lambda: _bind(x, weight, bias, other, how))
    return _composition(x, weight, bias, other, how) if run is _composition else run(x, bias, other)


def _bind(
    x: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None, how: str
) -> Run | Callable[..., Tensor]:
    """The kernel that was asked for, made ready; or the composition, when it has an objection."""
    call, kernel = _operands(x, weight, bias, other, how), parse(how).kernel
    if kernel == "plain" or x.numel() == 0 or objection(call, kernel) is not None:
        return _composition
    return (LINEAR_KERNELS if call.geometry is None else CONV_KERNELS)[kernel].bind(call)


def _shape_only(x: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None, how: str) -> Tensor:
    """The convolution kernels leave their result in channels_last memory, whatever they got."""
    call, kernel = _operands(x, weight, bias, other, how), parse(how).kernel
    result = plain(call)
    if kernel == "plain" or call.geometry is None or objection(call, kernel) is not None:
        return result
    return torch.empty_like(result, memory_format=torch.channels_last)


def _register(name: str) -> Callable[..., Tensor]:
    """Define one of the operations, for all devices and modes."""
    LIBRARY.define(name + SIGNATURE, tags=(torch.Tag.pt2_compliant_tag,))
    op = getattr(torch.ops.course, name).default

    def with_gradients(*args):
        if torch.is_grad_enabled() and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args):
            return _composition(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, _compute, key)
    for key in ("AutocastCPU", "AutocastCUDA"):
        LIBRARY.impl(name, _composition, key)
    LIBRARY.impl(name, with_gradients, "Autograd")
    torch.library.register_fake(f"course::{name}", _shape_only, lib=LIBRARY)
    return op


conv_act = _register("conv_act")
linear_act = _register("linear_act")
