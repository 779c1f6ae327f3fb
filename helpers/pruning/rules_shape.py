"""Rules for operations that move values (reshape, permute, chunk, index), and for those that put
them side by side.
"""

from collections.abc import Container
from typing import Any

import numpy as np
import torch
from torch import fx

from helpers.graphs.operations import perform
from helpers.pruning.labelling import Call, LabelledTensor, Number, no_axis_cut
from helpers.pruning.reader import leaves
from helpers.pruning.rules_value import unknown
from helpers.pruning.ties import Labels

FIXED_SIZE = "the forward asks for a fixed size here, which would no longer fit"
FIXED_NUMBERS = "takes channels by fixed numbers"


def moved(call: Call) -> Any:
    """view, permute, chunk, x[...] and the like. They are called twice, to see what they do.

    On a tensor that holds the number of its channel at each place, they show where each one goes.
    On a tensor with twice as many channels (and with each argument doubled that is computed from
    their number) they show which axis of the result has the channels: the one that is twice as
    long.
    """
    x = call.tensors[0]
    result = no_axis_cut(call.output)
    unrelated = {id(number): number for number in call.numbers}
    expected = [(piece.shape, torch.float32) for piece in leaves(result)]
    for dim, labels in enumerate(call.axes(x)):
        if labels is None:
            continue
        if dim == 1 and call.op == "channel_shuffle":
            # Where a channel goes depends on the size of the groups: all have to lose the same.
            call.tie_parts(labels, call.setting(1, "groups"))
        followed = {
            id(number) for number in call.numbers if follows_when_tied(call, labels, number)
        }
        unrelated = {key: number for key, number in unrelated.items() if key not in followed}
        numbers = torch.arange(1.0, len(labels) + 1)  # from 1, because unfold pads with 0
        numbers = numbers.view(-1, *[1] * (len(x.shape) - dim - 1))
        once = performed(call, numbers.expand(x.shape).contiguous())
        longer = (*x.shape[:dim], 2 * len(labels), *x.shape[dim + 1 :])
        twice = performed(call, numbers.new_empty(longer, device="meta"), followed)
        all_known = all(piece.numel() and piece.all() for piece in once)
        if not all_known or [(piece.shape, piece.dtype) for piece in once] != expected:
            return unknown(call)  # view(dtype), an empty tensor, or one that is padded
        axes = [*map(doubled, once, twice)]
        if len(once) != len(twice) or None in axes:
            call.pin(labels, FIXED_NUMBERS if call.op == "getitem" else FIXED_SIZE)
            continue
        for piece, channels, axis in zip(leaves(result), once, axes, strict=True):
            if piece.axes[axis] is not None:
                call.pin(x, "merges two axes that both hold channels")
            along_axis = (channels.movedim(axis, -1).long() - 1).numpy()
            piece.axes[axis] = tied(call, labels, along_axis)
    call.pin([*unrelated.values()], "a size here follows the number of channels of another axis")
    return result


def performed(call: Call, x: torch.Tensor, followed: Container[int] = ()) -> list[torch.Tensor]:
    """The tensors that the call makes of another input; none if it fails.

    Args:
        followed: ids of the Numbers that are doubled.
    """

    def stand_in(value: Any) -> Any:
        if isinstance(value, Number):
            return 2 * value.value if id(value) in followed else value.value
        return x if isinstance(value, LabelledTensor) else value

    args, kwargs = fx.node.map_aggregate((call.args, call.kwargs), stand_in)
    try:
        return leaves(perform(call.module or call.node.target, args, kwargs))
    except (RuntimeError, IndexError):
        return []


def doubled(before: torch.Tensor, after: torch.Tensor) -> int | None:
    """The axis of a tensor that is twice as long as before."""
    for dim, size in enumerate(before.shape):
        if after.shape == (*before.shape[:dim], 2 * size, *before.shape[dim + 1 :]):
            return dim
    return None


def tied(call: Call, labels: Labels, channels: np.ndarray) -> Labels | None:
    """The labels along an axis of the result.

    If it holds only some of the channels, these have to be one of several equal pieces, and the
    pieces are tied.

    Args:
        labels: of all channels of the input.
        channels: a table with the number of the channel at each place; its last axis is that of the
            result. Channels at the same place on this axis are tied.
    """
    for dim in range(channels.ndim - 1):
        first = channels.take([0], dim)
        if (channels == first).all():
            channels = first
    held = np.unique(channels)
    # The axis is as long as there are channels, but only other axes tell them apart.
    if len(held) > 1 and (channels == channels[..., :1]).all():
        call.pin(labels, FIXED_SIZE)
        return None
    pieces, rest = divmod(len(labels), len(held))
    if rest or held[0] % len(held) or held[-1] - held[0] >= len(held):
        call.pin(labels, FIXED_NUMBERS)
    elif pieces > 1:
        call.tie_parts(labels, pieces)
    return call.tie_parts(labels[channels].ravel(), channels.size // channels.shape[-1])


def follows_when_tied(call: Call, labels: Labels, size: Number) -> bool:
    """Whether a size was computed from the number of channels on this axis, or on one that always
    loses the same share. So that an axis of equal length does, the two are tied here.
    """
    distinct_axes = {id(axis): axis for axis in size.axes}
    counted = np.concatenate([*distinct_axes.values()])
    if len(counted) == len(labels):
        call.ties.tie(labels, counted)
    return call.ties.shrink_equally(labels, counted)


def item(call: Call) -> Any:
    """x[...]: of a tensor, or of a tuple; an index that is a tensor is not understood."""
    x, index = call.args
    if not isinstance(x, LabelledTensor):
        return x[index]
    return moved(call) if len(call.tensors) == 1 else unknown(call)


def concatenate(call: Call) -> LabelledTensor:
    """cat: along its axis the parts stand one after the other; along the others they are cut
    together.
    """
    result = no_axis_cut(call.output)
    rank = len(result.shape)
    parts = [part for part in call.tensors if len(part.shape) == rank]  # cat skips (0,)
    dim = call.argument(1, "dim", 0) % rank
    axes_of_parts = [call.axes(part) for part in parts]
    for d, axes in enumerate(zip(*axes_of_parts, strict=True)):
        if d != dim:
            result.axes[d] = axes[0]
            for other in axes[1:]:
                call.tie(axes[0], other)
    lengths = [part.shape[dim] for part in parts]
    result.axes[dim] = chained(call, [axes[dim] for axes in axes_of_parts], lengths)
    if result.axes[dim] is not None:
        call.share([result.axes[dim]])
    return result


def chained(call: Call, parts: list[Labels | None], lengths: list[int]) -> Labels | None:
    """The labels of several parts, one after the other; a part without labels gets pinned ones."""
    if all(labels is None for labels in parts):
        return None
    why = f"{call.name}: this part of the result has a fixed size"
    chain = []
    for labels, length in zip(parts, lengths, strict=True):
        chain.append(call.ties.fresh(length, why) if labels is None else labels)
    return np.concatenate(chain)


def stack(call: Call) -> LabelledTensor:
    """stack: the parts lie above each other along a new axis, and are cut together."""
    axes = call.axes(call.tensors[0])
    for part in call.tensors[1:]:
        for dim, labels in enumerate(axes):
            call.bind(part, dim, labels)
    call.share(axes)
    axes.insert(call.argument(1, "dim", 0) % call.output.dim(), None)
    return call.result(axes)


def pad(call: Call) -> LabelledTensor:
    """F.pad: channels that it adds are constant, and stay."""
    axes = call.axes(call.tensors[0])
    amounts = call.argument(1, "pad")
    constant = call.argument(2, "mode", "constant") == "constant"
    for i in range(len(amounts) // 2):
        labels = axes[-1 - i]
        before, after = amounts[2 * i : 2 * i + 2]
        if labels is None or (before, after) == (0, 0):
            continue
        if not (constant and all(isinstance(n, int) and n >= 0 for n in (before, after))):
            return unknown(call)
        axes[-1 - i] = chained(call, [None, labels, None], [before, len(labels), after])
    return call.result(axes)
