"""Batch norm folded into the convolution or linear layer before it.

    BN(y)_c = gamma_c (y_c - mu_c) / sqrt(var_c + eps) + beta_c = a_c y_c + z_c
    a = gamma / sqrt(var + eps)        z = beta - a mu

and a (W x + b) + z is the layer with

    W' = a W,   b' = a b + z = a (b - mu) + beta,

where a and b' are computed in double precision. Output channels are axis 0 of W; of a transposed
convolution they are axis 1, in each group. The batch norm is folded if it normalises by its running
statistics, its channels are those of the layer (not so if an image comes without a batch
dimension), and nothing else reads what the layer computes.

`fold` folds any map y -> a y + z into the layer; conv_add_folding.py has maps that are no batch
norm.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import fx, nn

from helpers.graphs.editing import with_tensors
from helpers.graphs.errors import Declined
from helpers.graphs.layers import channel_axis, output_channels, rank, why_not_ordinary
from helpers.graphs.matching import Match
from helpers.graphs.operations import CONVS, NORMS, TRANSPOSED, attribute, called_module
from helpers.graphs.patterns import OpPattern
from helpers.graphs.rewriting import Rules
from helpers.passes.base import RulePass, check_same_form

LAYER = OpPattern((*CONVS, *TRANSPOSED, nn.Linear), name="layer")
# One factor or summand per output channel, or one number for all of them.
PerChannel = torch.Tensor | float
# Gives factor and summand of what follows a layer, from the match, the layer's node, and the batch
# norm or constant.
Affine = Callable[[Match, fx.Node, Any], tuple[PerChannel, PerChannel]]


def fold(match: Match, layer: fx.Node, operand: Any, affine: Affine) -> str:
    """Fold the anchor, an affine map of the layer's output, into the layer.

    Args:
        operand: the batch norm or the constant. Where the same layer meets the same operand again,
            both calls share one new layer.
        affine: gives the map, or declines.
    """
    editor = match.editor
    module = called_module(layer)
    if why_not_ordinary(module) is not None:
        raise Declined(f"{layer}: {why_not_ordinary(module)}")
    if editor.storage.is_module_written(module):
        raise Declined(f"the graph writes to the weights of {layer}")
    check_same_form(layer, match.anchor)
    factor, summand = affine(match, layer, operand)
    path, new = editor.folded.get((module, operand), ("", None))
    if new is not None and attribute(editor.graph_module, path) is new:
        layer.target = path
    else:
        new = folded(module, factor, summand)
        editor.swap_module(layer, new)
        editor.folded[module, operand] = layer.target, new
    editor.replace(match.anchor, layer)
    return f"folded into {layer}"


def folded(layer: nn.Module, factor: PerChannel, summand: PerChannel) -> nn.Module:
    """The layer followed by the map y -> factor y + summand.

    Raises:
        Declined: the new weights are not finite, or have no data.
    """
    dtype, device = layer.weight.dtype, layer.weight.device
    if layer.weight.is_meta:
        raise Declined("its weight has no data (it is on the meta device)")
    wide = torch.complex128 if dtype.is_complex else torch.float64
    with torch.no_grad():
        channels = output_channels(layer)
        a = torch.as_tensor(factor, dtype=wide, device=device).expand(channels)
        z = torch.as_tensor(summand, dtype=wide, device=device).expand(channels)
        row_factors = a.to(torch.promote_types(dtype, torch.float32))
        weight = layer.weight * _along_output_axis(layer, row_factors)
        bias = z if layer.bias is None else a * layer.bias.to(wide) + z
        new = {"weight": weight.to(dtype), "bias": bias.to(dtype)}
    # The number 0 adds no bias. A tensor of zeros does, because the structure must not depend on
    # the weights.
    if layer.bias is None and not isinstance(summand, torch.Tensor) and summand == 0:
        new["bias"] = None
    tensors = [tensor for tensor in new.values() if tensor is not None]
    # The sum is tried first because it is faster; it may overflow where no number is infinite.
    if not all(tensor.sum().isfinite() or tensor.isfinite().all() for tensor in tensors):
        raise Declined(f"the folded weights are not finite in {dtype}")
    return with_tensors(layer, **new)


def _along_output_axis(layer: nn.Module, factor: torch.Tensor) -> torch.Tensor:
    """The factors in a shape that multiplies the weight."""
    ones = [1] * (layer.weight.dim() - 2)
    if type(layer) not in TRANSPOSED:
        return factor.reshape(-1, 1, *ones)
    per_group = factor.reshape(layer.groups, -1, *ones)
    return per_group.repeat_interleave(layer.weight.shape[0] // layer.groups, 0)


def norm_as_affine(norm: nn.Module) -> tuple[PerChannel, PerChannel]:
    """The factor and the summand of a batch norm in eval mode, in double precision."""
    mean, var = norm.running_mean.detach().double(), norm.running_var.detach().double()
    gamma = 1.0 if norm.weight is None else norm.weight.detach().double()
    beta = 0.0 if norm.bias is None else norm.bias.detach().double()
    a = gamma / (var + norm.eps).sqrt()
    return a, beta - a * mean


def _norm(match: Match, layer: fx.Node, norm: nn.Module) -> tuple[PerChannel, PerChannel]:
    if why_not_ordinary(norm) is not None:
        raise Declined(why_not_ordinary(norm))
    if norm.running_mean is None or norm.running_var is None:
        raise Declined("it has no running statistics, so it normalises by those of the batch")
    if norm.training:
        raise Declined("it is in training mode, so it normalises by the statistics of the batch")
    if match.editor.storage.is_module_written(norm):
        raise Declined("the graph writes to its statistics or parameters")
    module = called_module(layer)
    if channel_axis(module, rank(layer)) != 1:
        raise Declined(
            f"axis 1 of the {rank(layer)}-D output of {layer} does not count its channels"
        )
    channels = norm.running_mean.numel()
    if channels != output_channels(module):
        raise Declined(f"it has {channels} channels and {layer} has {output_channels(module)}")
    return norm_as_affine(norm)


def _fold_norm(match: Match, layer: fx.Node, norm: fx.Node) -> str:
    return fold(match, layer, called_module(norm), _norm)


class ConvBnFolding(RulePass):
    """W' = a W, b' = a (b - mu) + beta, for linear layers and every kind of convolution."""

    name = "conv_bn_folding"
    rules: ClassVar[Rules] = {OpPattern(NORMS, (LAYER,), name="norm"): _fold_norm}
