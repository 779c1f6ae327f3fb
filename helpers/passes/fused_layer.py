"""A 2d convolution with what follows it, as one module that one oneDNN call computes:
activation(conv(x) + other).

Without fusion its result is written to memory, read and written again by an addition, and again by
the activation. The fused kernel does all of it while the numbers are still in registers.

oneDNN wants the weight in an order of its own, which depends on the shape of the input. That packed
copy is kept beside the parameters and is no part of the network's state; it is made again when the
shape or the weight has changed. Where the kernel does not apply (other dtypes and devices,
gradients wanted, autocast, tracing) the plain composition runs.

Two differences to know: oneDNN's relu and hardtanh turn a NaN into 0, where PyTorch's own keep it;
and nobody can notice a change through `weight.data`. After `weight.data.mul_(2)`,
`copy.deepcopy(network)` has the new weights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from helpers.graphs.errors import MustStay
from helpers.graphs.operations import OPERATIONS

mkldnn = torch.ops.mkldnn

# The activations of a canonical graph, by oneDNN's names.
KERNELS = {
    F.relu: "relu",
    F.relu6: "hardtanh",
    F.hardtanh: "hardtanh",
    F.leaky_relu: "leaky_relu",
    F.gelu: "gelu",
}
KERNELS |= {F.hardswish: "hardswish", F.silu: "swish", torch.sigmoid: "sigmoid", torch.tanh: "tanh"}


class Activation(NamedTuple):
    """An activation and its numbers."""

    function: Callable[..., Tensor]
    scalars: tuple[float, ...] = ()


def read_activation(node: fx.Node) -> Activation:
    """What an activation node computes; raises `MustStay` where the kernels do not compute that."""
    arguments = OPERATIONS[node.target.__name__].arguments
    given = arguments | dict(zip(arguments, node.args[1:], strict=False)) | dict(node.kwargs)
    given.pop("inplace", None)
    if given.pop("approximate", "none") != "none":
        raise MustStay(
            f"gelu with approximate={node.kwargs['approximate']!r} is not what the kernels compute"
        )
    if not all(type(number) in (int, float) for number in given.values()):
        raise MustStay(f"not all of {[*given.values()]} are numbers that are known beforehand")
    if node.target is F.relu6:
        return Activation(F.hardtanh, (0.0, 6.0))
    return Activation(node.target, tuple(map(float, given.values())))


class FusedLayer(nn.Module):
    """activation(conv(x) + other), with the parameters of the convolution.

    Made of a convolution, or of a `FusedLayer` without activation; raises `MustStay` if the layer
    has no fused form.
    """

    only_computes = True  # effects.py: the result is a new tensor, and nothing else happens

    def __init__(self, layer: nn.Module, activation: Activation | None = None):
        super().__init__()
        self.register_parameter("weight", layer.weight)
        self.register_parameter("bias", layer.bias)
        self.geometry = layer.geometry if isinstance(layer, FusedLayer) else _geometry(layer)
        self.activation, self.training = activation, layer.training
        self._packed: tuple[Any, ...] = (None, None)

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Run the kernel if it is made for this case, or the composition."""
        weight, bias = (
            self._parameters["weight"],
            self._parameters["bias"],
        )  # self.weight takes five times as long
        if _needs_composition(x, weight, bias, other):
            return self.composition(x, other)
        key = (
            x.shape,
            weight._version,
            weight.data_ptr(),
            None if other is None else (other.shape, other.dtype),
        )
        packed = self._packed if self._packed[0] == key else self._pack(key, x, other)
        _, weight, settings, _ = packed
        if weight is None:
            return self.composition(x, other)
        if other is None:
            return mkldnn._convolution_pointwise.default(x, weight, bias, *settings)
        return mkldnn._convolution_pointwise.binary(x, other, weight, bias, *settings)

    def composition(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """The same in PyTorch's own operations."""
        result = F.conv2d(x, self.weight, self.bias, *self.geometry)
        result = result if other is None else result + other
        return (
            result
            if self.activation is None
            else self.activation.function(result, *self.activation.scalars)
        )

    def objection(self, x: Tensor, other: Tensor | None = None) -> str | None:
        """Why no kernel can run on such inputs; None when one can."""
        if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
            return (
                "this build of PyTorch has no oneDNN, or it is switched off (torch.backends.mkldnn)"
            )
        given = x.dtype, self.weight.dtype, self.weight.device.type, x.dim()
        if given != (torch.float32, torch.float32, "cpu", 4):
            return (
                "the kernels take images and weights of float32 on a cpu in 4 dimensions, not"
                f" {given}"
            )
        if other is not None:
            own = F.conv2d(x.to("meta"), self.weight.to("meta"), None, *self.geometry)
            if (own.shape, own.dtype) != (other.shape, other.dtype):
                return (
                    f"what is added ({tuple(other.shape)}, {other.dtype}) is not of the output's"
                    " shape and dtype"
                )
        return "there is nothing to compute" if x.numel() == 0 else None

    def _pack(self, key: Any, x: Tensor, other: Tensor | None) -> tuple[Any, ...]:
        """What is kept for inputs like these: their key, the packed weight (None without a kernel),
        its settings.
        """
        packed, (stride, padding, dilation, groups) = None, self.geometry
        if self.objection(x, other) is None:
            dense = self.weight.detach().contiguous(memory_format=torch.channels_last)
            with torch.inference_mode(False):
                packed = mkldnn._reorder_convolution_weight(
                    dense, padding, stride, dilation, groups, tuple(x.shape)
                )
        name = None if self.activation is None else KERNELS[self.activation.function]
        if other is None:
            then = (
                name or "none",
                self.activation.scalars if name else (),
                "none" if name == "gelu" else None,
            )
        else:
            then = "add", 1.0, name, (), None
        # The last one keeps the old weight alive, so that no other gets its address.
        self._packed = key, packed, (padding, stride, dilation, groups, *then), self.weight.detach()
        return self._packed

    def __getstate__(self) -> dict[str, Any]:
        """For copying and saving: without what was packed."""
        return self.__dict__ | {"_packed": (None, None)}


def _needs_composition(x: Tensor, *others: Tensor | None) -> bool:
    """Whether somebody looks inside: autograd, autocast, a compiler, a counter, a tracer with
    stand-ins for tensors.
    """
    return (
        type(x) is not Tensor
        or x.dtype is not torch.float32
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or counts_operations()
        or torch.autograd.forward_ad._current_level
        >= 0  # derivatives are wanted along with the answers
        or others[0].is_inference()  # it does not count its changes
        or (
            torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *others))
        )
    )


def counts_operations() -> bool:
    """Whether `count_macs` is at work, which sees nothing inside of a kernel of oneDNN."""
    return type(_get_current_dispatch_mode()).__name__.endswith("CounterMode")


def _geometry(layer: nn.Module) -> tuple[Any, ...]:
    """Stride, padding, dilation and groups in numbers, 'same' and 'valid' too."""
    if type(layer) is not nn.Conv2d:
        raise MustStay(f"there is no fused form of {type(layer).__name__}")
    if layer.padding_mode != "zeros":
        raise MustStay(
            f"it pads with padding_mode={layer.padding_mode!r}, and the kernels pad with zeros"
        )
    sides = layer._reversed_padding_repeated_twice[::-1]
    if sides[::2] != sides[1::2]:
        raise MustStay("it pads by another amount left than right ('same' with an even kernel)")
    return layer.stride, tuple(sides[::2]), layer.dilation, layer.groups
