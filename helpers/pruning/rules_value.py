"""Rules for operations that compute values: index by index, over space, along an axis; for layers;
and for numbers.

Conv, Linear     out channels <-> rows of the weight, bias;  in channels <-> columns of the weight
BatchNorm        channel <-> entry of weight, bias, running mean and running variance
grouped conv     a whole group goes (depthwise is groups of one), or every group loses the same
positions
LayerNorm, ...   nothing goes, because channels share their statistics
"""

from typing import Any

import numpy as np
import torch

from helpers.pruning.labelling import Call, LabelledTensor, Labelling, Labels, Number, uncut
from helpers.pruning.reader import leaves

SHARED_STATISTICS = "normalises over all channels, so that cutting one changes the rest"


def elementwise(labelling: Labelling, call: Call) -> LabelledTensor:
    """Any function of one or several broadcast tensors: indices that meet are cut together."""
    if not isinstance(call.output, torch.Tensor):  # Identity of a tuple
        return unknown(labelling, call)
    result = uncut(call.output)
    for d in range(-len(result.shape), 0):
        meeting = [t for t in call.tensors if len(t.shape) >= -d and t.shape[d] == result.shape[d]]
        meeting.sort(
            key=lambda t: t.axes[d] is ...
        )  # a parameter that is new here takes the labels of what it meets
        if meeting:
            result.axes[d] = labels = labelling.axis(meeting[0], d)
            for other in meeting[1:]:
                labelling.bind(other, d, labels, call.name)
    if (
        call.op == "add" and sum(t.name is None for t in call.tensors) > 1
    ):  # activations, and no parameters
        labelling.join(call, result.axes)
    return result


def over_space(labelling: Labelling, call: Call) -> LabelledTensor:
    """Pooling and resizing work on each channel by itself; the channels stand before the spatial
    axes.
    """
    (x, *_) = call.tensors
    spatial = next((int(n) for n in "123" if f"{n}d" in call.op), len(x.shape) - 2)
    channel = len(x.shape) - spatial - 1
    labelling.pin_all(x, f"{call.name}: works across this axis", keep=(channel,))
    result = uncut(call.output)
    for part in leaves(
        result
    ):  # two, if the call asks for the places of the largest values as well
        part.axes[: channel + 1] = [labelling.axis(x, d) for d in range(channel + 1)]
    return result


def along_axes(labelling: Labelling, call: Call) -> LabelledTensor:
    """softmax, mean and their like combine the values along some axes, which therefore stay; the
    others do not care.
    """
    (x, *_), result, rank = call.tensors, uncut(call.output), len(call.tensors[0].shape)
    dims = call.module.dim if call.module else call.argument(1, "dim")
    combined = {d % rank for d in leaves(dims) if d is not None} or {*range(rank)}
    mixes = result.shape == x.shape
    why = "mixes the channels" if mixes else "the result depends on how many channels there are"
    for d in combined:
        labelling.ties.pin(labelling.axis(x, d), f"{call.name}: {why}")
    axes = [labelling.axis(x, d) if mixes or d not in combined else None for d in range(rank)]
    result.axes = (
        axes if len(result.shape) == rank else [axes[d] for d in range(rank) if d not in combined]
    )
    return result


def operands(labelling: Labelling, call: Call, *names: str) -> list[LabelledTensor | None]:
    """The input and these parameters, of a layer or of a function that is called with them; None
    for one it lacks.
    """
    if call.module is None:
        return [call.argument(i, name) for i, name in enumerate(("input", *names))]
    held = [name for name in names if getattr(call.module, name, None) is not None]
    return [
        call.tensors[0],
        *(labelling.parameter(f"{call.node.target}.{n}") if n in held else None for n in names),
    ]


def weighted(labelling: Labelling, call: Call) -> LabelledTensor:
    """Convolution, linear: channels of the input meet columns of the weight; its rows are channels
    of the output.
    """
    x, weight, bias = operands(labelling, call, "weight", "bias")
    transposed = "transpose" in call.op
    if (
        weight.name is None
        or len(weight.shape) < 2
        or (transposed and getattr(call.module, "groups", 2) > 1)
    ):
        return unknown(labelling, call)  # computed, or a rarity
    out_dim, in_dim = (1, 0) if transposed else (0, 1)
    result, channel = uncut(call.output), len(x.shape) - len(weight.shape) + 1
    if call.op == "linear":
        groups = 1
        result.axes[:-1] = [labelling.axis(x, d) for d in range(channel)]
    else:
        groups = call.module.groups if call.module else call.argument(6, "groups", 1)
        labelling.pin_all(x, f"{call.name}: works across this axis", keep=(channel,))
    groups = getattr(
        groups, "value", groups
    )  # `groups=x.shape[1]`: its channels are pinned, as for any such number
    inputs = labelling.axis(x, channel)
    if groups == 1:
        labelling.bind(weight, in_dim, inputs, call.name)
        outputs = labelling.axis(weight, out_dim)
    else:
        outputs = grouped(labelling, call, inputs, weight, x.shape[channel] // groups, groups)
    if bias is not None:
        labelling.bind(bias, 0, outputs, call.name)
    labelling.output_axes.add((weight.name, out_dim))
    labelling.input_axes.setdefault((weight.name, in_dim), {}).setdefault(call.node.name, call.node)
    result.axes[channel] = outputs
    return result


def grouped(
    labelling: Labelling,
    call: Call,
    inputs: Labels | None,
    weight: LabelledTensor,
    block: int,
    groups: int,
) -> Labels | None:
    """A grouped convolution, `block` input channels to a group.

    Of the two ways to cut it, take the finer one.

    Whole groups: the inputs and outputs of a group are one atom, and there are fewer groups.
    Inside: every group loses the same positions of its inputs, and the same of its outputs.
    """
    if inputs is not None and call.module is not None and groups >= block:
        first = labelling.tie_parts(inputs.reshape(groups, block).T.ravel(), block)
        outputs = np.repeat(first, call.module.out_channels // groups)
        labelling.bind(weight, 0, outputs, call.name)
        labelling.loses_whole_groups.add(call.node.target)
        return outputs
    labelling.bind(
        weight, 1, None if inputs is None else labelling.tie_parts(inputs, groups), call.name
    )
    outputs = labelling.axis(weight, 0)
    if outputs is not None:
        labelling.tie_parts(outputs, groups)
    return outputs


def scaled(
    labelling: Labelling, call: Call, x: LabelledTensor, *parameters: LabelledTensor | None
) -> LabelledTensor:
    """These parameters have one number for each channel, or one for all of them."""
    for tensor in parameters:
        if tensor is not None and tensor.shape not in ((), (1,)):
            labelling.bind(tensor, 0, labelling.axis(x, 1), call.name)
    return labelling.like(x)


def batch_norm(labelling: Labelling, call: Call) -> LabelledTensor:
    """BatchNorm: a mean, variance, scale and shift for each channel.

    Those that it measures span all other axes.
    """
    x, *parameters = operands(labelling, call, "running_mean", "running_var", "weight", "bias")
    layer = call.module
    if (
        layer.training or layer.running_mean is None
        if layer
        else call.argument(5, "training", False)
    ):
        labelling.pin_all(x, f"{call.name}: {SHARED_STATISTICS}", keep=(1,))
    return scaled(labelling, call, x, *parameters)


def layer_norm(labelling: Labelling, call: Call) -> LabelledTensor:
    """LayerNorm, RMSNorm, GroupNorm: channels share their statistics, so cutting one would change
    others.
    """
    pin_operands(labelling, call, SHARED_STATISTICS)
    return labelling.like(call.tensors[0])


def prelu(labelling: Labelling, call: Call) -> LabelledTensor:
    """PReLU: one slope for all, or one for each channel."""
    return scaled(labelling, call, *operands(labelling, call, "weight"))


def size(labelling: Labelling, call: Call) -> Any:
    """x.shape, x.size() and x.size(d); the length of an axis that holds channels is a Number: it
    will change.
    """
    (x, *_), dim = call.tensors, call.argument(1, "dim")
    axes = zip(x.shape, labelling.like(x).axes, strict=True)
    sizes = tuple(n if labels is None else Number(n, [labels]) for n, labels in axes)
    return sizes if dim is None else sizes[dim]


def unknown(labelling: Labelling, call: Call) -> Any:
    """Arithmetic on numbers goes on as a number; any other operation without a rule pins what
    reaches it.
    """
    if not call.tensors and not isinstance(call.output, torch.Tensor):
        axes = [labels for number in call.numbers for labels in number.axes]
        return Number(call.output, axes) if axes else call.output
    call.node.meta["unknown"] = bool(call.tensors)
    pin_operands(labelling, call, "this operation is not understood")
    return uncut(call.output)


def pin_operands(labelling: Labelling, call: Call, why: str) -> None:
    """What reaches an operation stays, and so do the parameters that it has."""
    held = call.module.named_parameters() if call.module is not None else ()
    parameters = [labelling.parameter(f"{call.node.target}.{name}") for name, _ in held]
    labelling.pin_all((call.args, call.kwargs, parameters), f"{call.name}: {why}")
