"""Affine maps fold into the layer before them: one mechanism, and for each pass a table of maps.

    y_c = a_c (W x + b)_c + z_c      is the layer      W' = a W,   b' = a b + z

with one factor a and one summand z for each output channel c, computed in double precision. Which axis of the weight
counts the output channels depends on the layer:

    convolution              (Cout, Cin / groups, *kernel)       axis 0
    transposed convolution   (Cin, Cout / groups, *kernel)       axis 1, for each group separately
    linear                   (out, in)                           axis 0

The tables stand in conv_bn_folding.py, conv_add_folding.py and linear_folding.py.
"""

import cmath
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor, called, may_match, with_tensors
from helpers.graphs.layers import CONVS, TRANSPOSED, opaque, rank
from helpers.graphs.matching import Match, find
from helpers.graphs.patterns import Op
from helpers.passes.folder import Pass, PassResult

CONVOLUTIONS = (*CONVS, *TRANSPOSED)
# One factor or summand per output channel, or one number for all of them.
PerChannel = torch.Tensor | float
# A pattern whose anchor is the map and whose "layer" is what the map follows -> factor and summand of that map.
Rules = dict[Op, Callable[[Match, nn.Module], tuple[PerChannel, PerChannel]]]


class MustNotFold(Exception):
    """This match must stay; the message is the reason."""


def output_channels(layer: nn.Module) -> int:
    """The number of channels or features that a layer computes."""
    return layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels


def folded(layer: nn.Module, factor: PerChannel, summand: PerChannel) -> nn.Module:
    """The layer followed by the map; see above.

    Raises:
        MustNotFold: the new weights are not finite, or have no data.

    Example:
        >>> doubled = folded(nn.Conv2d(3, 8, 3), factor=2.0, summand=0.0)
    """
    if layer.weight.is_meta:
        raise MustNotFold("its weight has no data (it is on the meta device)")
    # Not a question of the summand's values: the structure must come out the same for any weights.
    needs_bias = layer.bias is not None or isinstance(summand, torch.Tensor) or summand != 0
    with torch.no_grad():
        wide = torch.complex128 if layer.weight.is_complex() else torch.float64
        channels = output_channels(layer)
        factor = torch.as_tensor(factor, dtype=wide, device=layer.weight.device).expand(channels)
        summand = torch.as_tensor(summand, dtype=wide, device=layer.weight.device).expand(channels)
        bias = summand if layer.bias is None else factor * layer.bias.to(wide) + summand
        precise = torch.promote_types(layer.weight.dtype, torch.float32)
        weight = layer.weight * _along_output_axis(layer, factor.to(precise))
        new = {"weight": weight.to(layer.weight.dtype), "bias": bias.to(layer.weight.dtype) if needs_bias else None}
    if not all(_is_finite(tensor) for tensor in new.values() if tensor is not None):
        raise MustNotFold(f"the folded weights are not finite in {layer.weight.dtype}")
    return with_tensors(layer, **new)


def _is_finite(tensor: torch.Tensor) -> bool:
    """One infinity or NaN makes the sum infinite or NaN; a sum that overflows by itself asks for the slow check."""
    return cmath.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())


def _along_output_axis(layer: nn.Module, factor: torch.Tensor) -> torch.Tensor:
    """The factors in a shape that multiplies the weight."""
    ones = [1] * (layer.weight.dim() - 2)
    if type(layer) not in TRANSPOSED:
        return factor.reshape(-1, 1, *ones)
    per_group = factor.reshape(layer.groups, 1, -1, *ones)
    inside = layer.in_channels // layer.groups
    return per_group.expand(-1, inside, *per_group.shape[2:]).reshape(layer.in_channels, -1, *ones)


class Fold(Pass):
    """A pass that folds the maps of its table: match -> may I fold? -> fold."""

    rules: ClassVar[Rules]

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """A map behind a folded map is next to the layer the second time: go on until nothing matches."""
        result, present = PassResult(), called(graph_module)
        for pattern, affine in self.rules.items():
            if may_match(pattern, present):
                editor = Editor(graph_module)
                while _fold_all(pattern, affine, editor, result):
                    pass
        return result


def _fold_all(pattern: Op, affine: Callable[..., Any], editor: Editor, result: PassResult) -> bool:
    """Fold every match of a pattern. Returns whether there was one; the last time, the refusals are noted."""
    ready: dict[fx.Node, nn.Module] = {}

    def may_fold(match: Match) -> str | None:
        reason = _objection(match, editor)
        if reason is None:
            layer = editor.module(match["layer"])
            try:
                ready[match.anchor] = folded(layer, *affine(match, layer))
            except MustNotFold as refusal:
                reason = str(refusal)
        return reason

    found = find(editor.graph_module, pattern, filters=[may_fold])
    for match in found.matches:
        result.change(match.anchor, f"folded into {match['layer']}")
        editor.swap_module(match["layer"], ready[match.anchor])
        editor.replace(match.anchor, match["layer"])
    for refusal in [] if found.matches else found.refused:
        result.decline(refusal.node, refusal.reason)
    return bool(found.matches)


def _objection(match: Match, editor: Editor) -> str | None:
    """What holds for every map: an ordinary layer, tensors that nobody writes to, shape and dtype that stay."""
    node, layer, norm = match["layer"], editor.module(match["layer"]), editor.module(match.anchor)
    if norm is not None and any(map(editor.storage.is_tensor_written, (*norm.parameters(), *norm.buffers()))):
        return "the graph writes to its statistics or parameters"
    if opaque(layer) is not None:
        return f"{node}: {opaque(layer)}"
    if any(map(editor.storage.is_tensor_written, (layer.weight, layer.bias))):
        return f"the graph writes to the weights of {node}"
    before, after = node.meta.get("val"), match.anchor.meta.get("val")
    if before is None or after is None:
        return "shapes are not known: trace with example inputs"
    if before.shape != after.shape:
        return f"it changes the shape from {tuple(before.shape)} to {tuple(after.shape)}"
    return f"it changes the dtype from {before.dtype} to {after.dtype}" if before.dtype != after.dtype else None


def with_constant(affine: Callable[[Any], tuple[PerChannel, PerChannel]]) -> Callable[..., Any]:
    """A map that is given by the constant that its pattern calls z, as one number per output channel."""
    return lambda match, layer: affine(per_channel(match.constant("z"), match["layer"], layer))


def per_channel(value: Any, node: fx.Node, layer: nn.Module) -> torch.Tensor:
    """A constant operand as one number per output channel, or one for all, in double precision.

    Args:
        value: a number, or a tensor that broadcasts against the output of the layer.
        node: the call of the layer.

    Raises:
        MustNotFold: the constant differs along another axis than the channels.
    """
    wide = torch.complex128 if torch.as_tensor(value).is_complex() else torch.float64
    if not isinstance(value, torch.Tensor):
        return torch.as_tensor(value, dtype=wide)
    if value.is_meta:
        raise MustNotFold("the constant has no data (it is on the meta device)")
    axis, dimensions = channel_axis(node, layer), rank(node)
    shape = (*[1] * (dimensions - value.dim()), *value.shape)
    if any(size != 1 for position, size in enumerate(shape) if position != axis):
        raise MustNotFold(f"the constant of shape {tuple(value.shape)} differs along another axis than the channels")
    return value.detach().reshape(-1).to(wide)


def channel_axis(node: fx.Node, layer: nn.Module) -> int:
    """The axis of a layer's output that counts its channels; images may come without a batch dimension."""
    return rank(node) - 1 if isinstance(layer, nn.Linear) else rank(node) - 1 - len(layer.kernel_size)
