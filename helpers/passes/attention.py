"""Attention written out as matrix products becomes one fused operation.

    softmax(q kᵀ · scale + mask) v   ->   scaled_dot_product_attention(q, k, v, mask, scale)

The written-out form stores the scores, one number for each pair of positions; the fused kernels never do.

Folds when the softmax runs over the last axis, the scale is a number, and q, k and v agree in dtype and in their batch
axes. A mask must be a constant that leaves something to look at in each row: where everything is hidden, softmax gives
NaN and the fused kernel 0.
"""

import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers.graphs.matching import Match
from helpers.graphs.patterns import Constant, Op, Value
from helpers.passes.folder import Pass, PassResult
from helpers.passes.fuser import Fuser
from helpers.passes.registry import register

aten = torch.ops.aten
MATMUL = (torch.matmul, operator.matmul, torch.bmm, "matmul", "bmm", aten.matmul.default, aten.bmm.default)
SOFTMAX = (F.softmax, torch.softmax, "softmax", nn.Softmax, aten.softmax.int, aten._softmax.default)
TRANSPOSE = (torch.transpose, "transpose", aten.transpose.int)
DIVIDE = (operator.truediv, torch.div, "div", aten.div.Tensor)
MULTIPLY = (operator.mul, torch.mul, "mul", aten.mul.Tensor)
ADD = (operator.add, torch.add, "add", aten.add.Tensor)


def _is_number(value: Any) -> str | None:
    numbers = value.numel() if isinstance(value, torch.Tensor) else 1
    return None if numbers == 1 else f"scales by {numbers} numbers: only one for all scores can go into the kernel"


def _leaves_something(mask: Any) -> str | None:
    hidden = isinstance(mask, torch.Tensor) and bool((mask == -torch.inf).all(-1).any())
    return "its mask hides a whole row, which is NaN before and 0 after" if hidden else None


@dataclass
class _Written(Fuser):
    """Attention as it is written in one of the ways: how it scales, and whether it adds a mask."""

    name: ClassVar[str] = "attention_fusion"
    scale: str | None
    masked: bool

    def build_pattern(self) -> Op:
        scores = Op(MATMUL, (Value("q"), Value("k_transposed")), name="scores")
        if self.scale == "divide":
            scores = Op(DIVIDE, (scores, Constant("scale", where=_is_number)))
        elif self.scale == "multiply":
            scores = Op(MULTIPLY, (scores, Constant("scale", where=_is_number)), commutative=True)
        if self.masked:
            scores = Op(ADD, (scores, Constant("mask", where=_leaves_something)), commutative=True)
        return Op(MATMUL, (Op(SOFTMAX, (scores, ...), name="softmax"), Value("v")), name="result")

    def may_fuse(self, match: Match) -> str | None:
        values = {name: match[name].meta.get("val") for name in ("q", "k_transposed", "v", "scores", "softmax")}
        unknown = next((name for name, value in values.items() if not isinstance(value, torch.Tensor)), None)
        if unknown:
            return f"the shape of {unknown} is unknown: run type_inference first"
        q, k, v, scores, weights = values.values()
        if q.dim() < 3 or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
            return f"the batch axes differ or are missing: {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        if weights.shape != scores.shape:
            return f"its mask changes the shape of the scores from {tuple(scores.shape)} to {tuple(weights.shape)}"
        if q.dtype != v.dtype:  # a scale or a softmax in between may change the dtype
            return f"the dtypes differ: {q.dtype} before the softmax, {v.dtype} after it"
        if self.masked and match.constant("mask").dtype != q.dtype:
            return f"the mask is {match.constant('mask').dtype}, and the scores are {q.dtype}"
        return _softmax_objection(match["softmax"], match.graph_module, scores.dim())

    def make_op(self, match: Match) -> fx.Node:
        graph = match.graph_module.graph
        k = match["k_transposed"]
        if k.target in TRANSPOSE and {axis % k.meta["val"].dim() for axis in k.args[1:]} == _last_two(k):
            k = k.args[0]
        else:
            k = graph.call_method("transpose", (k, -2, -1))
        scale = float(match.constant("scale")) if self.scale else 1.0
        settings = {"scale": 1 / scale if self.scale == "divide" else scale}
        if self.masked:
            settings["attn_mask"] = match["mask"]
        return graph.call_function(F.scaled_dot_product_attention, (match["q"], k, match["v"]), settings)


def _last_two(node: fx.Node) -> set[int]:
    dimensions = node.meta["val"].dim()
    return {dimensions - 2, dimensions - 1}


def _softmax_objection(node: fx.Node, graph_module: fx.GraphModule, dimensions: int) -> str | None:
    """A softmax over another axis is not the one of attention."""
    if node.op == "call_module":
        axis = graph_module.get_submodule(node.target).dim
    else:
        axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    return None if axis in (-1, dimensions - 1) else f"its softmax runs over axis {axis}, not over the last one"


@register
class AttentionFusion(Pass):
    """Replaces written-out attention by `scaled_dot_product_attention`.

    Example:
        >>> Passer(["attention_fusion", "dead_code"]).run(graph_module)
    """

    name = "attention_fusion"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Try every way of writing it; a match of one is no match of another."""
        result = PassResult()
        for scale in ("divide", "multiply", None):
            for masked in (True, False):
                one = _Written(scale, masked).run(graph_module)
                result.changed += one.changed
                result.declined += one.declined
        return result
