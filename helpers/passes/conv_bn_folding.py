"""Batch norm folded into the convolution before it.

    BN(y)_c = gamma_c (y_c - mu_c) / sqrt(var_c + eps) + beta_c = a_c y_c + shift_c
    a = gamma / sqrt(var + eps)        shift = beta - a mu

so     W' = a W,   b' = a b + shift = a (b - mu) + beta.

Folds when: the batch norm normalises by its running statistics, its channels are those of the convolution (which they
are not when an image comes without a batch dimension), and nobody else reads what the convolution computes.
"""

from torch import fx, nn

from helpers.graphs.editing import Editor
from helpers.graphs.layers import NORMS, rank
from helpers.graphs.match import Match
from helpers.graphs.module_tree import submodule
from helpers.graphs.opaque import opaque
from helpers.graphs.patterns import Op
from helpers.passes import registry
from helpers.passes.affine import LAYERS, AffineFold, MustNotFold, PerChannel, output_channels


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


def foldable_norm(norm: nn.Module, node: fx.Node, layer: nn.Module) -> None:
    """Raise `MustNotFold` unless `norm` is an affine map of the output channels of `layer`, which `node` calls."""
    reason = opaque(norm)
    if reason is not None:
        raise MustNotFold(reason)
    if norm.running_mean is None or norm.running_var is None:
        raise MustNotFold("it has no running statistics, so it normalises by those of the batch")
    if norm.training:
        raise MustNotFold("it is in training mode, so it normalises by the statistics of the batch")
    batched = 2 if isinstance(layer, nn.Linear) else 2 + len(layer.kernel_size)
    if rank(node) != batched:
        raise MustNotFold(f"axis 1 of the {rank(node)}-D output of {node} does not count its channels")
    if norm.running_mean.numel() != output_channels(layer):
        raise MustNotFold(f"it has {norm.running_mean.numel()} channels and {node} has {output_channels(layer)}")
    if norm.running_mean.is_meta:
        raise MustNotFold("its statistics have no data (they are on the meta device)")


class NormFold(AffineFold):
    """Folds a batch norm into the layer before it."""

    def affine(self, match: Match, layer: nn.Module) -> tuple[PerChannel, PerChannel]:
        """The batch norm as factor and shift."""
        norm = submodule(match.graph_module, match.anchor.target)
        foldable_norm(norm, match["layer"], layer)
        return norm_as_affine(norm)

    def may_fold(self, match: Match, editor: Editor, ready: dict[fx.Node, nn.Module]) -> str | None:
        """As for every map; besides, the norm's own tensors must stay as they are."""
        norm = editor.module(match.anchor)
        tensors = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
        if any(map(editor.storage.is_tensor_written, tensors)):
            return "the graph writes to its statistics or parameters"
        return super().may_fold(match, editor, ready)


@registry.register
class ConvBnFolding(NormFold):
    """W' = a W, b' = a (b - mu) + beta, for 1-D, 2-D, 3-D, grouped, depthwise and transposed convolutions."""

    name = "conv_bn_folding"
    patterns = (Op(NORMS, (Op(LAYERS, name="layer"),)),)
