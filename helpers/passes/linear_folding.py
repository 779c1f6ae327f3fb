"""Everything affine around a matrix product becomes one fully connected layer.

x @ W, addmm(b, x, W)       ->  nn.Linear with weight W^T
Linear, then + z, * z       ->  as for convolutions, along the last axis
Linear, then BatchNorm1d    ->  as for convolutions, when the output is (N, C); in (N, L, C) axis 1 is not C
"""

from typing import ClassVar

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor, called, may_match, with_tensors
from helpers.graphs.matching import Match, find
from helpers.graphs.patterns import Constant, Op, Value
from helpers.passes import registry
from helpers.passes.conv_add_folding import products_after, sums_after
from helpers.passes.conv_bn_folding import norms_after
from helpers.passes.folder import PassResult
from helpers.passes.folding import Fold, Rules

LINEAR = (nn.Linear,)


def is_matrix(value: torch.Tensor | float) -> str | None:
    """Whether a constant can be the weight of a linear layer."""
    if not isinstance(value, torch.Tensor) or value.dim() != 2 or not value.is_floating_point():
        return "its constant factor is not a matrix of floating-point numbers"
    return None


WEIGHT = Constant("weight", where=is_matrix)
MATMUL = Op([torch.matmul], (Value("x"), WEIGHT))
ADDMM = Op([torch.addmm, torch.ops.aten.addmm.default], (Constant("bias"), Value("x"), WEIGHT))


@registry.register
class LinearFolding(Fold):
    """Makes linear layers of matrix products, and folds sums, products and batch norms into linear layers."""

    name = "linear_folding"
    rules: ClassVar[Rules] = {**norms_after(LINEAR), **sums_after(LINEAR), **products_after(LINEAR)}

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """First products become layers, then the layers swallow what follows them."""
        result = PassResult()
        for pattern in (MATMUL, ADDMM):
            if may_match(pattern, called(graph_module)):
                _make_layers(graph_module, pattern, result)
        folds = super().run(graph_module)
        return PassResult(result.changed + folds.changed, result.declined + folds.declined)


def _make_layers(graph_module: fx.GraphModule, pattern: Op, result: PassResult) -> None:
    editor = Editor(graph_module)
    found = find(graph_module, pattern, filters=[lambda match: _objection(match, editor)])
    for match in found.matches:
        node, sources = match.anchor, match.anchor.all_input_nodes
        path = editor.free_name(node.name)
        editor.set_module(path, _layer(match))
        editor.retarget(node, "call_module", path, (match["x"],), {})
        editor.forget(sources)
        result.change(node, f"became the linear layer {path}")
    for refusal in found.refused:
        result.decline(refusal.node, refusal.reason)


def _layer(match: Match) -> nn.Module:
    weight = match.constant("weight").detach().T.contiguous()
    bias = match.constant("bias").detach() if len(match.placeholders) == 3 else None
    empty = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    return with_tensors(empty, weight=weight, bias=bias).eval()


def _objection(match: Match, editor: Editor) -> str | None:
    constants = [match[part.name] for part in match.nodes if isinstance(part, Constant)]
    if any(isinstance(node, fx.Node) and editor.storage.is_written(node) for node in constants):
        return "the graph writes into its constant"
    if len(constants) == 2:
        bias = match.constant("bias")
        if not isinstance(bias, torch.Tensor) or bias.shape != match.constant("weight").shape[1:]:
            return "what it adds is not one number per output feature"
    return None
