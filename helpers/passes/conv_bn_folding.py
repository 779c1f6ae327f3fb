"""Batch norm folded into the convolution or linear layer before it.

    BN(y)_c = gamma_c (y_c - mu_c) / sqrt(var_c + eps) + beta_c = a_c y_c + z_c
    a = gamma / sqrt(var + eps)        z = beta - a mu

and a (W x + b) + z is the layer with

    W' = a W,   b' = a b + z = a (b - mu) + beta,

a and b' computed in double precision. Output channels are axis 0 of W, and axis 1, for each group
separately, of a transposed convolution's. Folds when: the batch norm normalises by its running
statistics, its channels are those of the layer (which they are not when an image comes without a
batch dimension), and nobody else reads what the layer computes.

`after_layer` folds every such map y -> a y + z; conv_add_folding.py has the others.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor, with_tensors
from helpers.graphs.effects import attribute
from helpers.graphs.errors import MustStay
from helpers.graphs.layers import channel_axis, opaque, output_channels, rank
from helpers.graphs.operations import CONVS, NORMS, TRANSPOSED
from helpers.graphs.patterns import Match, Op
from helpers.passes.rewriter import MatchRewriter, Rule, Rules, check_same_form

LAYER = Op((*CONVS, *TRANSPOSED, nn.Linear), name="layer")
# One factor or summand per output channel, or one number for all of them.
PerChannel = torch.Tensor | float


def folded(layer: nn.Module, factor: PerChannel, summand: PerChannel) -> nn.Module:
    """The layer followed by the map y -> factor y + summand.

    Raises:
        MustStay: the new weights are not finite (a finite sum says so quickly), or have no data.
    """
    dtype = layer.weight.dtype
    if layer.weight.is_meta:
        raise MustStay("its weight has no data (it is on the meta device)")
    # Not a question of the summand's values: the structure must come out the same for any weights.
    needs_bias = layer.bias is not None or isinstance(summand, torch.Tensor) or summand != 0
    with torch.no_grad():
        like = {
            "dtype": torch.complex128 if dtype.is_complex else torch.float64,
            "device": layer.weight.device,
        }
        a, z = (
            torch.as_tensor(value, **like).expand(output_channels(layer))
            for value in (factor, summand)
        )
        weight = layer.weight * _along_output_axis(
            layer, a.to(torch.promote_types(dtype, torch.float32))
        )
        bias = z if layer.bias is None else a * layer.bias.to(a.dtype) + z
        new = {"weight": weight.to(dtype), "bias": bias.to(dtype) if needs_bias else None}
    if not all(t.sum().isfinite() or t.isfinite().all() for t in new.values() if t is not None):
        raise MustStay(f"the folded weights are not finite in {dtype}")
    return with_tensors(layer, **new)


def _along_output_axis(layer: nn.Module, factor: torch.Tensor) -> torch.Tensor:
    """The factors in a shape that multiplies the weight."""
    ones = [1] * (layer.weight.dim() - 2)
    if type(layer) not in TRANSPOSED:
        return factor.reshape(-1, 1, *ones)
    return factor.reshape(layer.groups, -1, *ones).repeat_interleave(
        layer.in_channels // layer.groups, 0
    )


def after_layer(affine: Callable[[Match, nn.Module], tuple[PerChannel, PerChannel]]) -> Rule:
    """The rule that folds a map into the layer before it; `affine` gives its factor and summand, or
    says why not.
    """

    def rule(match: Match, editor: Editor) -> tuple[fx.Node, str]:
        layer = editor.module(match["layer"])
        _refuse(match, editor, layer)
        factor, summand = affine(match, layer)
        norm = editor.module(match.anchor)
        other = match.constant("z") if norm is None else norm
        key = affine, id(layer), other if isinstance(other, (int, float, complex)) else id(other)
        path, new, *_ = editor.folded.get(key, ("", None))
        if new is not None and attribute(editor.graph_module, path) is new:
            match["layer"].target = path
        else:
            editor.swap_module(match["layer"], new := folded(layer, factor, summand))
            editor.folded[key] = (
                match["layer"].target,
                new,
                layer,
                other,
            )  # the last two keep their ids for themselves
        editor.replace(match.anchor, match["layer"])
        return match.anchor, f"folded into {match['layer']}"

    return rule


def _refuse(match: Match, editor: Editor, layer: nn.Module) -> None:
    """What holds for every map: an ordinary layer, tensors that nobody writes to, shape and dtype
    that stay.
    """
    node, norm = match["layer"], editor.module(match.anchor)
    ordinary = (
        norm is not None and not norm.training and opaque(norm) is None
    )  # or `_norm` has a better reason
    own = (*norm._parameters.values(), *norm._buffers.values()) if ordinary else ()
    if any(map(editor.storage.is_tensor_written, own)):
        raise MustStay("the graph writes to its statistics or parameters")
    if opaque(layer) is not None:
        raise MustStay(f"{node}: {opaque(layer)}")
    if any(map(editor.storage.is_tensor_written, (layer.weight, layer.bias))):
        raise MustStay(f"the graph writes to the weights of {node}")
    check_same_form(node, match.anchor)


def norm_as_affine(norm: nn.Module) -> tuple[PerChannel, PerChannel]:
    """The factor and the summand of a batch norm in eval mode, in double precision."""
    mean, var = norm.running_mean.detach().double(), norm.running_var.detach().double()
    gamma = 1.0 if norm.weight is None else norm.weight.detach().double()
    beta = 0.0 if norm.bias is None else norm.bias.detach().double()
    a = gamma / (var + norm.eps).sqrt()
    return a, beta - a * mean


def _norm(match: Match, layer: nn.Module) -> tuple[PerChannel, PerChannel]:
    """The batch norm at the anchor, if it is an affine map of the layer's output channels."""
    node, norm = match["layer"], match.graph_module.get_submodule(match.anchor.target)
    if (reason := opaque(norm)) is not None:
        raise MustStay(reason)
    if norm.running_mean is None or norm.running_var is None:
        raise MustStay("it has no running statistics, so it normalises by those of the batch")
    if norm.training:
        raise MustStay("it is in training mode, so it normalises by the statistics of the batch")
    if channel_axis(layer, rank(node)) != 1:
        raise MustStay(f"axis 1 of the {rank(node)}-D output of {node} does not count its channels")
    if norm.running_mean.numel() != output_channels(layer):
        raise MustStay(
            f"it has {norm.running_mean.numel()} channels and {node} has {output_channels(layer)}"
        )
    return norm_as_affine(norm)


class ConvBnFolding(MatchRewriter):
    """W' = a W, b' = a (b - mu) + beta, for linear layers and every kind of convolution."""

    name = "conv_bn_folding"
    rules: ClassVar[Rules] = {Op(NORMS, (LAYER,)): after_layer(_norm)}
