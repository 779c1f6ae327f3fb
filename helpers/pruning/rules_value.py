"""Rules for operations that compute values index by index, over space, or along one axis; and for plain numbers."""

from typing import Any

import torch

from helpers.pruning.labelling import Call, Labelling, Number, Tensor, uncut
from helpers.pruning.reader import leaves


def elementwise(labelling: Labelling, call: Call) -> Tensor:
    """Any function of one or several broadcast tensors: indices that meet are cut together."""
    if not isinstance(call.output, torch.Tensor):  # Identity of a tuple
        return unknown(labelling, call)
    result = uncut(call.output)
    for d in range(-len(result.shape), 0):
        meeting = [t for t in call.tensors if len(t.shape) >= -d and t.shape[d] == result.shape[d]]
        meeting.sort(key=lambda t: t.axes[d] is ...)  # a parameter that is new here takes the labels of what it meets
        if meeting:
            labels = labelling.axis(meeting[0], d)
            for other in meeting[1:]:
                labelling.bind(other, d, labels, call.name)
            result.axes[d] = labels
    if call.op == "add" and sum(t.name is None for t in call.tensors) > 1:  # activations, and no parameters
        labelling.join(call, result.axes)
    return result


def over_space(labelling: Labelling, call: Call) -> Tensor:
    """Pooling and resizing work on each channel by itself; the channels stand before the spatial axes."""
    (x, *_) = call.tensors
    spatial = next((int(n) for n in "123" if f"{n}d" in call.op), len(x.shape) - 2)
    channel = len(x.shape) - spatial - 1
    labelling.pin_all(x, f"{call.name}: works across this axis", keep=(channel,))
    result = uncut(call.output)
    for part in leaves(result):  # two, if the call asks for the places of the largest values as well
        part.axes[: channel + 1] = [labelling.axis(x, d) for d in range(channel + 1)]
    return result


def along_axes(labelling: Labelling, call: Call) -> Tensor:
    """softmax, mean and their like combine the values along some axes, which therefore stay; the others do not care."""
    (x, *_), result, rank = call.tensors, uncut(call.output), len(call.tensors[0].shape)
    dims = call.module.dim if call.module else call.argument(1, "dim")
    combined = {d % rank for d in leaves(dims) if d is not None} or {*range(rank)}
    mixes = result.shape == x.shape
    why = "mixes the channels" if mixes else "the result depends on how many channels there are"
    for d in combined:
        labelling.atoms.pin(labelling.axis(x, d), f"{call.name}: {why}")
    axes = [labelling.axis(x, d) if mixes or d not in combined else None for d in range(rank)]
    result.axes = axes if len(result.shape) == rank else [axes[d] for d in range(rank) if d not in combined]
    return result


def size(labelling: Labelling, call: Call) -> Any:
    """x.shape, x.size() and x.size(d); the length of an axis that holds channels is a Number: it will change."""
    (x, *_), dim = call.tensors, call.argument(1, "dim")
    axes = [labelling.axis(x, d) for d in range(len(x.shape))]
    sizes = tuple(n if labels is None else Number(n, [labels]) for n, labels in zip(x.shape, axes, strict=True))
    return sizes if dim is None else sizes[dim]


def asked(labelling: Labelling, call: Call) -> Any:
    """Checks and questions. The forward may look at a number of channels, or compare the sizes of tensors."""
    if call.op in ("decision", "question"):
        labelling.pin_all(call.args, f"{call.name}: the forward decides by the number of channels")
    return call.output


def unknown(labelling: Labelling, call: Call) -> Any:
    """Arithmetic on numbers goes on as a number; any other operation without a rule pins what reaches it."""
    if not call.tensors and not isinstance(call.output, torch.Tensor):
        axes = [labels for number in call.numbers for labels in number.axes]
        return Number(call.output, axes) if axes else call.output
    held = call.module.named_parameters() if call.module is not None else ()
    parameters = [labelling.parameter(f"{call.node.target}.{name}") for name, _ in held]
    labelling.pin_all((call.args, call.kwargs, parameters), f"{call.name}: this operation is not understood")
    return uncut(call.output)
