"""Quantize/dequantize pairs: cancel, merge, and move them past operations that only shape.

    cancel   quantize(dequantize(q))                same parameters: q
    merge    quantize(dequantize(q))                other parameters: one requantize(q)
             quantize(x), quantize(x)               the same twice: once
    move     view(dequantize(q))                    dequantize(view(q))

A network that was quantized layer by layer is full of such pairs. Moving brings those together that are apart, and what
is left computes on codes from one end to the other.

Cancelling is exact: scale * (code - zero_point) divided by scale is a whole number but for a rounding error below one
half. The other way round, dequantize(quantize(x)), is not the identity: it is the rounding itself, and stays.
"""

import operator

import torch
from torch import fx

from helpers.graphs.matching import Match
from helpers.graphs.patterns import LITERAL, Op, Value
from helpers.graphs.replacing import inherit
from helpers.passes.folder import Pass, PassResult
from helpers.passes.fuser import Fuser
from helpers.passes.registry import register

# Three operators of our own, so that tracers record one node for each instead of looking inside.
library = torch.library.Library("course", "FRAGMENT")
library.define("quantize(Tensor x, float scale, int zero_point, int first, int last) -> Tensor")
library.define("dequantize(Tensor codes, float scale, int zero_point) -> Tensor")
library.define(
    "requantize(Tensor codes, float scale, int zero_point, float new_scale, int new_zero_point, int first, int last) "
    "-> Tensor"
)
QUANTIZE = torch.ops.course.quantize.default
DEQUANTIZE = torch.ops.course.dequantize.default
REQUANTIZE = torch.ops.course.requantize.default


def quantize(x: torch.Tensor, scale: float, zero_point: int, first: int, last: int) -> torch.Tensor:
    """Codes of a whole tensor under one scale: clamp(round(x / scale) + zero_point, first, last).

    Example:
        >>> quantize(torch.tensor([0.0, 0.26]), 0.1, 0, -128, 127)
        tensor([0, 3], dtype=torch.int8)
    """
    return QUANTIZE(x, scale, zero_point, first, last)


def dequantize(codes: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
    """What the codes stand for: scale * (code - zero_point), in float32."""
    return DEQUANTIZE(codes, scale, zero_point)


def _quantize(x, scale, zero_point, first, last):
    from helpers.quantization.affine import encode  # passes must not load quantization

    return encode(x, torch.tensor(scale), torch.tensor(zero_point), first, last)


def _dequantize(codes, scale, zero_point):
    from helpers.quantization.affine import decode  # passes must not load quantization

    return decode(codes, torch.tensor(scale), torch.tensor(zero_point))


def _requantize(codes, scale, zero_point, new_scale, new_zero_point, first, last):
    """From one set of codes to another, as the pair would do it."""
    return _quantize(_dequantize(codes, scale, zero_point), new_scale, new_zero_point, first, last)


def _fake_codes(x, *settings):
    first = settings[-2]
    return torch.empty_like(x, dtype=torch.int8 if first < 0 else torch.uint8)


for name, kernel, fake in (
    ("quantize", _quantize, _fake_codes),
    ("dequantize", _dequantize, lambda codes, *settings: torch.empty_like(codes, dtype=torch.float32)),
    ("requantize", _requantize, _fake_codes),
):
    library.impl(name, kernel, "CompositeExplicitAutograd")
    library.impl(name, fake, "Meta")


aten = torch.ops.aten
# Operations that move numbers about and compute nothing. With one scale for the whole tensor they may run on codes.
SHAPE_ONLY = (
    *(torch.flatten, torch.reshape, torch.transpose, torch.permute, torch.squeeze, torch.unsqueeze, operator.getitem),
    *(aten.view.default, aten.reshape.default, aten.flatten.using_ints, aten.transpose.int, aten.permute.default),
    *(aten.unsqueeze.default, aten.squeeze.dim, aten.slice.Tensor, aten.expand.default, aten.contiguous.default),
    *("view", "reshape", "flatten", "transpose", "permute", "squeeze", "unsqueeze", "contiguous", "expand"),
)


class _CancelOrMerge(Fuser):
    """quantize(dequantize(q)) becomes q, or one requantize."""

    name = "qdq"

    def build_pattern(self) -> Op:
        # The value may have other readers: only the pair goes, and the dequantize stays for them.
        back = Op([DEQUANTIZE], (Value("q"), LITERAL, LITERAL), name="dequantize", keep=True)
        return Op([QUANTIZE], (back, LITERAL, LITERAL, LITERAL, LITERAL), name="quantize")

    def may_fuse(self, match: Match) -> str | None:
        value = match["q"].meta.get("val")
        return None if isinstance(value, torch.Tensor) else f"the dtype of {match['q']} is unknown: run type_inference"

    def make_op(self, match: Match) -> fx.Node:
        old, new = match["dequantize"].args[1:], match["quantize"].args[1:]
        source = match["q"]
        if old == new[:2] and _all_codes_fit(source.meta["val"].dtype, *new[2:]):
            return source
        return match.graph_module.graph.call_function(REQUANTIZE, (source, *old, *new))


def _all_codes_fit(dtype: torch.dtype, first: int, last: int) -> bool:
    """Whether the range clamps no code that the dtype can hold, nor changes the dtype."""
    limits = torch.iinfo(dtype)
    return (limits.min, limits.max) == (first, last)


@register
class Qdq(Pass):
    """Moves, cancels and merges quantize/dequantize pairs.

    Example:
        >>> Passer(["qdq", "dead_code"]).run(graph_module)
    """

    name = "qdq"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """First bring pairs together, then merge what is the same, then cancel."""
        result = PassResult()
        _move(graph_module, result)
        _share(graph_module, result)
        fused = _CancelOrMerge().run(graph_module)
        result.changed += fused.changed
        result.declined += fused.declined
        _sweep(graph_module)
        return result


def _move(graph_module: fx.GraphModule, result: PassResult) -> None:
    """Run shape-only operations on the codes; one sweep in graph order moves a dequantize past a whole row of them."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        source = node.args[0] if node.args else None
        if node.target not in SHAPE_ONLY or not isinstance(source, fx.Node) or source.target is not DEQUANTIZE:
            continue
        users = list(node.users)
        with graph.inserting_after(node):
            moved = graph.call_function(DEQUANTIZE, (node, *source.args[1:]))
        inherit([moved], source)
        if "val" in node.meta:
            moved.meta["val"] = node.meta["val"]
            node.meta["val"] = node.meta["val"].to(source.args[0].meta["val"].dtype)
        node.replace_input_with(source, source.args[0])
        for user in users:
            user.replace_input_with(node, moved)
        result.change(node, f"runs on codes: {source} moved behind it")


def _share(graph_module: fx.GraphModule, result: PassResult) -> None:
    """The same cast of the same value is made once."""
    first_of: dict[tuple, fx.Node] = {}
    for node in list(graph_module.graph.nodes):
        if node.target not in (QUANTIZE, DEQUANTIZE, REQUANTIZE):
            continue
        first = first_of.setdefault((node.target, node.args), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph_module.graph.erase_node(node)
            result.change(node, f"is the same as {first}")


def _sweep(graph_module: fx.GraphModule) -> None:
    """Take away dequantize and quantize nodes that nobody reads any more."""
    for node in reversed(list(graph_module.graph.nodes)):
        if node.target in (QUANTIZE, DEQUANTIZE, REQUANTIZE) and not node.users:
            graph_module.graph.erase_node(node)
