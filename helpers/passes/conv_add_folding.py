"""Constants that follow a layer become part of it, and a product with a matrix becomes a layer.

    (W x + b) + z  ->  b' = b + z
    (W x + b) - z  ->  b' = b - z
    z - (W x + b)  ->  W' = -W,     b' = z - b
    (W x + b) z    ->  W' = z W,    b' = z b
    (W x + b) / z  ->  W' = W / z,  b' = b / z

    x @ W, addmm(b, x, W)       ->  nn.Linear with the weight W^T: what follows folds into it

A constant is folded if it is a number, or a tensor that differs along the channels only, and if the
sum or product has the shape and dtype of the layer's output.
"""

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import fx, nn

from helpers.graphs.errors import Declined
from helpers.graphs.layers import channel_axis, new_layer, rank
from helpers.graphs.matching import Match
from helpers.graphs.operations import called_module
from helpers.graphs.patterns import Constant, OpPattern, Value
from helpers.graphs.rewriting import Rule, Rules
from helpers.passes.base import RulePass
from helpers.passes.conv_bn_folding import LAYER, PerChannel, fold

X, Z = Value("x"), Constant("z")


def per_channel(value: Any, node: fx.Node, layer: nn.Module) -> torch.Tensor:
    """A constant beside a layer's output as one number per channel, or one for all, in double
    precision.

    Raises:
        Declined: the constant differs along an axis other than the channels.
    """
    wide = torch.complex128 if torch.as_tensor(value).is_complex() else torch.float64
    if not isinstance(value, torch.Tensor):
        return torch.as_tensor(value, dtype=wide)
    shape = [1] * (rank(node) - value.dim()) + [*value.shape]
    del shape[channel_axis(layer, rank(node))]
    if any(size != 1 for size in shape):
        raise Declined(
            f"the constant of shape {tuple(value.shape)} differs along an axis other than the"
            " channels"
        )
    return value.detach().reshape(-1).to(wide)


def _rule_of(affine_of: Callable[[torch.Tensor], tuple[PerChannel, PerChannel]]) -> Rule:
    """The rule for a map whose factor and summand follow from the constant z."""

    def affine(match: Match, layer: fx.Node, z: Any) -> tuple[PerChannel, PerChannel]:
        return affine_of(per_channel(z, layer, called_module(layer)))

    return lambda match, layer, z: fold(match, layer, z, affine)


def _divisor(match: Match, layer: fx.Node, z: Any) -> str:
    raise Declined(f"dividing by {layer} is not an affine map of it")


class ConvAddFolding(RulePass):
    """b' = b + z, when z is a constant per channel."""

    name = "conv_add_folding"
    rules: ClassVar[Rules] = {
        OpPattern([operator.add], (LAYER, Z), commutative=True): _rule_of(lambda z: (1, z)),
        OpPattern([operator.sub], (LAYER, Z)): _rule_of(lambda z: (1, -z)),
        OpPattern([operator.sub], (Z, LAYER)): _rule_of(lambda z: (-1, z)),
    }


class ConvMulFolding(RulePass):
    """W' = z W, b' = z b, when z is a constant per channel."""

    name = "conv_mul_folding"
    rules: ClassVar[Rules] = {
        OpPattern([operator.mul], (LAYER, Z), commutative=True): _rule_of(lambda z: (z, 0.0)),
        OpPattern([operator.truediv], (LAYER, Z)): _rule_of(lambda z: (1 / z, 0.0)),
        OpPattern([operator.truediv], (Z, LAYER)): _divisor,
    }


def _check_matrix(value: torch.Tensor | float) -> None:
    if not isinstance(value, torch.Tensor) or value.dim() != 2 or not value.is_floating_point():
        raise Declined("its constant factor is not a matrix of floating-point numbers")


def _linear(match: Match, x: fx.Node, weight: torch.Tensor, bias: Any = None) -> str:
    """Replace x @ weight (+ bias) by a linear layer."""
    editor = match.editor
    node = match.anchor
    fits = isinstance(bias, torch.Tensor) and bias.shape == weight.shape[1:]
    if bias is not None and not fits:
        raise Declined("what it adds is not one number per output feature")
    transposed = weight.detach().T.contiguous()
    transposed = nn.Parameter(transposed, requires_grad=weight.requires_grad)
    layer = new_layer("linear", {}, transposed, bias).eval()
    path = editor.free_name(node.name)
    inputs = node.all_input_nodes
    editor.graph_module.set_submodule(path, layer)
    editor.retarget(node, "call_module", path, (x,), {})
    editor.erase_unread(inputs)
    return f"became the linear layer {path}"


class LinearFolding(RulePass):
    """Makes linear layers of matrix products."""

    name = "linear_folding"
    weight = Constant("weight", _check_matrix)
    addmm = (torch.addmm, torch.ops.aten.addmm.default)
    rules: ClassVar[Rules] = {
        OpPattern([torch.matmul], (X, weight)): _linear,
        OpPattern(addmm, (Constant("bias"), X, weight)): _linear,
    }
