"""Batch norm folded into the convolution before it.

    BN(y)_c = gamma_c (y_c - mu_c) / sqrt(var_c + eps) + beta_c = a_c y_c + shift_c
    a = gamma / sqrt(var + eps)        shift = beta - a mu

so     W' = a W,   b' = a b + shift = a (b - mu) + beta.

Folds when: the batch norm normalises by its running statistics, its channels are those of the convolution (which they
are not when an image comes without a batch dimension), and nobody else reads what the convolution computes.
"""

from typing import ClassVar

from torch import nn

from helpers.graphs.layers import NORMS, opaque, rank
from helpers.graphs.matching import Match
from helpers.graphs.patterns import Op
from helpers.passes import registry
from helpers.passes.folding import CONVOLUTIONS, Fold, MustNotFold, PerChannel, Rules, output_channels


def norm_as_affine(norm: nn.Module) -> tuple[PerChannel, PerChannel]:
    """The factor a and the shift of a batch norm in eval mode, in double precision.

    Example:
        >>> a, shift = norm_as_affine(nn.BatchNorm2d(8).eval())
    """
    mean, var = norm.running_mean.detach().double(), norm.running_var.detach().double()
    gamma = 1.0 if norm.weight is None else norm.weight.detach().double()
    beta = 0.0 if norm.bias is None else norm.bias.detach().double()
    a = gamma / (var + norm.eps).sqrt()
    return a, beta - a * mean


def norm_of(match: Match, layer: nn.Module) -> tuple[PerChannel, PerChannel]:
    """The batch norm at the anchor, if it is an affine map of the layer's output channels."""
    node, norm = match["layer"], match.graph_module.get_submodule(match.anchor.target)
    if (reason := opaque(norm)) is not None:
        raise MustNotFold(reason)
    if norm.running_mean is None or norm.running_var is None:
        raise MustNotFold("it has no running statistics, so it normalises by those of the batch")
    if norm.training:
        raise MustNotFold("it is in training mode, so it normalises by the statistics of the batch")
    if rank(node) != (2 if isinstance(layer, nn.Linear) else 2 + len(layer.kernel_size)):
        raise MustNotFold(f"axis 1 of the {rank(node)}-D output of {node} does not count its channels")
    if norm.running_mean.numel() != output_channels(layer):
        raise MustNotFold(f"it has {norm.running_mean.numel()} channels and {node} has {output_channels(layer)}")
    if norm.running_mean.is_meta:
        raise MustNotFold("its statistics have no data (they are on the meta device)")
    return norm_as_affine(norm)


def norms_after(layers: tuple[type[nn.Module], ...]) -> Rules:
    """layer -> norm."""
    return {Op(NORMS, (Op(layers, name="layer"),)): norm_of}


@registry.register
class ConvBnFolding(Fold):
    """W' = a W, b' = a (b - mu) + beta, for 1-D, 2-D, 3-D, grouped, depthwise and transposed convolutions."""

    name = "conv_bn_folding"
    rules: ClassVar[Rules] = norms_after(CONVOLUTIONS)
