"""Reads a convolution or linear layer out of a canonical graph, and writes it as a fused operation."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from helpers.graphs.layers import CONVS, TRANSPOSED
from helpers.graphs.match import attribute
from helpers.graphs.opaque import opaque
from helpers.passes import fused_ops
from helpers.passes.activations import NO_ACTIVATION, Activation
from helpers.passes.how import Geometry, How, parse
from helpers.passes.kernels import Operands

FUSED = (fused_ops.conv_act, fused_ops.linear_act)
# The transposed ones are among them so that they are declined with their reason.
LAYERS = (*CONVS, *TRANSPOSED, nn.Linear, *FUSED)


class NotReadable(ValueError):
    """A layer that cannot be written as a fused operation; the message is the reason."""


@dataclass(frozen=True)
class LayerCall:
    """A layer in a graph: activation(layer(x, weight, bias) + other).

    Attributes:
        weight, bias: where the network keeps them, as dotted paths.
        geometry: None for a linear layer.
    """

    x: fx.Node
    weight: str
    bias: str | None
    geometry: Geometry | None
    other: fx.Node | None = None
    activation: Activation = NO_ACTIVATION
    kernel: str = "plain"

    def insert(self, graph: fx.Graph) -> fx.Node:
        """Write the fused operation at the graph's insertion point."""
        weight = graph.get_attr(self.weight)
        bias = None if self.bias is None else graph.get_attr(self.bias)
        op = fused_ops.linear_act if self.geometry is None else fused_ops.conv_act
        how = str(How(self.geometry, self.activation, self.kernel))
        return graph.call_function(op, (self.x, weight, bias, self.other, how))

    def operands(self) -> Operands:
        """The same with tensors: the network's own weights, and for the rest values that know shape and dtype.

        Raises:
            NotReadable: the graph does not know its shapes.
        """
        root = self.x.graph.owning_module
        bias = None if self.bias is None else attribute(root, self.bias)
        other = None if self.other is None else value_of(self.other)
        return Operands(value_of(self.x), attribute(root, self.weight), bias, other, self.geometry, self.activation)


def value_of(node: fx.Node) -> torch.Tensor:
    """The tensor without data that says what shape and dtype a node has."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise NotReadable(f"the shape of {node} is not known: trace the network with passes.optimize or tracing.trace")
    return value


def read(node: fx.Node) -> LayerCall:
    """What a node that calls one of `LAYERS` computes.

    Raises:
        NotReadable: it computes more than the fused operations can say; the message gives the reason.
    """
    return _read_module(node) if node.op == "call_module" else _read_fused(node)


def _read_module(node: fx.Node) -> LayerCall:
    module = node.graph.owning_module.get_submodule(node.target)
    if isinstance(module, TRANSPOSED):
        raise NotReadable("it is a transposed convolution, which has no fused operation here")
    if (reason := opaque(module)) is not None:
        raise NotReadable(reason)
    if len(node.args) != 1 or node.kwargs:
        raise NotReadable("it is not called with its input alone")
    bias = None if module.bias is None else f"{node.target}.bias"
    geometry = None if isinstance(module, nn.Linear) else _geometry(module)
    return LayerCall(node.args[0], f"{node.target}.weight", bias, geometry)


def _geometry(module: nn.Module) -> Geometry:
    """Every setting in numbers, 'same' and 'valid' too."""
    if module.padding_mode != "zeros":
        raise NotReadable(f"it pads with padding_mode={module.padding_mode!r}, and the kernels pad with zeros")
    padding = module.padding
    if padding == "valid":
        padding = (0,) * len(module.kernel_size)
    if padding == "same":
        totals = [step * (size - 1) for step, size in zip(module.dilation, module.kernel_size, strict=True)]
        if any(total % 2 for total in totals):
            raise NotReadable("it pads by another amount left than right ('same' with an even kernel)")
        padding = tuple(total // 2 for total in totals)
    return Geometry(module.stride, padding, module.dilation, module.groups)


def _read_fused(node: fx.Node) -> LayerCall:
    x, weight, bias, other, how = node.args
    geometry, activation, kernel = parse(how)
    bias = None if bias is None else _path(bias)
    return LayerCall(x, _path(weight), bias, geometry, other, activation, kernel)


def _path(value: Any) -> str:
    if not isinstance(value, fx.Node) or value.op != "get_attr":
        raise NotReadable(f"its weight or bias {value} is computed by the graph, so it cannot be prepared beforehand")
    return value.target
