"""Rules for operations that compute values (elementwise, over space, along an axis), for layers,
and for sizes.

Conv, Linear     out channels <-> axis 0 of the weight, bias;  in channels <-> axis 1 of the weight
BatchNorm        channel <-> entry of weight, bias, running mean and running variance
grouped conv     whole groups go (depthwise is groups of one), or every group loses the same
LayerNorm, ...   no channel goes, because all of them share their statistics
"""

from typing import Any

import numpy as np
import torch

from helpers.pruning.labelling import Call, LabelledTensor, Number, no_axis_cut
from helpers.pruning.reader import leaves
from helpers.pruning.ties import Labels

SHARED_STATISTICS = "normalises over all channels, so that cutting one changes the rest"


def elementwise(call: Call) -> LabelledTensor:
    """Any function of one or several broadcast tensors: channels that are combined are tied."""
    if not isinstance(call.output, torch.Tensor):  # Identity of a tuple
        return unknown(call)
    result = no_axis_cut(call.output)
    for d in range(-len(result.shape), 0):
        n = result.shape[d]
        combined = [t for t in call.tensors if len(t.shape) >= -d and t.shape[d] == n]
        # Parameters without labels last: they take those of the first one.
        combined.sort(key=lambda t: t.axes[d] is ...)
        if combined:
            labels = call.labelling.axis(combined[0], d)
            result.axes[d] = labels
            for other in combined[1:]:
                call.bind(other, d, labels)
    activations = [t for t in call.tensors if t.name is None]
    if call.op == "add" and len(activations) > 1:
        call.share(result.axes)
    return result


def over_space(call: Call) -> LabelledTensor:
    """Pooling and resizing, which work on each channel alone; the channels are on the axis before
    the spatial ones.
    """
    x = call.tensors[0]
    named = [n for n in (1, 2, 3) if f"{n}d" in call.op]
    spatial = named[0] if named else len(x.shape) - 2
    channel = len(x.shape) - spatial - 1
    call.pin(x, "works across this axis", keep=(channel,))
    result = no_axis_cut(call.output)
    for part in leaves(result):  # the values, and their indices if the call asks for them
        part.axes[: channel + 1] = call.axes(x)[: channel + 1]
    return result


def along_axes(call: Call) -> LabelledTensor:
    """softmax, mean and the like, which combine the values along some axes: these stay."""
    x = call.tensors[0]
    rank = len(x.shape)
    result = no_axis_cut(call.output)
    parts = leaves(result)  # the values, and their indices if the call asks for them
    dims = [d for d in leaves(call.setting(1, "dim")) if type(d) is int]  # not x.std(True)
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
    """The input, and these parameters of a layer or arguments of a function; None for one that it
    lacks.
    """
    if call.module is None:
        return [call.argument(i, name) for i, name in enumerate(("input", *names))]
    tensors: list[LabelledTensor | None] = [call.tensors[0]]
    for name in names:
        parameter = None
        if getattr(call.module, name, None) is not None:
            parameter = call.labelling.parameter(f"{call.node.target}.{name}")
        tensors.append(parameter)
    return tensors


def weighted(call: Call) -> LabelledTensor:
    """Convolution, linear: one axis of the weight has the labels of the input, another gets new
    ones, which the output has, too.
    """
    x, weight, bias = operands(call, "weight", "bias")
    transposed = "transpose" in call.op
    if weight.name is None or len(weight.shape) < 2:
        return unknown(call)  # a weight that is computed
    if transposed and getattr(call.module, "groups", 2) > 1:
        return unknown(call)  # rare
    in_dim = 0 if transposed else 1
    out_dim = 1 - in_dim
    result = no_axis_cut(call.output)
    channel = len(x.shape) - len(weight.shape) + 1
    groups = 1
    if call.op == "linear":
        result.axes[:-1] = call.axes(x)[:-1]
    else:
        groups = call.setting(6, "groups", 1)
        result.axes[:channel] = call.axes(x)[:channel]
        call.pin(x, "works across this axis", keep=range(channel + 1))
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
    call: Call, inputs: Labels | None, weight: LabelledTensor, width: int, groups: int
) -> Labels | None:
    """The outputs of a grouped convolution, which can be cut in two ways:

    1. Whole groups go: the inputs and outputs of a group are one unit.
    2. All groups stay: each loses the same of its inputs, and the same of its outputs.

    The way with more units is taken; for a function the second, since no cut can change its
    `groups`.

    Args:
        width: how many input channels a group has.
    """
    if inputs is not None and call.module is not None and groups >= width:
        first = call.tie_parts(inputs.reshape(groups, width).T.ravel(), width)
        outputs = np.repeat(first, call.module.out_channels // groups)
        call.bind(weight, 0, outputs)
        call.labelling.loses_whole_groups.add(call.node.target)
        return outputs
    if inputs is None and width == 1 and weight.shape[0] == groups:
        call.pin(call.labelling.axis(weight, 0), "reads channels that cannot be cut, one each")
        return None
    call.bind(weight, 1, None if inputs is None else call.tie_parts(inputs, groups))
    outputs = call.labelling.axis(weight, 0)
    if outputs is not None:
        call.tie_parts(outputs, groups)
    return outputs


def scaled(call: Call, x: LabelledTensor, *parameters: LabelledTensor | None) -> LabelledTensor:
    """The result of a layer whose parameters have one number for each channel, or one for all."""
    for tensor in parameters:
        if tensor is not None and tensor.shape not in ((), (1,)):
            call.bind(tensor, 0, call.labelling.axis(x, 1))
    return call.result(call.axes(x))


def batch_norm(call: Call) -> LabelledTensor:
    """BatchNorm: a mean, variance, scale and shift for each channel.

    If it measures mean and variance itself, it does so over all other axes, which therefore stay.
    """
    x, *parameters = operands(call, "running_mean", "running_var", "weight", "bias")
    measures = call.setting(5, "training", False)
    if measures or (call.module is not None and call.module.running_mean is None):
        call.pin(x, SHARED_STATISTICS, keep=(1,))
    return scaled(call, x, *parameters)


def layer_norm(call: Call) -> LabelledTensor:
    """LayerNorm, RMSNorm, GroupNorm: what shares statistics cannot be cut alone.

    LayerNorm and RMSNorm measure them over the last axes; along those before, each has its own.
    """
    x = operands(call)[0]
    separate = range(0)
    if call.op != "group_norm":
        separate = range(len(x.shape) - len(call.setting(1, "normalized_shape", x.shape)))
    call.pin(x, SHARED_STATISTICS, keep=separate)
    others = [tensor for tensor in call.tensors if tensor is not x]
    call.pin([*others, *parameters_of(call)], SHARED_STATISTICS)
    return call.result(call.axes(x))


def prelu(call: Call) -> LabelledTensor:
    """PReLU: one slope for all, or one for each channel."""
    return scaled(call, *operands(call, "weight"))


def size(call: Call) -> Any:
    """x.shape, x.size() and x.size(d); a size that changes when channels are cut is a Number."""
    x = call.tensors[0]
    axes = zip(x.shape, call.axes(x), strict=True)
    sizes = tuple(n if labels is None else Number(n, [labels]) for n, labels in axes)
    dim = call.argument(1, "dim")
    if isinstance(dim, Number):
        return unknown(call)
    return sizes if dim is None else sizes[dim]


def unknown(call: Call) -> Any:
    """An operation without a rule: arithmetic on numbers gives a Number; anything else pins all
    channels that reach it.
    """
    if not call.tensors and not isinstance(call.output, torch.Tensor):
        axes = [labels for number in call.numbers for labels in number.axes]
        return Number(call.output, axes) if axes else call.output
    pin_operands(call, "this operation is not understood")
    return no_axis_cut(call.output)


def pin_operands(call: Call, why: str) -> None:
    """All channels that reach an operation stay, and so do those of its parameters."""
    call.pin((call.args, call.kwargs, parameters_of(call)), why)


def parameters_of(call: Call) -> list[LabelledTensor]:
    """Those of the layer that is called."""
    held = call.module.named_parameters() if call.module is not None else ()
    return [call.labelling.parameter(f"{call.node.target}.{name}") for name, _ in held]
