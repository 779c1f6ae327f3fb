"""Padding by zeros is what a convolution can do itself:

conv(pad(x, p), padding=q) = conv(x, padding=p + q)      when p is the same on both sides
"""

import torch.nn.functional as F
from torch import fx, nn

from helpers.graphs.editing import Editor, called, may_match, with_tensors
from helpers.graphs.layers import CONVS, opaque, rank
from helpers.graphs.matching import Match, find
from helpers.graphs.patterns import Op
from helpers.passes import registry
from helpers.passes.folder import Pass, PassResult
from helpers.passes.folding import MustNotFold

PATTERN = Op(CONVS, (Op([F.pad], name="pad"),))


@registry.register
class PadFolding(Pass):
    """conv(pad(x)) becomes conv with more padding."""

    name = "pad_folding"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Match -> may I fold? -> fold."""
        result = PassResult()
        if not may_match(PATTERN, called(graph_module)):
            return result
        editor = Editor(graph_module)
        ready: dict[fx.Node, nn.Module] = {}

        def may_fold(match: Match) -> str | None:
            conv, pad = editor.module(match.anchor), match["pad"]
            if opaque(conv) is not None:
                return opaque(conv)
            if editor.storage.is_written(pad.args[0]) or editor.storage.is_tensor_written(conv.weight):
                return "somebody writes into its input or its weight"
            try:
                ready[match.anchor] = _padded(conv, pad, match.anchor)
            except MustNotFold as refusal:
                return str(refusal)
            return None

        found = find(graph_module, PATTERN, filters=[may_fold])
        for match in found.matches:
            pad = match["pad"]
            editor.swap_module(match.anchor, ready[match.anchor])
            match.anchor.args = (pad.args[0],)
            editor.erase(pad)
            result.change(pad, f"folded into {match.anchor}")
        for refusal in found.refused:
            result.decline(refusal.node, refusal.reason)
        return result


def _padded(conv: nn.Module, pad: fx.Node, node: fx.Node) -> nn.Module:
    """The convolution with the padding added to its own."""
    amounts = [int(amount) if isinstance(amount, int) else None for amount in pad.args[1]]
    if pad.kwargs.get("mode", "constant") != "constant" or pad.kwargs.get("value") not in (None, 0):
        raise MustNotFold("it pads by something else than zeros")
    if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        raise MustNotFold(f"{node} does not pad by a given number of zeros")
    dimensions = len(conv.kernel_size)
    if None in amounts or any(amounts[2 * dimensions :]) or len(amounts) > 2 * rank(pad):
        raise MustNotFold("it pads by amounts that are computed, or along other axes than the image's")
    amounts += [0] * (2 * dimensions - len(amounts))
    low, high = amounts[: 2 * dimensions : 2][::-1], amounts[1 : 2 * dimensions : 2][::-1]
    if low != high or min(low) < 0:
        raise MustNotFold(f"it pads differently on both sides, or crops: {pad.args[1]}")
    new = with_tensors(conv)
    new.padding = tuple(own + more for own, more in zip(conv.padding, low, strict=True))
    new._reversed_padding_repeated_twice = [amount for amount in new.padding[::-1] for _ in range(2)]
    return new
