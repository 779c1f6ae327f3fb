"""A 2d convolution with what follows it, as one module that one oneDNN call computes:
activation(conv(x) + other).

Without fusion its result is written to memory, read and written again by an addition, and again by
the activation. The fused kernel does all of it while the numbers are still in registers.

oneDNN wants the weight in an order that depends on the shape of the input. A copy in that order,
the packed weight, is kept beside the parameters, and is not saved. It is made again when the shape
or the weight has changed, and after any step of an optimizer. Where the kernel does not apply
(other dtypes and devices, gradients wanted, autocast, tracing) PyTorch's own operations run.

The kernels differ from these in two things. oneDNN's relu and hardtanh turn a NaN into 0, where
PyTorch's keep it. And PyTorch does not count a change through `weight.data`, so the packed weight
stays the old one after `weight.data.mul_(2)`; a `copy.deepcopy(network)` packs the new one.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.utils import _pair
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import _get_current_dispatch_mode

from helpers.graphs.errors import Declined
from helpers.graphs.layers import padding_of
from helpers.graphs.operations import OPERATIONS, by_name, operation

mkldnn = torch.ops.mkldnn

# The activations of a canonical graph, by oneDNN's names.
KERNELS = {
    "relu": "relu",
    "relu6": "hardtanh",
    "hardtanh": "hardtanh",
    "leaky_relu": "leaky_relu",
    "gelu": "gelu",
    "hardswish": "hardswish",
    "silu": "swish",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}


class _Steps:
    """Counts the steps of all optimizers: those with fused=True change a weight without counting
    its `_version` up.
    """

    taken = 0

    @classmethod
    def count(cls, *_: Any) -> None:
        cls.taken += 1


register_optimizer_step_post_hook(_Steps.count)


class Activation(NamedTuple):
    """An activation, by the name of its operation, and its numbers."""

    name: str
    scalars: tuple[float, ...] = ()


def read_activation(node: fx.Node) -> Activation:
    """What an activation node computes.

    Raises:
        Declined: the kernels do not compute that.
    """
    name = operation(node)
    arguments = OPERATIONS[name].arguments
    settings = arguments | by_name(node, ("input", *arguments))
    for ignored in ("input", "inplace"):
        settings.pop(ignored, None)
    approximate = settings.pop("approximate", "none")
    if approximate != "none":
        raise Declined(f"gelu with {approximate=} is not what the kernels compute")
    numbers = [*settings.values()]
    if not all(type(number) in (int, float) for number in numbers):
        raise Declined(f"not all of {numbers} are numbers that are known beforehand")
    if name == "relu6":
        return Activation("hardtanh", (0.0, 6.0))
    return Activation(name, tuple(map(float, numbers)))


class _Packed(NamedTuple):
    """The packed weight for inputs of one shape."""

    key: Any = None  # the shapes and the state of the weight for which it was made
    weight: Tensor | None = None  # in oneDNN's order; None where no kernel can run
    settings: tuple[Any, ...] = ()
    source: Tensor | None = None  # the weight, kept alive: its address is part of the key


class FusedLayer(nn.Module):
    """activation(conv(x) + other), with the parameters of the convolution.

    Made of a convolution, or of a `FusedLayer` without activation; raises `Declined` if the layer
    has no fused form.
    """

    only_computes = True  # effects.py: the result is a new tensor, and nothing else happens

    def __init__(self, layer: nn.Module, activation: Activation | None = None):
        super().__init__()
        for name, tensor in (("weight", layer.weight), ("bias", layer.bias)):
            if tensor is not None and not isinstance(tensor, nn.Parameter):
                tensor = nn.Parameter(tensor, requires_grad=False)  # a buffer: it is not trained
            self.register_parameter(name, tensor)
        self.geometry = layer.geometry if isinstance(layer, FusedLayer) else _geometry(layer)
        self.activation = activation
        self.training = layer.training
        self._packed = _Packed()

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Run the kernel if there is one for this case, else the composition."""
        weight = self._parameters["weight"]  # self.weight takes five times as long
        bias = self._parameters["bias"]
        if _needs_composition(x, weight, bias, other):
            return self.composition(x, other)
        added = other is not None and (other.shape, other.dtype)
        key = x.shape, weight._version, weight.data_ptr(), _Steps.taken, added
        if self._packed.key != key:
            self._packed = self._pack(key, x, other)
        _, packed, settings, _ = self._packed
        if packed is None:
            return self.composition(x, other)
        if other is None:
            return mkldnn._convolution_pointwise.default(x, packed, bias, *settings)
        return mkldnn._convolution_pointwise.binary(x, other, packed, bias, *settings)

    def composition(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """The same in PyTorch's own operations."""
        result = F.conv2d(x, self.weight, self.bias, *self.geometry)
        if other is not None:
            result = result + other
        if self.activation is not None:
            function = OPERATIONS[self.activation.name].function
            result = function(result, *self.activation.scalars)
        return result

    def why_no_kernel(
        self, x: Tensor, other: Tensor | None = None, device: str | None = None
    ) -> str | None:
        """Why no kernel can run on such inputs, or could on this device; None when one can."""
        if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
            return (
                "this build of PyTorch has no oneDNN, or it is switched off (torch.backends.mkldnn)"
            )
        device = device or self.weight.device.type
        form = x.dtype, self.weight.dtype, device, x.dim()
        if form != (torch.float32, torch.float32, "cpu", 4):
            return (
                "the kernels need float32 images and weights on a CPU, with 4 dimensions,"
                f" not {form}"
            )
        if other is not None:
            result = F.conv2d(x.to("meta"), self.weight.to("meta"), None, *self.geometry)
            if (result.shape, result.dtype) != (other.shape, other.dtype):
                return (
                    f"what is added ({tuple(other.shape)}, {other.dtype}) is not of the output's"
                    " shape and dtype"
                )
            if 1 in (result.shape[1], result.shape[2:].numel()):  # PyTorch 2.10 and 2.11 fail
                return "not every kernel adds maps of a single channel or a single pixel"
        return "there is nothing to compute" if x.numel() == 0 else None

    def _pack(self, key: Any, x: Tensor, other: Tensor | None) -> _Packed:
        """The weight in the kernel's order, and the kernel's other arguments for such inputs."""
        weight = self.weight.detach()
        if self.why_no_kernel(x, other) is not None:
            return _Packed(key, source=weight)
        stride, padding, dilation, groups = self.geometry
        dense = weight.contiguous(memory_format=torch.channels_last)
        with torch.inference_mode(False):
            packed = mkldnn._reorder_convolution_weight(
                dense, padding, stride, dilation, groups, tuple(x.shape)
            )
        settings = padding, stride, dilation, groups, *self._post_operation(other)
        return _Packed(key, packed, settings, weight)

    def _post_operation(self, other: Tensor | None) -> tuple[Any, ...]:
        """The kernel's arguments for what follows the convolution."""
        name = None
        scalars = ()
        if self.activation is not None:
            name = KERNELS[self.activation.name]
            scalars = self.activation.scalars
        if other is not None:
            return "add", 1.0, name, (), None
        return name or "none", scalars, "none" if name == "gelu" else None

    def __getstate__(self) -> dict[str, Any]:
        """For copying and saving: without what was packed."""
        return self.__dict__ | {"_packed": _Packed()}


def _needs_composition(x: Tensor, weight: Tensor, *others: Tensor | None) -> bool:
    """Whether the kernel must not run, because something has to see the single operations:
    autograd, autocast, a compiler, a counter, a tracer with stand-ins for tensors.
    """
    return (
        type(x) is not Tensor
        or x.dtype is not torch.float32
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or counts_operations()
        or torch.autograd.forward_ad._current_level >= 0  # forward-mode derivatives are wanted
        or torch._C._functorch.peek_interpreter_stack() is not None  # vmap, and others like it
        or weight.is_inference()  # such a tensor does not count its changes
        or (
            torch.is_grad_enabled()
            and any(t is not None and t.requires_grad for t in (x, weight, *others))
        )
    )


def counts_operations() -> bool:
    """Whether `count_macs` is at work, which sees nothing inside a kernel of oneDNN."""
    return type(_get_current_dispatch_mode()).__name__.endswith("CounterMode")


def _geometry(layer: nn.Module) -> tuple[Any, ...]:
    """Stride, padding, dilation and groups in numbers, 'same' and 'valid' too."""
    if type(layer) is not nn.Conv2d:
        raise Declined(f"there is no fused form of {type(layer).__name__}")
    mode = layer.padding_mode
    if mode != "zeros":
        raise Declined(f"it pads with padding_mode={mode!r}, and the kernels pad with zeros")
    sides = padding_of(layer)[::-1]
    if sides[::2] != sides[1::2]:
        raise Declined("it pads left and right by different amounts ('same' with an even kernel)")
    return _pair(layer.stride), tuple(sides[::2]), _pair(layer.dilation), layer.groups
