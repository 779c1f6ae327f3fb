"""Rules for operations that move values about (reshape, permute, chunk, index), and that put them
side by side.
"""

from collections.abc import Container
from typing import Any

import numpy as np
import torch
from torch import fx

from helpers.graphs.operations import perform
from helpers.pruning.labelling import Call, LabelledTensor, Number, uncut
from helpers.pruning.reader import leaves
from helpers.pruning.rules_value import unknown
from helpers.pruning.ties import Labels

FIXED_SIZE = "the forward asks for a fixed size here, which would no longer fit"
FIXED_NUMBERS = "takes channels by fixed numbers"


def moved(call: Call) -> Any:
    """view, permute, chunk, x[...] and the like: done to the numbers of the channels, they show
    where each one goes.

    Done to twice as many channels, with twice the size where a size follows them, they show which
    axis of the result has the channels: the one that is twice as long.
    """
    x = call.tensors[0]
    result = uncut(call.output)
    elsewhere = {id(number): number for number in call.numbers}
    expected = [(piece.shape, torch.float32) for piece in leaves(result)]
    for dim, labels in enumerate(call.axes(x)):
        if labels is None:
            continue
        if (
            dim == 1 and call.op == "channel_shuffle"
        ):  # which channels meet depends on the size of a group
            call.tie_parts(labels, call.setting(1, "groups"))
        followed = {id(number) for number in call.numbers if follows(call, labels, number)}
        elsewhere = {key: number for key, number in elsewhere.items() if key not in followed}
        numbers = torch.arange(1.0, len(labels) + 1)  # 0 is what unfold pads with
        numbers = numbers.view(-1, *[1] * (len(x.shape) - dim - 1))
        once = performed(call, numbers.expand(x.shape).contiguous())
        longer = (*x.shape[:dim], 2 * len(labels), *x.shape[dim + 1 :])
        twice = performed(call, numbers.new_empty(longer, device="meta"), followed)
        seen = all(one.numel() and one.all() for one in once)
        if not seen or [(one.shape, one.dtype) for one in once] != expected:
            return unknown(call)  # view(dtype), an empty tensor, or one that is padded
        axes = [*map(doubled, once, twice)]
        if len(once) != len(twice) or None in axes:
            call.pin(labels, FIXED_NUMBERS if call.op == "getitem" else FIXED_SIZE)
            continue
        for piece, one, axis in zip(leaves(result), once, axes, strict=True):
            if piece.axes[axis] is not None:
                call.pin(x, "merges two axes that both hold channels")
            piece.axes[axis] = tied(call, labels, (one.movedim(axis, -1).long() - 1).numpy())
    call.pin([*elsewhere.values()], "a size here follows the number of channels of another axis")
    return result


def performed(call: Call, x: torch.Tensor, followed: Container[int] = ()) -> list[torch.Tensor]:
    """What the call makes of another tensor; nothing if that does not fit."""

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
    """The labels of an axis, from the channels that lie along it: the last axis of this table,
    whose other axes are tied.

    If it holds only some of the channels, these have to be one of several equal pieces, which are
    tied as well.
    """
    for dim in range(channels.ndim - 1):
        first = channels.take([0], dim)
        if (channels == first).all():
            channels = first
    held = np.unique(channels)
    if len(held) > 1 and (channels == channels[..., :1]).all():  # the size is that of all channels
        call.pin(labels, FIXED_SIZE)
        return None
    pieces, rest = divmod(len(labels), len(held))
    if rest or held[0] % len(held) or held[-1] - held[0] >= len(held):
        call.pin(labels, FIXED_NUMBERS)
    elif pieces > 1:
        call.tie_parts(labels, pieces)
    return call.tie_parts(labels[channels].ravel(), channels.size // channels.shape[-1])


def follows(call: Call, labels: Labels, size: Number) -> bool:
    """Whether a size was worked out from the channels of this axis, or of one that is from now on
    cut with it.
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
    result = uncut(call.output)
    rank = len(result.shape)
    parts = [part for part in call.tensors if len(part.shape) == rank]  # cat skips a lone empty one
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
    """Labels one after the other; a part that holds no channels stays as it is."""
    if all(labels is None for labels in parts):
        return None
    why = f"{call.name}: this part of the result has a fixed size"
    whole = zip(parts, lengths, strict=True)
    return np.concatenate(
        [call.ties.fresh(length, why) if labels is None else labels for labels, length in whole]
    )


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
    """F.pad: channels that are padded on are constant and stay."""
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
