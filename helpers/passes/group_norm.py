"""What of a GroupNorm folds, and what cannot.

    GN(x) = gamma (x - mean) / sqrt(var + eps) + beta,   mean and var over the channels of a group in one image

    mean, var     come from the data of each image: never
    a bias right before it that is the same for all channels of a group: the mean takes it away again, so it can go
    gamma         into the next layer:   W' = W gamma (by input channel)
    beta          into the next layer:   b' = b + W beta, unless that layer pads with zeros, which are not beta

Next means next: one user, a convolution (not transposed) or a linear layer over the channels, nothing in between.
"""

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor, with_tensors
from helpers.graphs.layers import opaque
from helpers.graphs.matching import Match, find
from helpers.graphs.patterns import Op
from helpers.passes.folder import Pass, PassResult
from helpers.passes.registry import register

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@register
class GroupNormFolding(Pass):
    """Folds the affine part of a GroupNorm into the next convolution, and drops a bias that it would take away.

    Example:
        >>> Passer(["group_norm_folding"]).run(graph_module)
    """

    name = "group_norm_folding"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Bias before, affine part after, and the reason why the rest stays."""
        result, editor = PassResult(), Editor(graph_module)
        norm = Op([nn.GroupNorm], name="norm")
        for match in find(graph_module, Op([nn.GroupNorm], (Op(CONVS, name="layer"),), name="norm")).matches:
            _drop_bias(match, editor, result)
        found = find(graph_module, Op(CONVS, (norm,), name="layer"), filters=[lambda match: _objection(match, editor)])
        for refusal in found.refused:
            result.decline(refusal.node, refusal.reason)
        for match in found.matches:
            _fold_forward(match, editor, result)
        for node in graph_module.graph.find_nodes(op="call_module"):
            if type(editor.module(node)) is nn.GroupNorm:
                result.decline(node, "its mean and variance come from the data of each image: only they stay")
        return result


def _objection(match: Match, editor: Editor) -> str | None:
    norm, layer = editor.module(match["norm"]), editor.module(match["layer"])
    if norm.weight is None:
        return f"{match['norm']} has no affine part left to fold"
    return _reason_to_stay(norm, layer, editor)


def _reason_to_stay(norm: nn.Module, layer: nn.Module, editor: Editor) -> str | None:
    tensors = (norm.weight, norm.bias, layer.weight, layer.bias)
    written = any(map(editor.storage.is_tensor_written, tensors))
    return opaque(norm) or opaque(layer) or ("the graph writes to its parameters" if written else None)


def _drop_bias(match: Match, editor: Editor, result: PassResult) -> None:
    """A bias that is constant within each group shifts the mean by just as much."""
    layer, norm = editor.module(match["layer"]), editor.module(match["norm"])
    if layer.bias is None:
        return
    reason = _reason_to_stay(norm, layer, editor)
    groups = layer.bias.detach().view(norm.num_groups, -1)
    if reason is None and not bool((groups == groups[:, :1]).all()):
        reason = f"its bias differs within a group of {match['norm']}, which takes away only what all channels share"
    if reason is not None:
        result.decline(match["layer"], reason)
        return
    editor.swap_module(match["layer"], with_tensors(layer, bias=None))
    result.change(match["layer"], f"lost its bias, which {match['norm']} takes away")


def _fold_forward(match: Match, editor: Editor, result: PassResult) -> None:
    """W' = W gamma, b' = b + W beta; beta stays behind if the layer pads."""
    layer, norm = editor.module(match["layer"]), editor.module(match["norm"])
    beta = norm.bias.detach()
    pads = layer.padding != "valid" and any(layer.padding if not isinstance(layer.padding, str) else (1,))
    keeps_beta = pads and layer.padding_mode == "zeros" and bool(beta.any())
    weight = layer.weight.detach()
    tensors = {"weight": weight * _by_input(norm.weight.detach(), layer)}
    if keeps_beta:
        # gamma x + beta = gamma (x + beta / gamma): the shift would have to come first, where a zero gamma has none.
        result.decline(match["norm"], f"its beta: {match['layer']} pads with zeros, where beta would be missing")
        if bool((norm.weight == 0).any()) or bool((norm.weight == 1).all()):
            return
        editor.swap_module(match["norm"], with_tensors(norm, weight=torch.ones_like(beta), bias=beta / norm.weight))
    else:
        shift = (weight * _by_input(beta, layer)).flatten(1).sum(1)
        tensors["bias"] = shift if layer.bias is None else layer.bias.detach() + shift
        editor.swap_module(match["norm"], with_tensors(norm, weight=None, bias=None))
    editor.swap_module(match["layer"], with_tensors(layer, **tensors))
    what = "gamma" if keeps_beta else "gamma and beta"
    result.change(match["norm"], f"gave {what} to {match['layer']}")


def _by_input(values: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    """One number per input channel, shaped to scale the weight (out, in / groups, *kernel)."""
    per_group = values.view(layer.groups, -1).repeat_interleave(layer.out_channels // layer.groups, 0)
    return per_group.view(*per_group.shape, *(1,) * len(layer.kernel_size))
