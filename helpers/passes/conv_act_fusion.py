"""Convolution (or linear layer) + residual + activation become one node that one kernel computes.

    activation(layer(x, weight, bias) + other)

What a node computes stays the same; what is saved is memory traffic. Without fusion the result of the convolution is
written to memory, read and written again by the addition, and again by the activation. A fused kernel applies all of it
while the numbers are still in registers.

Two passes, in this order: `residual_fusion` takes the addition in, `conv_act_fusion` the activation. A fused node runs
as a plain composition until `kernel_selection` gives it a kernel.

The layer moves to where the activation stood; the pattern search refuses when something on the way writes to its input.
"""

import operator
from dataclasses import replace

import torch
from torch import fx

from helpers.graphs.match import Match
from helpers.graphs.patterns import Op, Value
from helpers.passes import activations
from helpers.passes.activations import NotFusable
from helpers.passes.fused_calls import LAYERS, NotReadable, read, value_of
from helpers.passes.fuser import Fuser
from helpers.passes.registry import register

aten = torch.ops.aten
IN_PLACE_ADDITIONS = (operator.iadd, aten.add_.Tensor, "add_")
ADDITIONS = (operator.add, torch.add, aten.add.Tensor, "add", *IN_PLACE_ADDITIONS)


def _is_tensor(value: object) -> str | None:
    return None if isinstance(value, fx.Node) else f"adds {value}, which is not a tensor"


@register
class ResidualFusion(Fuser):
    """layer(x) + other becomes one node, when both have the same shape."""

    name = "residual_fusion"
    kernels = ("course::conv_act", "course::linear_act")

    def build_pattern(self) -> Op:
        """An addition with a layer on either side."""
        layer = Op(LAYERS, name="layer")
        return Op(ADDITIONS, (layer, Value("other", where=_is_tensor)), commutative=True, name="add")

    def may_fuse(self, match: Match) -> str | None:
        """The shapes must be equal, and an addition in place may only write into the layer's own result."""
        layer, other, add = match["layer"], match["other"], match["add"]
        if other is layer:
            return f"{layer} is added to itself"
        if add.target in IN_PLACE_ADDITIONS:
            return f"{add} writes into {add.args[0]}, which others may read"
        try:
            call = read(layer)
            one, two = value_of(layer), value_of(other)
        except NotReadable as error:
            return str(error)
        if call.other is not None or call.activation.name != "none":
            return f"{layer} is fused already"
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            return f"{other} is {_describe(two)} and {layer} is {_describe(one)}: only equal ones add in the kernel"
        return None

    def make_op(self, match: Match) -> fx.Node:
        """The layer, with what is added as a further operand."""
        return replace(read(match["layer"]), other=match["other"]).insert(match.graph_module.graph)


@register
class ConvActFusion(Fuser):
    """activation(layer(x)) becomes one node."""

    name = "conv_act_fusion"
    kernels = ("course::conv_act", "course::linear_act")

    def build_pattern(self) -> Op:
        """A layer, and an activation on it."""
        return Op(activations.READERS, (Op(LAYERS, name="layer"), ...), name="activation")

    def may_fuse(self, match: Match) -> str | None:
        """Both must be readable; after an addition the kernels know only ReLU."""
        layer, node = match["layer"], match["activation"]
        try:
            call, activation = read(layer), activations.read(node)
        except (NotReadable, NotFusable) as error:
            return str(error)
        if call.activation.name != "none":
            return f"{layer} already ends in {call.activation}"
        if call.other is not None and (activation.name != "relu" or call.geometry is None):
            return f"after an addition the kernels apply ReLU to a convolution, not {activation}"
        return None

    def make_op(self, match: Match) -> fx.Node:
        """The layer, ending in the activation."""
        activation = activations.read(match["activation"])
        return replace(read(match["layer"]), activation=activation).insert(match.graph_module.graph)


def _describe(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}"
