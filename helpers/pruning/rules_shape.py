"""Rules for operations that move values about (reshape, permute, chunk, index), and that put them side by side."""

import math
from typing import Any

import numpy as np
import torch
from torch import fx

from helpers.pruning.labelling import Call, Labelling, Labels, Number, Tensor, uncut
from helpers.pruning.reader import leaves, perform
from helpers.pruning.rules_value import unknown

FIXED_SIZE = "the forward asks for a fixed size here, which would no longer fit"
FIXED_NUMBERS = "takes channels by fixed numbers"
OTHER_AXIS = "a size here follows the number of channels of another axis"


def moved(labelling: Labelling, call: Call) -> Any:
    """view, permute, chunk, x[...] and the like: done to a tensor of numbers, they show where each value goes.

    What they do now, they have to do after a cut as well. So it is done once more with strangers (-1) among the
    channels, and with twice the size where a size follows them: without the strangers, the result has to be the same.
    """
    x, result, elsewhere = call.tensors[0], uncut(call.output), {id(number): number for number in call.numbers}
    places = torch.arange(math.prod(x.shape), dtype=torch.int32).view(x.shape)
    once = moved_places(call, places) if len(call.tensors) == 1 else []
    kinds = [(one.shape, one.dtype) for one in once]
    expected = [(piece.shape, places.dtype) for piece in leaves(result)]
    if kinds != expected or not all(map(torch.numel, once)):  # an index tensor, view(dtype); nothing to be seen in it
        return unknown(labelling, call)
    for dim in range(len(x.shape)):
        labels = labelling.axis(x, dim)
        if labels is None:
            continue
        followed = {id(number) for number in call.numbers if follows(labelling, labels, number)}
        elsewhere = {key: number for key, number in elsewhere.items() if key not in followed}
        for beside in (dim + 1, dim):  # a stranger beside each channel, or as many behind all of them
            mixed = torch.stack([places, torch.full_like(places, -1)], beside).flatten(dim, dim + 1)
            axes = [*map(axis_of_strangers, once, moved_places(call, mixed, followed))]
            if len(axes) == len(once) and None not in axes:
                break
        else:
            labelling.atoms.pin(labels, f"{call.name}: {FIXED_NUMBERS if call.op == 'getitem' else FIXED_SIZE}")
            continue
        for piece, one, axis in zip(leaves(result), once, axes, strict=True):
            if piece.axes[axis] is not None:
                labelling.pin_all(x, f"{call.name}: merges two axes that both hold channels")
            channels = one.movedim(axis, -1) // math.prod(x.shape[dim + 1 :]) % x.shape[dim]
            piece.axes[axis] = tied(labelling, call, labels, channels.numpy())
    labelling.pin_all(list(elsewhere.values()), f"{call.name}: {OTHER_AXIS}")
    return result


def moved_places(call: Call, places: torch.Tensor, followed: frozenset[int] = frozenset()) -> list[torch.Tensor]:
    """What the call makes of these places; nothing if they do not fit."""

    def stand_in(value: Any) -> Any:
        if isinstance(value, Number):
            return value.value * (2 if id(value) in followed else 1)
        return places.detach() if isinstance(value, Tensor) else value

    args, kwargs = fx.node.map_aggregate((call.args, call.kwargs), stand_in)
    try:
        return leaves(perform(call.node, args, kwargs))
    except (RuntimeError, IndexError):
        return []


def axis_of_strangers(once: torch.Tensor, twice: torch.Tensor) -> int | None:
    """The axis that strangers have made twice as long, if without them nothing has changed."""
    for axis, size in enumerate(once.shape):
        if twice.shape == (*once.shape[:axis], 2 * size, *once.shape[axis + 1 :]):
            stays = twice.movedim(axis, -1).reshape(-1, 2 * size)[0] >= 0
            return axis if torch.equal(twice.movedim(axis, -1)[..., stays], once.movedim(axis, -1)) else None
    return None


def tied(labelling: Labelling, call: Call, labels: Labels, channels: np.ndarray) -> Labels | None:
    """The labels of an axis, from the channels that lie along it: the last axis of this table, whose rows are tied.

    If it holds only some of the channels, these have to be one of several equal pieces, which are tied as well.
    """
    for dim in range(channels.ndim - 1):
        first = channels.take([0], dim)
        channels = first if (channels == first).all() else channels
    held = np.unique(channels)
    if len(held) > 1 and (channels == channels[..., :1]).all():  # the fixed size is that of all channels
        labelling.atoms.pin(labels, f"{call.name}: {FIXED_SIZE}")
        return None
    pieces, rest = divmod(len(labels), len(held))
    if rest or held[0] % len(held) or held[-1] - held[0] >= len(held):
        labelling.atoms.pin(labels, f"{call.name}: {FIXED_NUMBERS}")
    elif pieces > 1:
        labelling.tie_rows(labels, pieces)
    return labelling.tie_rows(labels[channels].ravel(), channels.size // channels.shape[-1])


def follows(labelling: Labelling, labels: Labels, size: Number) -> bool:
    """Whether a size was worked out from the channels of this axis, or of one that is from now on cut with it."""
    counted = np.concatenate(list({id(axis): axis for axis in size.axes}.values()))
    if len(counted) == len(labels):
        labelling.tie(labels, counted, "size")
        return True
    return labelling.atoms.in_step(labels, counted)


def item(labelling: Labelling, call: Call) -> Any:
    """x[...]: of a tensor, or of a tuple."""
    return moved(labelling, call) if isinstance(call.args[0], Tensor) else call.args[0][call.args[1]]


def concatenate(labelling: Labelling, call: Call) -> Tensor:
    """cat: along its axis the parts stand one after the other; along the others they are cut together."""
    result = uncut(call.output)
    parts = [part for part in call.tensors if len(part.shape) == len(result.shape)]  # cat skips a lone empty vector
    dim = call.argument(1, "dim", 0) % len(result.shape)
    for d in range(len(result.shape)):
        axes = [labelling.axis(part, d) for part in parts]
        if d == dim:
            result.axes[d] = chained(labelling, call, [*zip(axes, (part.shape[d] for part in parts), strict=True)])
            labelling.join(call, [result.axes[d]])
            continue
        result.axes[d] = axes[0]
        for other in axes[1:]:
            labelling.tie(axes[0], other, call.name)
    return result


def chained(labelling: Labelling, call: Call, parts: list[tuple[Labels | None, int]]) -> Labels | None:
    """Labels one after the other, each with its length; a part that holds no channels stays as it is."""
    if all(labels is None for labels, _ in parts):
        return None
    why = f"{call.name}: this part of the result has a fixed size"
    return np.concatenate([labelling.atoms.fresh(n, why) if labels is None else labels for labels, n in parts])


def pad(labelling: Labelling, call: Call) -> Tensor:
    """F.pad: channels that are padded on are constant and stay."""
    (x, *_), amounts, mode = call.tensors, call.argument(1, "pad"), call.argument(2, "mode", "constant")
    result = uncut(call.output)
    for d in range(len(x.shape)):
        before, after = amounts[2 * (len(x.shape) - 1 - d) :][:2] or (0, 0)
        labels = labelling.axis(x, d)
        if labels is None or (before, after) == (0, 0):
            result.axes[d] = labels
        elif mode == "constant" and isinstance(before, int) and isinstance(after, int) and min(before, after) >= 0:
            result.axes[d] = chained(labelling, call, [(None, before), (labels, x.shape[d]), (None, after)])
        else:
            labelling.pin_all(x, f"{call.name}: more than a fixed number of constant channels")
    return result
