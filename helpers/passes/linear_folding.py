"""Everything affine around a matrix product becomes one fully connected layer.

x @ W, addmm(b, x, W)       ->  nn.Linear with weight W^T
Linear, then + z, * z       ->  as for convolutions, along the last axis
Linear, then BatchNorm1d    ->  as for convolutions, when the output is (N, C); in (N, L, C) axis 1 is not C
"""

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor, called, may_match, with_tensors
from helpers.graphs.layers import NORMS
from helpers.graphs.match import Match
from helpers.graphs.matching import find
from helpers.graphs.patterns import Constant, Op, Value
from helpers.passes import registry
from helpers.passes.conv_add_folding import AddFold, sums_with
from helpers.passes.conv_bn_folding import NormFold
from helpers.passes.conv_mul_folding import MulFold, products_with
from helpers.passes.folder import Pass, PassResult

LINEAR = (nn.Linear,)


class _Norm(NormFold):
    name = "linear_folding"
    patterns = (Op(NORMS, (Op(LINEAR, name="layer"),)),)


class _Add(AddFold):
    name = "linear_folding"
    signs = sums_with(LINEAR)
    patterns = tuple(signs)


class _Mul(MulFold):
    name = "linear_folding"
    patterns = products_with(LINEAR)


def is_matrix(value: torch.Tensor | float) -> str | None:
    """Whether a constant can be the weight of a linear layer."""
    if not isinstance(value, torch.Tensor) or value.dim() != 2 or not value.is_floating_point():
        return "its constant factor is not a matrix of floating-point numbers"
    return None


MATMUL = Op([torch.matmul], (Value("x"), Constant("weight", where=is_matrix)))
ADDMM = Op(
    [torch.addmm, torch.ops.aten.addmm.default], (Constant("bias"), Value("x"), Constant("weight", where=is_matrix))
)


ROOTS = {nn.Linear, *MATMUL.targets, *ADDMM.targets}


@registry.register
class LinearFolding(Pass):
    """Makes linear layers of matrix products, and folds sums, products and batch norms into linear layers."""

    name = "linear_folding"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """First products become layers, then the layers swallow what follows them."""
        result = PassResult()
        if called(graph_module).isdisjoint(ROOTS):
            return result
        for pattern in (MATMUL, ADDMM):
            _make_layers(graph_module, pattern, result)
        for fold in (_Norm(), _Add(), _Mul()):
            part = fold.run(graph_module)
            result.changed += part.changed
            result.declined += part.declined
        return result


def _make_layers(graph_module: fx.GraphModule, pattern: Op, result: PassResult) -> None:
    if not may_match(pattern, called(graph_module)):
        return
    editor = Editor(graph_module)
    found = find(graph_module, pattern, filters=[lambda match: _may_be_layer(match, editor)])
    for match in found.matches:
        weight = match.constant("weight").detach().T.contiguous()
        bias = match.constant("bias").detach() if pattern is ADDMM else None
        layer = with_tensors(
            nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta"), weight=weight, bias=bias
        ).eval()
        node = match.anchor
        sources = node.all_input_nodes
        path = editor.free_name(node.name)
        editor.set_module(path, layer)
        editor.retarget(node, "call_module", path, (match["x"],), {})
        editor.forget(sources)
        result.change(node, f"became the linear layer {path}")
    for refusal in found.refused:
        result.decline(refusal.node, refusal.reason)


def _may_be_layer(match: Match, editor: Editor) -> str | None:
    constants = [match[part.name] for part in match.nodes if isinstance(part, Constant)]
    if any(isinstance(node, fx.Node) and editor.storage.is_written(node) for node in constants):
        return "the graph writes into its constant"
    if any(part.name == "bias" for part in match.nodes):
        bias = match.constant("bias")
        if not isinstance(bias, torch.Tensor) or bias.shape != match.constant("weight").shape[1:]:
            return "what it adds is not one number per output feature"
    return None
