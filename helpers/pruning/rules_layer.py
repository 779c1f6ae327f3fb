"""Rules for layers: which axis of which parameter goes with which channel of their input and output.

Conv, Linear     out channels <-> rows of the weight, bias;  in channels <-> columns of the weight
BatchNorm        channel <-> entry of weight, bias, running mean and running variance
grouped conv     a whole group goes (depthwise is groups of one), or every group loses the same positions
GroupNorm        a whole group goes, because its channels share their statistics
"""

import dataclasses
import math

import numpy as np
from torch import nn

from helpers.pruning.labelling import Call, Labelling, Labels, Layer, Number, Tensor, uncut
from helpers.pruning.rules_value import elementwise, unknown

TRANSPOSED = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
SHARED_STATISTICS = "normalises over all channels, so that cutting one changes the rest"
WITH_SIZES = nn.modules.conv._ConvNd | nn.Linear | nn.modules.batchnorm._NormBase
STATISTICS = ("weight", "bias", "running_mean", "running_var")


def stored(labelling: Labelling, call: Call, *names: str) -> list[Tensor | None]:
    """The parameters of the layer that is called; None for those that it does not have."""
    tensors = [getattr(call.module, name, None) for name in names]
    return [
        labelling.parameter(f"{call.path}.{n}") if t is not None else None for n, t in zip(names, tensors, strict=True)
    ]


def of_owner(labelling: Labelling, call: Call, weight: Tensor) -> Call:
    """A function that is called with the weight of a layer counts as a call of it (`class Conv2dSame(nn.Conv2d)`)."""
    if call.module is not None:
        return call
    path = weight.name.rpartition(".")[0]
    owner = labelling.model.get_submodule(path) if path else None
    return dataclasses.replace(call, module=owner, path=path) if isinstance(owner, WITH_SIZES) else call


def resized(labelling: Labelling, call: Call, attribute: str, labels: Labels | None, divisor: int = 1) -> None:
    """Note that this attribute of the layer counts these labels."""
    if labels is not None and call.module is not None:
        labelling.sizes[call.path, attribute] = (labels, divisor)


def operands(labelling: Labelling, call: Call) -> list[Tensor | None]:
    """Input, weight and bias of a layer, or of a function that is called with them."""
    if call.module is not None:
        return [call.tensors[0], *stored(labelling, call, "weight", "bias")]
    return [call.argument(i, name) for i, name in enumerate(("input", "weight", "bias"))]


def convolution(labelling: Labelling, call: Call) -> Tensor:
    """Bind the channels of the input and of the weight; returns the output with the channels of its rows."""
    x, weight, bias = operands(labelling, call)
    if weight.name is None:  # computed
        return unknown(labelling, call)
    groups = call.module.groups if call.module else call.argument(6, "groups", 1)
    if isinstance(groups, Number):  # `groups=x.shape[1]`: its channels are pinned already, as for any such number
        groups = groups.value
    channel = len(x.shape) - len(weight.shape) + 1
    labelling.pin_all(x, f"{call.name}: works across this axis", keep=(channel,))
    inputs = labelling.axis(x, channel)
    out_dim, in_dim = (1, 0) if call.op in TRANSPOSED else (0, 1)
    if groups == 1:
        labelling.bind(weight, in_dim, inputs, call.name)
        outputs = labelling.axis(weight, out_dim)
    else:
        outputs = grouped(labelling, call, inputs, weight, x.shape[channel] // groups, groups)
    if bias is not None:
        labelling.bind(bias, 0, outputs, call.name)
    owner = of_owner(labelling, call, weight)
    resized(labelling, owner, "in_channels", inputs)
    resized(labelling, owner, "out_channels", outputs)
    map_size = x.shape if call.op in TRANSPOSED else call.output.shape
    places = math.prod(map_size) // map_size[channel]
    labelling.layers.append(Layer(weight.name, out_dim, in_dim, places))
    result = uncut(call.output)
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
        resized(labelling, call, "groups", inputs, divisor=block)
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


def linear(labelling: Labelling, call: Call) -> Tensor:
    """The last axis of the input meets the columns of the weight; the rows are the new last axis."""
    x, weight, bias = operands(labelling, call)
    if weight.name is None:
        return unknown(labelling, call)
    inputs = labelling.axis(x, len(x.shape) - 1)
    labelling.bind(weight, 1, inputs, call.name)
    outputs = labelling.axis(weight, 0)
    if bias is not None:
        labelling.bind(bias, 0, outputs, call.name)
    owner = of_owner(labelling, call, weight)
    resized(labelling, owner, "in_features", inputs)
    resized(labelling, owner, "out_features", outputs)
    labelling.layers.append(Layer(weight.name, 0, 1, call.output.numel() // call.output.shape[-1]))
    return Tensor(tuple(call.output.shape), [*(labelling.axis(x, d) for d in range(len(x.shape) - 1)), outputs])


def per_channel_norm(labelling: Labelling, call: Call) -> Tensor:
    """BatchNorm and InstanceNorm: each channel is normalised by itself, over other axes unless statistics are stored.

    An input of InstanceNorm may do without a batch.
    """
    (x, *_), module = call.tensors, call.module
    instance = isinstance(module, nn.modules.instancenorm._InstanceNorm)
    channel = len(x.shape) - int(call.op[-2]) - 1 if instance else 1
    if module.training or module.running_mean is None or not module.track_running_stats:
        averaged_over(labelling, call, x, keep=tuple(range(channel + 1)) if instance else (channel,))
    labels = labelling.axis(x, channel)
    for tensor in stored(labelling, call, *STATISTICS):
        if tensor is not None:
            labelling.bind(tensor, 0, labels, call.name)
    resized(labelling, call, "num_features", labels)
    return elementwise(labelling, call)


def averaged_over(labelling: Labelling, call: Call, x: Tensor, keep: tuple[int, ...]) -> None:
    """All axes but these share the statistics, so that cutting one of their indices would change all the others."""
    for d in set(range(len(x.shape))) - set(keep):
        labelling.atoms.pin(labelling.axis(x, d), f"{call.name}: {SHARED_STATISTICS}")


def batch_norm_function(labelling: Labelling, call: Call) -> Tensor:
    """F.batch_norm with parameters and buffers of the network."""
    x, *others = (call.argument(i, n) for i, n in enumerate(("input", "running_mean", "running_var", "weight", "bias")))
    if call.argument(5, "training", False):
        averaged_over(labelling, call, x, keep=(1,))
    for tensor in others:
        if tensor is not None:
            labelling.bind(tensor, 0, labelling.axis(x, 1), call.name)
            if tensor.name is not None:
                resized(labelling, of_owner(labelling, call, tensor), "num_features", x.axes[1])
    return labelling.like(x)


def group_norm(labelling: Labelling, call: Call) -> Tensor:
    """GroupNorm: the channels of a group share their statistics, so they go together, and num_groups follows."""
    (x, *_), module = call.tensors, call.module
    averaged_over(labelling, call, x, keep=(0, 1))
    channels = labelling.axis(x, 1)
    if channels is not None and module.num_groups == 1:
        labelling.atoms.pin(channels, f"{call.name}: {SHARED_STATISTICS}")
    elif channels is not None:
        block = module.num_channels // module.num_groups
        labelling.tie_rows(channels.reshape(-1, block).T.ravel(), block)
        resized(labelling, call, "num_groups", channels, divisor=block)
        resized(labelling, call, "num_channels", channels)
    for tensor in stored(labelling, call, "weight", "bias"):
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
    scale = stored(labelling, call, "weight", "bias") if call.module else call.tensors[1:]
    labelling.pin_all(scale, f"{call.name}: {SHARED_STATISTICS}")
    return labelling.like(x)


def prelu(labelling: Labelling, call: Call) -> Tensor:
    """PReLU: one slope for all, or one for each channel."""
    (x, *_), (weight,) = call.tensors, stored(labelling, call, "weight")
    if call.module.num_parameters > 1:
        labelling.bind(weight, 0, labelling.axis(x, 1), call.name)
        resized(labelling, call, "num_parameters", x.axes[1])
    return elementwise(labelling, call)


def is_ordinary(module: object) -> bool:
    """A layer that computes what its class says, with parameters of its own: no hooks, no parametrisation."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    computed = [n for n in ("weight", "bias") if getattr(module, n, None) is not None and n not in module._parameters]
    return not any(hooks) and not computed
