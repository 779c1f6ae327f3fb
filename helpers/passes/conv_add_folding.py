"""What stands beside a convolution or linear layer, and is no layer: constants after it, and zeros
before it.

    (W x + b) + z  ->  b' = b + z        (W x + b) - z  ->  b' = b - z        z - (W x + b)  ->  W'
    = -W, b' = z - b
    (W x + b) z    ->  W' = z W, b' = z b                (W x + b) / z  ->  W' = W / z, b' = b / z
    conv(pad(x, p), padding=q)  ->  conv(x, padding=p + q)
    x @ W, addmm(b, x, W)       ->  nn.Linear with the weight W^T, so that what follows folds as
    after any layer

A constant folds when it is a number or differs along the channels only, and neither shape nor dtype
of the result depend on it; padding when it is by zeros, and the same on both sides.
"""

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers.graphs.editing import Editor, with_tensors
from helpers.graphs.errors import MustStay
from helpers.graphs.layers import channel_axis, opaque, rank
from helpers.graphs.operations import CONVS
from helpers.graphs.patterns import Constant, Match, Op, Value
from helpers.passes.conv_bn_folding import LAYER, PerChannel, after_layer
from helpers.passes.rewriter import MatchRewriter, Rule, Rules

Z = Constant("z")


def per_channel(value: Any, node: fx.Node, layer: nn.Module) -> torch.Tensor:
    """A constant operand of a call of a layer as one number per output channel, or one for all, in
    double precision.

    Raises:
        MustStay: the constant differs along another axis than the channels.
    """
    wide = torch.complex128 if torch.as_tensor(value).is_complex() else torch.float64
    if not isinstance(value, torch.Tensor):
        return torch.as_tensor(value, dtype=wide)
    shape, axis = (*[1] * (rank(node) - value.dim()), *value.shape), channel_axis(layer, rank(node))
    if any(size != 1 for position, size in enumerate(shape) if position != axis):
        raise MustStay(
            f"the constant of shape {tuple(value.shape)} differs along another axis than the"
            " channels"
        )
    return value.detach().reshape(-1).to(wide)


def _constant(affine: Callable[[torch.Tensor], tuple[PerChannel, PerChannel]]) -> Rule:
    """The rule of a map that is given by the constant z."""
    return after_layer(
        lambda match, layer: affine(per_channel(match.constant("z"), match["layer"], layer))
    )


def _not_affine(match: Match, layer: nn.Module) -> tuple[PerChannel, PerChannel]:
    raise MustStay(f"dividing by {match['layer']} is not an affine map of it")


class ConvAddFolding(MatchRewriter):
    """b' = b + z, when z is a constant per channel."""

    name = "conv_add_folding"
    rules: ClassVar[Rules] = {
        Op([operator.add], (LAYER, Z), commutative=True): _constant(lambda z: (1, z)),
        Op([operator.sub], (LAYER, Z)): _constant(lambda z: (1, -z)),
        Op([operator.sub], (Z, LAYER)): _constant(lambda z: (-1, z)),
    }


class ConvMulFolding(MatchRewriter):
    """W' = z W, b' = z b, when z is a constant per channel."""

    name = "conv_mul_folding"
    rules: ClassVar[Rules] = {
        Op([operator.mul], (LAYER, Z), commutative=True): _constant(lambda z: (z, 0.0)),
        Op([operator.truediv], (LAYER, Z)): _constant(lambda z: (1 / z, 0.0)),
        Op([operator.truediv], (Z, LAYER)): after_layer(_not_affine),
    }


def _pad(match: Match, editor: Editor) -> tuple[fx.Node, str]:
    """A convolution that pads by more, in place of zeros around its input."""
    node, conv, pad = match.anchor, editor.module(match.anchor), match["pad"]
    given, sides = pad.args[1], 2 * len(conv.kernel_size)
    amounts = [*given] if isinstance(given, (list, tuple)) else [given]  # or computed as a whole
    padded = (amounts + [0] * sides)[:sides]
    low, high = padded[::2][::-1], padded[1::2][::-1]
    if opaque(conv) is not None:
        raise MustStay(opaque(conv))
    if editor.storage.is_written(pad.args[0]) or editor.storage.is_tensor_written(conv.weight):
        raise MustStay("somebody writes into its input or its weight")
    if pad.kwargs.get("mode", "constant") != "constant" or pad.kwargs.get("value") not in (None, 0):
        raise MustStay("it pads by something else than zeros")
    if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        raise MustStay(f"{node} does not pad by a given number of zeros")
    if not all(isinstance(amount, int) for amount in amounts) or any(amounts[sides:]):
        raise MustStay("it pads by amounts that are computed, or along other axes than the image's")
    if low != high or min(low) < 0:
        raise MustStay(f"it pads differently on both sides, or crops: {pad.args[1]}")
    new = with_tensors(conv)
    new.padding = tuple(own + more for own, more in zip(conv.padding, low, strict=True))
    new._reversed_padding_repeated_twice = [
        amount for amount in new.padding[::-1] for _ in range(2)
    ]
    editor.swap_module(node, new)
    node.args = pad.args[:1]
    editor.erase(pad)
    return pad, f"folded into {node}"


class PadFolding(MatchRewriter):
    """conv(pad(x)) becomes conv with more padding."""

    name = "pad_folding"
    rules: ClassVar[Rules] = {Op(CONVS, (Op([F.pad], name="pad"),)): _pad}


def _is_matrix(value: torch.Tensor | float) -> str | None:
    if not isinstance(value, torch.Tensor) or value.dim() != 2 or not value.is_floating_point():
        return "its constant factor is not a matrix of floating-point numbers"
    return None


def _linear(match: Match, editor: Editor) -> tuple[fx.Node, str]:
    matrix, bias, node = match.constant("weight"), None, match.anchor
    weight = nn.Parameter(matrix.detach().T.contiguous(), requires_grad=matrix.requires_grad)
    if len(match.placeholders) == 3:
        bias = match.constant("bias")
        if not isinstance(bias, torch.Tensor) or bias.shape != weight.shape[:1]:
            raise MustStay("what it adds is not one number per output feature")
        bias = nn.Parameter(bias.detach(), requires_grad=bias.requires_grad)
    layer = nn.Linear(*weight.shape[::-1], bias=False, device="meta").requires_grad_(
        matrix.requires_grad
    )
    path, sources = editor.free_name(node.name), node.all_input_nodes
    editor.graph_module.set_submodule(path, with_tensors(layer, weight=weight, bias=bias).eval())
    editor.retarget(node, "call_module", path, (match["x"],), {})
    editor.forget(sources)
    return node, f"became the linear layer {path}"


class LinearFolding(MatchRewriter):
    """Makes linear layers of matrix products."""

    name = "linear_folding"
    weight = Constant("weight", _is_matrix)
    rules: ClassVar[Rules] = {
        Op([torch.matmul], (Value("x"), weight)): _linear,
        Op(
            [torch.addmm, torch.ops.aten.addmm.default], (Constant("bias"), Value("x"), weight)
        ): _linear,
    }
