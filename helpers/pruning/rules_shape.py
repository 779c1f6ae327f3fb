"""Rules for operations that move indices about: reshape, permute, concatenate, cut in pieces, index, pad."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from helpers.pruning.labelling import Axes, Call, Labelling, Labels, Number, Tensor, leaves, uncut
from helpers.pruning.rules_value import unknown

FIXED_SIZE = "the forward asks for a fixed size here, which would no longer fit"
OTHER_AXIS = "a size here follows the number of channels of another axis"


def blocks(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Match the axes of a tensor with those of its reshaped self: the smallest runs with the same number of elements.

    Example:
        >>> list(blocks((1, 6, 4, 4), (1, 2, 3, 16)))
        [([1], [1, 2]), ([2, 3], [3])]
    """
    rows = [d for d, size in enumerate(before) if size != 1]
    columns = [d for d, size in enumerate(after) if size != 1]
    while rows and columns:
        left, right = [rows.pop(0)], [columns.pop(0)]
        while (a := np.prod([before[d] for d in left])) != (b := np.prod([after[d] for d in right])):
            if a < b:
                left.append(rows.pop(0))
            else:
                right.append(columns.pop(0))
        yield left, right


def follows(labelling: Labelling, labels: Labels, size: Any) -> bool:
    """Whether a size was worked out from the channels of this axis, or of one that is from now on cut with it."""
    if not isinstance(size, Number):
        return False
    counted = list({id(axis): axis for axis in size.axes}.values())
    if len(counted) == 1 and counted[0] is labels:
        return True
    counted = np.concatenate(counted)
    if len(counted) == len(labels):
        labelling.tie(labels, counted, "size")
        return True
    return labelling.atoms.in_step(labels, counted)


def reshape(labelling: Labelling, call: Call) -> Tensor:
    """view, reshape, flatten, unsqueeze: the elements keep their order, so each keeps its atom.

    Flattening (C, H, W) gives every channel a run of H*W indices. Splitting C into (g, k) has to leave whole rows: the
    axis whose size the forward works out (-1, or from x.shape) is the one that shrinks, and its positions are tied
    along the other one.
    """
    (x, *_), sizes = call.tensors, requested_sizes(call)
    if sizes is not None and len(sizes) != call.output.dim():  # view(dtype), view_as
        return unknown(labelling, call)
    result, elsewhere = uncut(call.output), {id(number): number for number in call.numbers}
    for left, right in blocks(x.shape, result.shape):
        labelled = [d for d in left if labelling.axis(x, d) is not None]
        if not labelled:
            continue
        if len(labelled) > 1:
            labelling.pin_all(x, f"{call.name}: merges two axes that both hold channels")
            continue
        labels = x.axes[labelled[0]]
        free = [d for d in right if sizes is None or sizes[d] == -1 or follows(labelling, labels, sizes[d])]
        if len(free) != 1:
            labelling.atoms.pin(labels, f"{call.name}: {FIXED_SIZE}")
            continue
        if sizes is not None:
            elsewhere.pop(id(sizes[free[0]]), None)
        column = [1 if d != labelled[0] else -1 for d in left]
        elements = np.broadcast_to(labels.reshape(column), [x.shape[d] for d in left])
        elements = np.moveaxis(elements.reshape([result.shape[d] for d in right]), right.index(free[0]), -1)
        result.axes[free[0]] = labelling.tie_rows(elements.ravel(), elements.size // elements.shape[-1])
    labelling.pin_all(list(elsewhere.values()), f"{call.name}: {OTHER_AXIS}")
    return result


def squeeze(labelling: Labelling, call: Call) -> Tensor:
    """squeeze: it would take away the axis of a lone channel as well, so some of them have to stay."""
    (x, *_), rank = call.tensors, len(call.tensors[0].shape)
    asked = {d % rank for d in leaves(call.argument(1, "dim")) if d is not None} or set(range(rank))
    for d in asked:
        labelling.atoms.pin(labelling.axis(x, d), f"{call.name}: would take away a lone channel (flatten does not)")
    return reshape(labelling, call)


def requested_sizes(call: Call) -> list | None:
    """The sizes that view, reshape and expand are given; None for operations that need none."""
    if call.op not in ("view", "reshape", "expand"):
        return None
    given = call.kwargs.get("shape", call.kwargs.get("size", call.args[1:]))
    return [v for v in leaves(given) if not isinstance(v, Tensor)]


def permute(labelling: Labelling, call: Call) -> Tensor:
    """permute gives the order of the axes; transpose and swapaxes name two that change places."""
    (x, *_) = call.tensors
    order = list(range(len(x.shape)))
    if call.op == "permute":
        order = leaves(call.kwargs.get("dims", call.args[1:]))
    else:
        first, second = call.argument(1, "dim0"), call.argument(2, "dim1")
        order[first], order[second] = order[second], order[first]
    return Tensor(tuple(call.output.shape), [labelling.axis(x, d) for d in order])


def expand(labelling: Labelling, call: Call) -> Tensor:
    """expand: axes that keep their size keep their atoms."""
    (x, *_), sizes = call.tensors, requested_sizes(call)
    result = uncut(call.output)
    for d in range(-len(sizes), 0):
        labels = labelling.axis(x, d) if d >= -len(x.shape) else None
        if labels is None:
            labelling.pin_all(sizes[d], f"{call.name}: {OTHER_AXIS}")
        elif sizes[d] != -1 and not follows(labelling, labels, sizes[d]):
            labelling.pin_all((x, sizes[d]), f"{call.name}: {FIXED_SIZE}")
        result.axes[d] = labels
    return result


def concatenate(labelling: Labelling, call: Call) -> Tensor:
    """cat: along its axis the parts stand one after the other; along the others they are cut together."""
    result = uncut(call.output)
    parts = [part for part in call.tensors if len(part.shape) == len(result.shape)]  # cat skips a lone empty vector
    dim = call.argument(1, "dim", 0) % len(result.shape)
    for d in range(len(result.shape)):
        axes = [labelling.axis(part, d) for part in parts]
        if d == dim:
            result.axes[d] = chained(labelling, call, axes, [part.shape[d] for part in parts])
        else:
            result.axes[d] = axes[0]
            for other in axes[1:]:
                labelling.tie(axes[0], other, call.name)
    if result.axes[dim] is not None:
        labelling.joins.append(call)
        labelling.joined.append(result.axes[dim])
    return result


def chained(labelling: Labelling, call: Call, axes: Axes, sizes: list[int]) -> Labels | None:
    """Labels one after the other; a part that holds no channels stays as it is."""
    if all(labels is None for labels in axes):
        return None
    filled = []
    for labels, size in zip(axes, sizes, strict=True):
        filled.append(labelling.atoms.fresh(size) if labels is None else labels)
        if labels is None:
            labelling.atoms.pin(filled[-1], f"{call.name}: this part of the result has a fixed size")
    return np.concatenate(filled)


def pieces(labelling: Labelling, call: Call) -> Any:
    """chunk, split: equal pieces of the channels have to stay equal, so their positions are tied."""
    (x, *_), results = call.tensors, uncut(call.output)
    dim = call.argument(2, "dim", 0) % len(x.shape)
    asked = leaves(call.argument(1, "split_size", call.kwargs.get("split_size_or_sections")))
    equal = len({piece.shape[dim] for piece in results}) == 1
    labels = labelling.axis(x, dim)
    fits = labels is not None and (call.op == "chunk" or all(follows(labelling, labels, size) for size in asked))
    if call.op == "chunk" or not fits:
        labelling.pin_all(call.numbers, f"{call.name}: {OTHER_AXIS}")
    if labels is not None and not (fits and equal):
        labelling.atoms.pin(labels, f"{call.name}: {FIXED_SIZE if equal else 'the pieces are not equal'}")
    elif labels is not None:
        labelling.tie_rows(labels, len(results))
    start = 0
    for piece in results:
        piece.axes = [labelling.axis(x, d) for d in range(len(x.shape))]
        piece.axes[dim] = None if labels is None else labels[start : start + piece.shape[dim]]
        start += piece.shape[dim]
    return results


def index(labelling: Labelling, call: Call) -> Any:
    """x[...]: an item of a tuple, or a slice of a tensor."""
    x, wanted = call.args
    if not isinstance(x, Tensor):
        return x[wanted]
    wanted = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
    if not all(w is None or w is ... or type(w) in (int, slice) for w in wanted):
        labelling.pin_all((x, wanted), f"{call.name}: only slices and fixed numbers are understood as an index")
        return uncut(call.output)
    if ... in wanted:
        place, taken = wanted.index(...), sum(w is not None and w is not ... for w in wanted)
        wanted[place : place + 1] = [slice(None)] * (len(x.shape) - taken)
    axes, dims = [], iter(range(len(x.shape)))
    for w in wanted:
        if w is None:
            axes.append(None)
        elif isinstance(w, slice):
            axes.append(sliced(labelling, call, labelling.axis(x, dim := next(dims)), w, x.shape[dim]))
        else:
            labelling.atoms.pin(labelling.axis(x, next(dims)), f"{call.name}: picks one channel by its number")
    return Tensor(tuple(call.output.shape), axes + [labelling.axis(x, d) for d in dims])


def sliced(labelling: Labelling, call: Call, labels: Labels | None, wanted: slice, size: int) -> Labels | None:
    """One of several equal pieces, between bounds that follow the channel count; any other slice pins the axis."""
    bounds = (wanted.start, wanted.stop, wanted.step)
    start, stop, step = slice(*(b.value if isinstance(b, Number) else b for b in bounds)).indices(size)
    if labels is None:
        labelling.pin_all(bounds, f"{call.name}: {OTHER_AXIS}")
        return None
    fits = all(follows(labelling, labels, b) or (not isinstance(b, Number) and not b) for b in bounds[:2])
    length = stop - start
    if not fits or step != 1 or length < 1 or size % length or start % length:
        labelling.atoms.pin(labels, f"{call.name}: takes channels by fixed numbers")
        labelling.pin_all(bounds, f"{call.name}: {OTHER_AXIS}")
    else:
        labelling.tie_rows(labels, size // length)
    return labels[start:stop:step]


def pad(labelling: Labelling, call: Call) -> Tensor:
    """F.pad: channels that are padded on are constant and stay."""
    (x, *_), amounts, mode = call.tensors, call.argument(1, "pad"), call.argument(2, "mode", "constant")
    result = uncut(call.output)
    for d in range(len(x.shape)):
        place = 2 * (len(x.shape) - 1 - d)
        around = amounts[place : place + 2] or (0, 0)
        labels = labelling.axis(x, d)
        if labels is None or not any(around):
            labelling.pin_all(list(around), f"{call.name}: {OTHER_AXIS}")
            result.axes[d] = labels
        elif mode == "constant" and all(isinstance(amount, int) and amount >= 0 for amount in around):
            result.axes[d] = chained(labelling, call, [None, labels, None], [around[0], x.shape[d], around[1]])
        else:
            labelling.pin_all((x, call.numbers), f"{call.name}: more than a fixed number of constant channels")
    return result


def channel_shuffle(labelling: Labelling, call: Call) -> Tensor:
    """channel_shuffle: (g, k) channels become (k, g); the g rows lose the same positions."""
    (x, *_), groups = call.tensors, call.module.groups if call.module else call.argument(1, "groups")
    result = Tensor(x.shape, list(x.axes))
    if x.axes[1] is not None:
        labelling.tie_rows(x.axes[1], groups)
        result.axes[1] = x.axes[1].reshape(groups, -1).T.ravel()
    return result
