"""A convolution with what follows it, as one module that one oneDNN call computes: activation(conv(x) + other).

Without fusion its result is written to memory, read and written again by an addition, and again by the
activation. The fused kernel does all of it while the numbers are still in registers.

oneDNN wants the weight in an order of its own, which depends on the shape of the input. That packed copy is kept beside
the parameters and is no part of the network's state; it is made again when the weight has changed. Where the kernel
does not apply (other dtypes and devices, gradients wanted, autocast, tracing) the plain composition runs.

Two differences to know: oneDNN's relu and hardtanh turn a NaN into 0, where PyTorch's own keep it; and nobody can
notice a change through `weight.data`, so call `refresh(network)` after `weight.data.mul_(2)`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from helpers.graphs.errors import MustStay
from helpers.graphs.operations import CONVS

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
SHAPES_KEPT = 4  # a weight is packed for one input shape; after more than this all are packed anew
Run = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]  # takes x, bias and what is added


class Activation(NamedTuple):
    """How an activation is written, its numbers, and what oneDNN calls it."""

    function: Callable[..., Tensor]
    scalars: tuple[float, ...] = ()
    onednn: str = "none"
    algorithm: str | None = None

    def __str__(self) -> str:
        numbers = ", ".join(f"{number:g}" for number in self.scalars)
        return f"{self.function.__name__}({numbers})" if numbers else self.function.__name__


def _hardtanh(min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Activation:
    return Activation(F.hardtanh, (min_val, max_val), "hardtanh")


def _clamp(min: float | None = None, max: float | None = None) -> Activation:
    if (min is None or max is None) and (min, max) != (0, None):
        raise MustStay("clamp with one limit is no activation that the kernels know, except min=0")
    return Activation(F.relu, (), "relu") if max is None else _hardtanh(min, max)


def _gelu(approximate: str = "none") -> Activation:
    if approximate != "none":
        raise MustStay(f"gelu with approximate={approximate!r} is not the gelu that the kernels compute")
    return Activation(F.gelu, (), "gelu", "none")


PLAIN = {F.relu: "relu", F.hardswish: "hardswish", F.silu: "swish", torch.sigmoid: "sigmoid", torch.tanh: "tanh"}
CLAMPS = (torch.clamp, torch.clip, "clamp", "clamp_", "clip", "clip_", aten.clamp.default, aten.clamp_.default)
# What a node of a canonical graph calls -> what it computes, from the arguments behind its input.
ACTIVATIONS: dict[Any, Callable[..., Activation]] = {
    **{f: lambda inplace=False, f=f, name=name: Activation(f, (), name) for f, name in PLAIN.items()},
    F.relu6: lambda inplace=False: _hardtanh(0.0, 6.0),
    F.hardtanh: _hardtanh,
    F.leaky_relu: lambda negative_slope=0.01, inplace=False: Activation(F.leaky_relu, (negative_slope,), "leaky_relu"),
    F.gelu: _gelu,
    **dict.fromkeys(CLAMPS, _clamp),
}
NOTHING = Activation(lambda y: y)


def read_activation(node: fx.Node) -> Activation:
    """What an activation node computes.

    Raises:
        MustStay: its arguments ask for something that the kernels do not compute.
    """
    found = ACTIVATIONS[node.target](*node.args[1:], **node.kwargs)
    for value in found.scalars:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise MustStay(f"{value} is not a number that is known beforehand")
    if found.onednn == "hardtanh" and found.scalars[0] > found.scalars[1]:
        raise MustStay(f"clamp({found.scalars[0]:g}, {found.scalars[1]:g}) is a constant, which the kernels refuse")
    return found._replace(scalars=tuple(map(float, found.scalars)))


class FusedLayer(nn.Module):
    """activation(conv(x) + other), with the parameters of the convolution.

    Args:
        layer: a convolution, or a `FusedLayer` that has no activation yet.
        activation: what follows, None for nothing.

    Attributes:
        kernel: what the last new shape was prepared for: "oneDNN" or "composition".

    Raises:
        MustStay: there is no fused form of the layer.

    Example:
        >>> fused = FusedLayer(nn.Conv2d(3, 8, 3), read_activation(node))
        >>> with torch.no_grad(): fused(images)
    """

    only_computes = True  # effects.py: the result is a new tensor, and nothing else happens

    def __init__(self, layer: nn.Module, activation: Activation | None = None):
        super().__init__()
        self.register_parameter("weight", layer.weight)
        self.register_parameter("bias", layer.bias)
        self.geometry = layer.geometry if isinstance(layer, FusedLayer) else _geometry(layer)
        self.activation = activation
        self.training, self.kernel = layer.training, "composition"
        self.refresh()

    def refresh(self) -> None:
        """Forget the packed weights; the next call packs them again."""
        self._runs: dict[Any, Run] = {}

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Run the kernel that is prepared for this shape, or the composition."""
        weight, bias = self._parameters["weight"], self._parameters["bias"]  # self.weight takes five times as long
        if _needs_composition(x, weight, bias, other):
            return self.composition(x, other)
        key = x.shape, weight._version, weight.data_ptr(), None if other is None else (other.shape, other.dtype)
        return (self._runs.get(key) or self._prepare(key, x, other))(x, bias, other)

    def composition(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """The same in PyTorch's own operations."""
        result = self._convolution(x, self.weight, self.bias)
        result = result if other is None else result + other
        return result if self.activation is None else self.activation.function(result, *self.activation.scalars)

    def _convolution(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return CONVOLUTIONS[len(self.geometry[0])](x, weight, bias, *self.geometry)

    def objection(self, x: Tensor, other: Tensor | None = None) -> str | None:
        """Why no kernel can run on such inputs; None when one can."""
        if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
            return "this build of PyTorch has no oneDNN, or it is switched off (torch.backends.mkldnn)"
        if x.dtype != torch.float32 or self.weight.dtype != torch.float32:
            return f"the kernels are for float32, not {self.weight.dtype if x.dtype == torch.float32 else x.dtype}"
        if self.weight.device.type != "cpu":
            return f"the kernels are for cpu, not {self.weight.device.type}"
        if x.dim() != 4:
            return f"the kernels take a batch of images (4 dimensions), not {x.dim()} dimensions"
        if other is not None:
            own = self._convolution(x.to("meta"), self.weight.to("meta"), None)
            if (own.shape, own.dtype) != (other.shape, other.dtype):
                return f"what is added ({tuple(other.shape)}, {other.dtype}) is not of the output's shape and dtype"
        return "there is nothing to compute" if x.numel() == 0 else None

    def _prepare(self, key: Any, x: Tensor, other: Tensor | None) -> Run:
        """How to run this shape, remembered."""
        if self.objection(x, other) is None:
            self.kernel, run = "oneDNN", self._packed(x)
        else:
            self.kernel, run = "composition", lambda x, bias, other: self.composition(x, other)
        if len(self._runs) == SHAPES_KEPT:
            self.refresh()
        run.packed_from = self.weight.detach()  # so that no other tensor gets its address
        self._runs[key] = run
        return run

    def _packed(self, x: Tensor) -> Run:
        stride, padding, dilation, groups = self.geometry
        dense = self.weight.detach().contiguous(memory_format=torch.channels_last)
        with torch.inference_mode(False):
            packed = mkldnn._reorder_convolution_weight(dense, padding, stride, dilation, groups, tuple(x.shape))
        _, scalars, name, algorithm = self.activation or NOTHING
        one, two = mkldnn._convolution_pointwise.default, mkldnn._convolution_pointwise.binary
        geometry, then = (padding, stride, dilation, groups), None if name == "none" else name

        def run(x: Tensor, bias: Tensor | None, other: Tensor | None) -> Tensor:
            if other is None:
                return one(x, packed, bias, *geometry, name, scalars, algorithm)
            return two(x, other, packed, bias, *geometry, "add", 1.0, then, (), None)

        return run

    def __getstate__(self) -> dict[str, Any]:
        """For copying and saving: without what was packed."""
        return self.__dict__ | {"_runs": {}}

    def extra_repr(self) -> str:
        """What it computes, as shown by print(network)."""
        return f"{tuple(self.weight.shape)}, then {self.activation or 'nothing'}"


def _needs_composition(x: Tensor, *others: Tensor | None) -> bool:
    """Whether somebody looks inside: autograd, autocast, a compiler, or a tracer with stand-ins for tensors."""
    return (
        type(x) is not Tensor
        or x.dtype is not torch.float32
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or others[0].is_inference()  # it does not count its changes
        or (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *others)))
    )


def _geometry(layer: nn.Module) -> tuple[Any, ...]:
    """Stride, padding, dilation and groups in numbers, 'same' and 'valid' too."""
    if not isinstance(layer, CONVS):
        raise MustStay(f"there is no fused form of {type(layer).__name__}")
    if layer.padding_mode != "zeros":
        raise MustStay(f"it pads with padding_mode={layer.padding_mode!r}, and the kernels pad with zeros")
    sides = layer._reversed_padding_repeated_twice[::-1]
    if sides[::2] != sides[1::2]:
        raise MustStay("it pads by another amount left than right ('same' with an even kernel)")
    return layer.stride, tuple(sides[::2]), layer.dilation, layer.groups


def refresh(network: nn.Module) -> None:
    """Pack the weights of all fused layers anew, after a change that PyTorch does not count: `p.data.mul_(2)`."""
    for module in network.modules():
        if isinstance(module, FusedLayer):
            module.refresh()
