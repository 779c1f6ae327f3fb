"""Rules for layers: which axis of which parameter goes with which channel of their input and output.

Conv, Linear     out channels <-> rows of the weight, bias;  in channels <-> columns of the weight
BatchNorm        channel <-> entry of weight, bias, running mean and running variance
grouped conv     a whole group goes (depthwise is groups of one), or every group loses the same positions
GroupNorm        a whole group goes, because its channels share their statistics
"""

import math

import numpy as np
from torch import nn

from helpers.pruning.labelling import Call, Labelling, Labels, Layer, Number, Tensor, uncut
from helpers.pruning.rules_value import elementwise, unknown

TRANSPOSED = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
SHARED_STATISTICS = "normalises over all channels, so that cutting one changes the rest"
WITH_SIZES = nn.modules.conv._ConvNd | nn.Linear | nn.modules.batchnorm._NormBase


def operands(labelling: Labelling, call: Call, *names: str) -> list[Tensor | None]:
    """The input and these parameters, of a layer or of a function that is called with them; None for one it lacks."""
    if call.module is None:
        return [call.argument(i, name) for i, name in enumerate(("input", *names))]
    held = [name for name in names if getattr(call.module, name, None) is not None]
    return [call.tensors[0], *(labelling.parameter(f"{call.path}.{n}") if n in held else None for n in names)]


def resized(labelling: Labelling, call: Call, tensor: Tensor, **counted: Labels | tuple[Labels, int] | None) -> None:
    """Note which labels an attribute of the layer counts, over a divisor if there is one.

    A function that is called with the weight of a layer counts as a call of it (`class Conv2dSame(nn.Conv2d)`).
    """
    path = call.path if call.module is not None else (tensor.name or "").rpartition(".")[0]
    if call.module is None and not (path and isinstance(labelling.model.get_submodule(path), WITH_SIZES)):
        return
    for attribute, labels in counted.items():
        if labels is not None:
            labelling.sizes[path, attribute] = labels if isinstance(labels, tuple) else (labels, 1)


def weighted(labelling: Labelling, call: Call) -> Tensor:
    """Convolution, linear: channels of the input meet columns of the weight; its rows are channels of the output."""
    x, weight, bias = operands(labelling, call, "weight", "bias")
    if weight.name is None:  # computed
        return unknown(labelling, call)
    result, channel = uncut(call.output), len(x.shape) - len(weight.shape) + 1
    if call.op in ("Linear", "linear"):
        groups, noun = 1, "features"
        result.axes[:-1] = [labelling.axis(x, d) for d in range(channel)]
    else:
        groups, noun = call.module.groups if call.module else call.argument(6, "groups", 1), "channels"
        labelling.pin_all(x, f"{call.name}: works across this axis", keep=(channel,))
    if isinstance(groups, Number):  # `groups=x.shape[1]`: its channels are pinned already, as for any such number
        groups = groups.value
    inputs = labelling.axis(x, channel)
    out_dim, in_dim = (1, 0) if call.op in TRANSPOSED else (0, 1)
    if groups == 1:
        labelling.bind(weight, in_dim, inputs, call.name)
        outputs = labelling.axis(weight, out_dim)
    else:
        outputs = grouped(labelling, call, inputs, weight, x.shape[channel] // groups, groups)
    if bias is not None:
        labelling.bind(bias, 0, outputs, call.name)
    resized(labelling, call, weight, **{f"in_{noun}": inputs, f"out_{noun}": outputs})
    map_size = x.shape if call.op in TRANSPOSED else call.output.shape
    labelling.layers.append(Layer(weight.name, out_dim, in_dim, math.prod(map_size) // map_size[channel]))
    result.axes[channel] = outputs
    return result


def grouped(
    labelling: Labelling, call: Call, inputs: Labels | None, weight: Tensor, block: int, groups: int
) -> Labels | None:
    """A grouped convolution, `block` input channels to a group. Of the two ways to cut it, take the finer one.

    Whole groups: the inputs and outputs of a group are one atom, and the attribute `groups` follows.
    Inside: every group loses the same positions of its inputs, and the same of its outputs.
    """
    transposed = call.op in TRANSPOSED
    if inputs is not None and call.module is not None and groups >= block:
        first = labelling.tie_rows(inputs.reshape(groups, block).T.ravel(), block)
        outputs = np.repeat(first, call.module.out_channels // groups)
        labelling.bind(weight, 0, inputs if transposed else outputs, call.name)
        resized(labelling, call, weight, groups=(inputs, block))
        return outputs
    inside = labelling.tie_rows(inputs, groups) if inputs is not None else None
    if transposed:
        labelling.bind(weight, 0, inputs, call.name)
        row = labelling.axis(weight, 1)
        return None if row is None else np.tile(row, groups)
    labelling.bind(weight, 1, inside, call.name)
    outputs = labelling.axis(weight, 0)
    if outputs is not None:
        labelling.tie_rows(outputs, groups)
    return outputs


def per_channel_norm(labelling: Labelling, call: Call) -> Tensor:
    """BatchNorm and InstanceNorm: each channel is normalised by itself, over other axes unless statistics are stored.

    An input of InstanceNorm may do without a batch.
    """
    x, *parameters = operands(labelling, call, "running_mean", "running_var", "weight", "bias")
    module, instance = call.module, isinstance(call.module, nn.modules.instancenorm._InstanceNorm)
    channel = len(x.shape) - int(call.op[-2]) - 1 if instance else 1
    if module is None:
        measures = call.argument(5, "training", False)
    else:
        measures = module.training or module.running_mean is None or not module.track_running_stats
    if measures:
        averaged_over(labelling, call, x, keep=tuple(range(channel + 1)) if instance else (channel,))
    labels = labelling.axis(x, channel)
    for tensor in parameters:
        if tensor is not None:
            labelling.bind(tensor, 0, labels, call.name)
            resized(labelling, call, tensor, num_features=labels)
    return labelling.like(x)


def averaged_over(labelling: Labelling, call: Call, x: Tensor, keep: tuple[int, ...]) -> None:
    """All axes but these share the statistics, so that cutting one of their indices would change all the others."""
    for d in set(range(len(x.shape))) - set(keep):
        labelling.atoms.pin(labelling.axis(x, d), f"{call.name}: {SHARED_STATISTICS}")


def group_norm(labelling: Labelling, call: Call) -> Tensor:
    """GroupNorm: the channels of a group share their statistics, so they go together, and num_groups follows."""
    (x, *parameters), module = operands(labelling, call, "weight", "bias"), call.module
    block = module.num_channels // module.num_groups
    averaged_over(labelling, call, x, keep=(0,) if module.num_groups == 1 else (0, 1))
    channels = labelling.axis(x, 1)
    if channels is not None and module.num_groups > 1:
        labelling.tie_rows(channels.reshape(-1, block).T.ravel(), block)
        resized(labelling, call, x, num_groups=(channels, block), num_channels=channels)
    for tensor in parameters:
        if tensor is not None:
            labelling.bind(tensor, 0, channels, call.name)
    return labelling.like(x)


def layer_norm(labelling: Labelling, call: Call) -> Tensor:
    """LayerNorm and RMSNorm: the statistics run over the channels, so cutting one would change all the others.

    Its weight and bias are as long as the shape that it normalises over, which is a fixed number.
    """
    (x, *_) = call.tensors
    shape = call.module.normalized_shape if call.module else call.argument(1, "normalized_shape")
    averaged_over(labelling, call, x, keep=tuple(range(len(x.shape) - len(shape))))
    scale = operands(labelling, call, "weight", "bias")[1:] if call.module else call.tensors[1:]
    labelling.pin_all(scale, f"{call.name}: {SHARED_STATISTICS}")
    return labelling.like(x)


def prelu(labelling: Labelling, call: Call) -> Tensor:
    """PReLU: one slope for all, or one for each channel."""
    x, weight = operands(labelling, call, "weight")
    if call.module.num_parameters > 1:
        labelling.bind(weight, 0, labelling.axis(x, 1), call.name)
        resized(labelling, call, weight, num_parameters=x.axes[1])
    return elementwise(labelling, call)


def is_ordinary(module: object) -> bool:
    """A layer that computes what its class says, with parameters of its own: no hooks, no parametrisation."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    computed = [n for n in ("weight", "bias") if getattr(module, n, None) is not None and n not in module._parameters]
    return not any(hooks) and not computed
