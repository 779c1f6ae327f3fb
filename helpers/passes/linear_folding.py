"""A matrix product with a constant becomes a fully connected layer; what follows it then folds as after any layer.

x @ W, addmm(b, x, W)       ->  nn.Linear with weight W^T
"""

from typing import ClassVar

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor, with_tensors
from helpers.graphs.errors import MustStay
from helpers.graphs.patterns import Constant, Match, Op, Value
from helpers.passes.registry import register
from helpers.passes.rewriter import MatchRewriter, Rules


def _is_matrix(value: torch.Tensor | float) -> str | None:
    if not isinstance(value, torch.Tensor) or value.dim() != 2 or not value.is_floating_point():
        return "its constant factor is not a matrix of floating-point numbers"
    return None


def _layer(match: Match, editor: Editor) -> tuple[fx.Node, str]:
    weight, bias, node = match.constant("weight").detach().T.contiguous(), None, match.anchor
    if len(match.placeholders) == 3:
        bias = match.constant("bias")
        if not isinstance(bias, torch.Tensor) or bias.shape != weight.shape[:1]:
            raise MustStay("what it adds is not one number per output feature")
        bias = bias.detach()
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    path, sources = editor.free_name(node.name), node.all_input_nodes
    editor.set_module(path, with_tensors(layer, weight=weight, bias=bias).eval())
    editor.retarget(node, "call_module", path, (match["x"],), {})
    editor.forget(sources)
    return node, f"became the linear layer {path}"


@register
class LinearFolding(MatchRewriter):
    """Makes linear layers of matrix products."""

    name = "linear_folding"
    weight = Constant("weight", _is_matrix)
    rules: ClassVar[Rules] = {
        Op([torch.matmul], (Value("x"), weight)): _layer,
        Op([torch.addmm, torch.ops.aten.addmm.default], (Constant("bias"), Value("x"), weight)): _layer,
    }
