"""Padding and average pooling folded into the convolution behind them.

Padding by zeros is what a convolution can do itself:

    conv(pad(x, p), padding=q) = conv(x, padding=p + q)      when p is the same on both sides

An average pool is a convolution with the constant kernel 1 / k^d. In front of a 1x1 convolution the two become one:

    W'[o, i, u] = W[o, i] / k^d,     stride' = pool stride * stride,     padding' = pool padding

That second fold needs fewer nodes but k^d times the multiplications, so it is a pass of its own that no default list
names.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers.graphs.editing import Editor, called, may_match, with_tensors
from helpers.graphs.layers import CONVS, opaque, rank
from helpers.graphs.matching import Match, find
from helpers.graphs.patterns import Op
from helpers.passes import registry
from helpers.passes.folder import Pass, PassResult
from helpers.passes.folding import MustNotFold


class FrontFold(Pass):
    """A pass that folds what stands in front of a convolution, named "front", into it."""

    pattern: Op

    def new_layer(self, front: fx.Node, conv: nn.Module, node: fx.Node) -> nn.Module:
        """Abstract: the convolution that does both; raises `MustNotFold`."""
        raise NotImplementedError(f"{type(self).__name__} must say what it makes")

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Match -> may I fold? -> fold."""
        result = PassResult()
        if not may_match(self.pattern, called(graph_module)):
            return result
        editor = Editor(graph_module)
        ready: dict[fx.Node, nn.Module] = {}

        def may_fold(match: Match) -> str | None:
            conv, front = editor.module(match.anchor), match["front"]
            if opaque(conv) is not None:
                return opaque(conv)
            if editor.storage.is_written(front.args[0]) or editor.storage.is_tensor_written(conv.weight):
                return "somebody writes into its input or its weight"
            try:
                ready[match.anchor] = self.new_layer(front, conv, match.anchor)
            except MustNotFold as refusal:
                return str(refusal)
            return None

        found = find(graph_module, self.pattern, filters=[may_fold])
        for match in found.matches:
            front = match["front"]
            editor.swap_module(match.anchor, ready[match.anchor])
            match.anchor.args = (front.args[0],)
            editor.erase(front)
            result.change(front, f"folded into {match.anchor}")
        for refusal in found.refused:
            result.decline(refusal.node, refusal.reason)
        return result


@registry.register
class PadFolding(FrontFold):
    """conv(pad(x)) becomes conv with more padding."""

    name = "pad_folding"
    pattern = Op(CONVS, (Op([F.pad], name="front"),))

    def new_layer(self, front: fx.Node, conv: nn.Module, node: fx.Node) -> nn.Module:
        """The convolution with the padding added to its own."""
        amounts = [int(amount) if isinstance(amount, int) else None for amount in front.args[1]]
        if front.kwargs.get("mode", "constant") != "constant" or front.kwargs.get("value") not in (None, 0):
            raise MustNotFold("it pads by something else than zeros")
        if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
            raise MustNotFold(f"{node} does not pad by a given number of zeros")
        dimensions = len(conv.kernel_size)
        if None in amounts or any(amounts[2 * dimensions :]) or len(amounts) > 2 * rank(front):
            raise MustNotFold("it pads by amounts that are computed, or along other axes than the image's")
        amounts += [0] * (2 * dimensions - len(amounts))
        low, high = amounts[: 2 * dimensions : 2][::-1], amounts[1 : 2 * dimensions : 2][::-1]
        if low != high or min(low) < 0:
            raise MustNotFold(f"it pads differently on both sides, or crops: {front.args[1]}")
        new = with_tensors(conv)
        new.padding = tuple(own + more for own, more in zip(conv.padding, low, strict=True))
        new._reversed_padding_repeated_twice = [amount for amount in new.padding[::-1] for _ in range(2)]
        return new


@registry.register
class PoolFolding(FrontFold):
    """conv1x1(avg_pool(x)) becomes one strided convolution."""

    name = "pool_folding"
    pattern = Op(CONVS, (Op([F.avg_pool1d, F.avg_pool2d, F.avg_pool3d], name="front"),))

    def new_layer(self, front: fx.Node, conv: nn.Module, node: fx.Node) -> nn.Module:
        """The convolution with the pool's kernel, stride and padding."""
        dimensions = len(conv.kernel_size)
        kernel = _each(front.args[1], dimensions)
        stride = _each(front.kwargs.get("stride") or kernel, dimensions)
        padding = _each(front.kwargs.get("padding", 0), dimensions)
        if set(conv.kernel_size) != {1} or isinstance(conv.padding, str) or any(conv.padding):
            raise MustNotFold(f"{node} is not a 1x1 convolution without padding")
        if front.kwargs.get("ceil_mode") or front.kwargs.get("divisor_override"):
            raise MustNotFold("windows at the border count fewer numbers (ceil_mode or divisor_override)")
        if any(padding) and not front.kwargs.get("count_include_pad", True):
            raise MustNotFold("windows at the border count fewer numbers (count_include_pad=False)")
        with torch.no_grad():
            weight = (conv.weight.double() / math.prod(kernel)).to(conv.weight.dtype)
            weight = weight.expand(*weight.shape[:2], *kernel).contiguous()
        new = with_tensors(conv, weight=weight)
        new.kernel_size, new.padding = kernel, padding
        new.stride = tuple(one * other for one, other in zip(stride, conv.stride, strict=True))
        new.dilation = (1,) * dimensions
        new._reversed_padding_repeated_twice = [amount for amount in padding[::-1] for _ in range(2)]
        return new


def _each(value: Any, dimensions: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dimensions if len(values) == 1 else values
