"""Rules for operations that compute values: index by index, over space, along an axis; for layers;
and for numbers.

Conv, Linear     out channels <-> axis 0 of the weight, bias;  in channels <-> axis 1 of the weight
BatchNorm        channel <-> entry of weight, bias, running mean and running variance
grouped conv     a whole group goes (depthwise is groups of one), or every group loses the same
LayerNorm, ...   nothing goes, because channels share their statistics
"""

from typing import Any

import numpy as np
import torch

from helpers.pruning.labelling import Call, LabelledTensor, Number, uncut
from helpers.pruning.reader import leaves
from helpers.pruning.ties import Labels

SHARED_STATISTICS = "normalises over all channels, so that cutting one changes the rest"


def elementwise(call: Call) -> LabelledTensor:
    """Any function of one or several broadcast tensors: indices that meet are cut together."""
    if not isinstance(call.output, torch.Tensor):  # Identity of a tuple
        return unknown(call)
    result = uncut(call.output)
    for d in range(-len(result.shape), 0):
        meeting = [t for t in call.tensors if len(t.shape) >= -d and t.shape[d] == result.shape[d]]
        # A parameter that is new here takes the labels of what it meets.
        meeting.sort(key=lambda t: t.axes[d] is ...)
        if meeting:
            labels = call.labelling.axis(meeting[0], d)
            result.axes[d] = labels
            for other in meeting[1:]:
                call.bind(other, d, labels)
    activations = [t for t in call.tensors if t.name is None]
    if call.op == "add" and len(activations) > 1:
        call.share(result.axes)
    return result


def over_space(call: Call) -> LabelledTensor:
    """Pooling and resizing work on each channel by itself; the channels stand before the spatial
    axes.
    """
    x = call.tensors[0]
    named = [n for n in (1, 2, 3) if f"{n}d" in call.op]
    spatial = named[0] if named else len(x.shape) - 2
    channel = len(x.shape) - spatial - 1
    call.pin(x, "works across this axis", keep=(channel,))
    result = uncut(call.output)
    for part in leaves(result):  # two, if the call asks for the places of the largest values too
        part.axes[: channel + 1] = call.axes(x)[: channel + 1]
    return result


def along_axes(call: Call) -> LabelledTensor:
    """softmax, mean and their like combine the values along some axes, which therefore stay."""
    x = call.tensors[0]
    rank = len(x.shape)
    result = uncut(call.output)
    parts = leaves(result)  # two, if the call asks for the places of the largest values too
    dims = [d for d in leaves(call.setting(1, "dim")) if type(d) is int]  # and not std(True)
    combined = {d % rank for d in dims} or {*range(rank)}
    axes = call.axes(x)
    mixes = parts[0].shape == x.shape
    for d in combined:
        if mixes:
            call.pin(axes[d], "mixes the channels")
        else:
            call.pin(axes[d], "the result depends on how many channels there are")
            axes[d] = None
    if len(parts[0].shape) < rank:
        axes = [labels for d, labels in enumerate(axes) if d not in combined]
    for part in parts:
        part.axes = axes
    return result


def extreme(call: Call) -> Any:
    """max and min: of two tensors, or along axes."""
    return elementwise(call) if len(call.tensors) > 1 else along_axes(call)


def glu(call: Call) -> LabelledTensor:
    """The first half of the channels, times a gate that is made of the second half."""
    axes = call.axes(call.tensors[0])
    dim = call.setting(1, "dim", -1)
    if axes[dim] is not None:
        axes[dim] = call.tie_parts(axes[dim], 2)
    return call.result(axes)


def operands(call: Call, *names: str) -> list[LabelledTensor | None]:
    """The input and these parameters, of a layer or of a function that is called with them; None
    for one it lacks.
    """
    if call.module is None:
        return [call.argument(i, name) for i, name in enumerate(("input", *names))]
    found: list[LabelledTensor | None] = [call.tensors[0]]
    for name in names:
        held = getattr(call.module, name, None) is not None
        found.append(call.labelling.parameter(f"{call.node.target}.{name}") if held else None)
    return found


def weighted(call: Call) -> LabelledTensor:
    """Convolution, linear: one axis of the weight has the channels of the input, one makes those of
    the output.
    """
    x, weight, bias = operands(call, "weight", "bias")
    transposed = "transpose" in call.op
    if weight.name is None or len(weight.shape) < 2:
        return unknown(call)  # a weight that is computed
    if transposed and getattr(call.module, "groups", 2) > 1:
        return unknown(call)  # a rarity
    in_dim = 0 if transposed else 1
    out_dim = 1 - in_dim
    result = uncut(call.output)
    channel = len(x.shape) - len(weight.shape) + 1
    groups = 1
    if call.op == "linear":
        result.axes[:-1] = call.axes(x)[:-1]
    else:
        groups = call.setting(6, "groups", 1)
        call.pin(x, "works across this axis", keep=(channel,))
    if isinstance(groups, Number):  # `groups=x.shape[1]`, whose channels are pinned
        groups = groups.value
    inputs = call.labelling.axis(x, channel)
    if groups == 1:
        call.bind(weight, in_dim, inputs)
        outputs = call.labelling.axis(weight, out_dim)
    else:
        outputs = grouped(call, inputs, weight, x.shape[channel] // groups, groups)
    if bias is not None:
        call.bind(bias, 0, outputs)
    call.labelling.output_axes.add((weight.name, out_dim))
    call.labelling.input_axes[weight.name, in_dim].setdefault(call.node.name, call.node)
    result.axes[channel] = outputs
    return result


def grouped(
    call: Call, inputs: Labels | None, weight: LabelledTensor, block: int, groups: int
) -> Labels | None:
    """A grouped convolution, `block` input channels to a group: of the two ways to cut it, the
    finer one.

    Whole groups: the inputs and outputs of a group are one unit, and there are fewer groups.
    Inside: every group loses the same of its inputs, and the same of its outputs.
    """
    if inputs is not None and call.module is not None and groups >= block:
        first = call.tie_parts(inputs.reshape(groups, block).T.ravel(), block)
        outputs = np.repeat(first, call.module.out_channels // groups)
        call.bind(weight, 0, outputs)
        call.labelling.loses_whole_groups.add(call.node.target)
        return outputs
    call.bind(weight, 1, None if inputs is None else call.tie_parts(inputs, groups))
    outputs = call.labelling.axis(weight, 0)
    if outputs is not None:
        call.tie_parts(outputs, groups)
    return outputs


def scaled(call: Call, x: LabelledTensor, *parameters: LabelledTensor | None) -> LabelledTensor:
    """These parameters have one number for each channel, or one for all of them."""
    for tensor in parameters:
        if tensor is not None and tensor.shape not in ((), (1,)):
            call.bind(tensor, 0, call.labelling.axis(x, 1))
    return call.result(call.axes(x))


def batch_norm(call: Call) -> LabelledTensor:
    """BatchNorm: a mean, variance, scale and shift for each channel.

    Those that it measures span all other axes.
    """
    x, *parameters = operands(call, "running_mean", "running_var", "weight", "bias")
    measures = call.setting(5, "training", False)
    if measures or (call.module is not None and call.module.running_mean is None):
        call.pin(x, SHARED_STATISTICS, keep=(1,))
    return scaled(call, x, *parameters)


def layer_norm(call: Call) -> LabelledTensor:
    """LayerNorm, RMSNorm, GroupNorm: channels share their statistics, so cutting one would change
    others.
    """
    pin_operands(call, SHARED_STATISTICS)
    return call.result(call.axes(call.tensors[0]))


def prelu(call: Call) -> LabelledTensor:
    """PReLU: one slope for all, or one for each channel."""
    return scaled(call, *operands(call, "weight"))


def size(call: Call) -> Any:
    """x.shape, x.size() and x.size(d); the length of an axis that holds channels is a Number: it
    will change.
    """
    x = call.tensors[0]
    axes = zip(x.shape, call.axes(x), strict=True)
    sizes = tuple(n if labels is None else Number(n, [labels]) for n, labels in axes)
    dim = call.argument(1, "dim")
    return sizes if dim is None else sizes[dim]


def unknown(call: Call) -> Any:
    """Arithmetic on numbers goes on as a number; any other operation without a rule pins what
    reaches it.
    """
    if not call.tensors and not isinstance(call.output, torch.Tensor):
        axes = [labels for number in call.numbers for labels in number.axes]
        return Number(call.output, axes) if axes else call.output
    pin_operands(call, "this operation is not understood")
    return uncut(call.output)


def pin_operands(call: Call, why: str) -> None:
    """What reaches an operation stays, and so do the parameters that it has."""
    held = call.module.named_parameters() if call.module is not None else ()
    parameters = [call.labelling.parameter(f"{call.node.target}.{name}") for name, _ in held]
    call.pin((call.args, call.kwargs, parameters), why)
