"""Rules for operations that move values about (reshape, permute, chunk, index), and that put them
side by side.
"""

from collections.abc import Container
from typing import Any

import numpy as np
import torch
from torch import fx

from helpers.graphs.recording import perform
from helpers.pruning.labelling import Call, LabelledTensor, Labelling, Labels, Number, uncut
from helpers.pruning.reader import leaves
from helpers.pruning.rules_value import unknown

FIXED_SIZE = "the forward asks for a fixed size here, which would no longer fit"
FIXED_NUMBERS = "takes channels by fixed numbers"


def moved(labelling: Labelling, call: Call) -> Any:
    """view, permute, chunk, x[...] and the like: done to the numbers of the channels, they show
    where each one goes.

    Done to twice as many channels, with twice the size where a size follows them, they show which
    axis of the result has the channels: the one that is twice as long.
    """
    x, result, elsewhere = (
        call.tensors[0],
        uncut(call.output),
        {id(number): number for number in call.numbers},
    )
    expected = [(piece.shape, torch.int32) for piece in leaves(result)]
    for dim, labels in enumerate(labelling.like(x).axes):
        if labels is None:
            continue
        if dim == 1 and "shuffle" in call.op:  # which channels meet depends on the size of a group
            labelling.tie_parts(
                labels, getattr(call.module, "groups", None) or call.argument(1, "groups")
            )
        followed = {id(number) for number in call.numbers if follows(labelling, labels, number)}
        elsewhere = {key: number for key, number in elsewhere.items() if key not in followed}
        rows = torch.arange(len(labels), dtype=torch.int32).view(
            -1, *[1] * (len(x.shape) - dim - 1)
        )
        once = performed(call, rows.expand(x.shape).contiguous())
        longer = (*x.shape[:dim], 2 * len(labels), *x.shape[dim + 1 :])
        twice = performed(call, rows.new_empty(longer, device="meta"), followed)
        if [(one.shape, one.dtype) for one in once] != expected or not all(map(torch.numel, once)):
            return unknown(labelling, call)  # view(dtype), or nothing to be seen in an empty tensor
        axes = [*map(doubled, once, twice)]
        if len(once) != len(twice) or None in axes:
            labelling.ties.pin(
                labels, f"{call.name}: {FIXED_NUMBERS if call.op == 'getitem' else FIXED_SIZE}"
            )
            continue
        for piece, one, axis in zip(leaves(result), once, axes, strict=True):
            if piece.axes[axis] is not None:
                labelling.pin_all(x, f"{call.name}: merges two axes that both hold channels")
            piece.axes[axis] = tied(labelling, call, labels, one.movedim(axis, -1).numpy())
    labelling.pin_all(
        [*elsewhere.values()],
        f"{call.name}: a size here follows the number of channels of another axis",
    )
    return result


def performed(call: Call, x: torch.Tensor, followed: Container[int] = ()) -> list[torch.Tensor]:
    """What the call makes of another tensor; nothing if that does not fit."""

    def stand_in(value: Any) -> Any:
        if isinstance(value, Number):
            return value.value * (2 if id(value) in followed else 1)
        return x if isinstance(value, LabelledTensor) else value

    args, kwargs = fx.node.map_aggregate((call.args, call.kwargs), stand_in)
    try:
        return leaves(perform(call.module or call.node.target, args, kwargs))
    except (RuntimeError, IndexError):
        return []


def doubled(before: torch.Tensor, after: torch.Tensor) -> int | None:
    """The axis of a tensor that is twice as long as before."""
    shape = before.shape
    return next(
        (d for d, n in enumerate(shape) if after.shape == (*shape[:d], 2 * n, *shape[d + 1 :])),
        None,
    )


def tied(labelling: Labelling, call: Call, labels: Labels, channels: np.ndarray) -> Labels | None:
    """The labels of an axis, from the channels that lie along it: the last axis of this table,
    whose rows are tied.

    If it holds only some of the channels, these have to be one of several equal pieces, which are
    tied as well.
    """
    for dim in range(channels.ndim - 1):
        first = channels.take([0], dim)
        channels = first if (channels == first).all() else channels
    held = np.unique(channels)
    if (
        len(held) > 1 and (channels == channels[..., :1]).all()
    ):  # the fixed size is that of all channels
        labelling.ties.pin(labels, f"{call.name}: {FIXED_SIZE}")
        return None
    pieces, rest = divmod(len(labels), len(held))
    if rest or held[0] % len(held) or held[-1] - held[0] >= len(held):
        labelling.ties.pin(labels, f"{call.name}: {FIXED_NUMBERS}")
    elif pieces > 1:
        labelling.tie_parts(labels, pieces)
    return labelling.tie_parts(labels[channels].ravel(), channels.size // channels.shape[-1])


def follows(labelling: Labelling, labels: Labels, size: Number) -> bool:
    """Whether a size was worked out from the channels of this axis, or of one that is from now on
    cut with it.
    """
    counted = np.concatenate([*{id(axis): axis for axis in size.axes}.values()])
    if len(counted) == len(labels):
        labelling.ties.tie(labels, counted)
    return labelling.ties.shrink_equally(labels, counted)


def item(labelling: Labelling, call: Call) -> Any:
    """x[...]: of a tensor, or of a tuple; an index that is a tensor is not understood."""
    (x, index), rule = call.args, moved if len(call.tensors) == 1 else unknown
    return rule(labelling, call) if isinstance(x, LabelledTensor) else x[index]


def concatenate(labelling: Labelling, call: Call) -> LabelledTensor:
    """cat: along its axis the parts stand one after the other; along the others they are cut
    together.
    """
    result = uncut(call.output)
    parts = [
        part for part in call.tensors if len(part.shape) == len(result.shape)
    ]  # cat skips a lone empty vector
    dim = call.argument(1, "dim", 0) % len(result.shape)
    for d, axes in enumerate(zip(*(labelling.like(part).axes for part in parts), strict=True)):
        if d == dim:
            result.axes[d] = chained(
                labelling, call, [*zip(axes, (part.shape[d] for part in parts), strict=True)]
            )
            if result.axes[d] is not None:
                labelling.join(call, [result.axes[d]])
            continue
        result.axes[d] = axes[0]
        for other in axes[1:]:
            labelling.tie(axes[0], other, call.name)
    return result


def chained(
    labelling: Labelling, call: Call, parts: list[tuple[Labels | None, int]]
) -> Labels | None:
    """Labels one after the other, each with its length; a part that holds no channels stays as it
    is.
    """
    if all(labels is None for labels, _ in parts):
        return None
    why = f"{call.name}: this part of the result has a fixed size"
    return np.concatenate(
        [labelling.ties.fresh(n, why) if labels is None else labels for labels, n in parts]
    )


def pad(labelling: Labelling, call: Call) -> LabelledTensor:
    """F.pad: channels that are padded on are constant and stay."""
    axes, amounts = labelling.like(call.tensors[0]).axes, call.argument(1, "pad")
    constant = call.argument(2, "mode", "constant") == "constant"
    for i in range(len(amounts) // 2):
        labels, (before, after) = axes[-1 - i], amounts[2 * i : 2 * i + 2]
        if labels is not None and (before, after) != (0, 0):
            if not (constant and all(isinstance(n, int) and n >= 0 for n in (before, after))):
                return unknown(labelling, call)
            axes[-1 - i] = chained(
                labelling, call, [(None, before), (labels, len(labels)), (None, after)]
            )
    return LabelledTensor(tuple(call.output.shape), axes)
