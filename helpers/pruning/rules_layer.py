"""Rules for layers: which axis of which parameter goes with which channel of their input and output.

Conv, Linear     out channels <-> rows of the weight, bias;  in channels <-> columns of the weight
BatchNorm        channel <-> entry of weight, bias, running mean and running variance
grouped conv     a whole group goes (depthwise is groups of one), or every group loses the same positions
LayerNorm, ...   nothing goes, because channels share their statistics
"""

import numpy as np
from torch import nn

from helpers.graphs.effects import has_hooks
from helpers.pruning.labelling import Call, Labelling, Labels, Number, Tensor, uncut
from helpers.pruning.rules_value import unknown

TRANSPOSED = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
SHARED_STATISTICS = "normalises over all channels, so that cutting one changes the rest"
WITH_SIZES = nn.modules.conv._ConvNd | nn.Linear | nn.modules.batchnorm._NormBase


def operands(labelling: Labelling, call: Call, *names: str) -> list[Tensor | None]:
    """The input and these parameters, of a layer or of a function that is called with them; None for one it lacks."""
    if call.module is None:
        return [call.argument(i, name) for i, name in enumerate(("input", *names))]
    held = [name for name in names if getattr(call.module, name, None) is not None]
    return [call.tensors[0], *(labelling.parameter(f"{call.node.target}.{n}") if n in held else None for n in names)]


def resized(labelling: Labelling, call: Call, tensor: Tensor, divisor: int = 1, **counted: Labels | None) -> None:
    """Note which labels an attribute of the layer counts, over a divisor if there is one.

    A function that is called with the weight of a layer counts as a call of it (`class Conv2dSame(nn.Conv2d)`).
    """
    path = call.node.target if call.module is not None else (tensor.name or "").rpartition(".")[0]
    if call.module is not None or (path and isinstance(labelling.model.get_submodule(path), WITH_SIZES)):
        found = {(path, name): (labels, divisor) for name, labels in counted.items() if labels is not None}
        labelling.sizes.update(found)


def weighted(labelling: Labelling, call: Call) -> Tensor:
    """Convolution, linear: channels of the input meet columns of the weight; its rows are channels of the output."""
    x, weight, bias = operands(labelling, call, "weight", "bias")
    out_dim, in_dim = (1, 0) if call.op in TRANSPOSED else (0, 1)
    if weight.name is None or (in_dim == 0 and call.module.groups > 1):  # computed, or a rarity
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
    if groups == 1:
        labelling.bind(weight, in_dim, inputs, call.name)
        outputs = labelling.axis(weight, out_dim)
    else:
        outputs = grouped(labelling, call, inputs, weight, x.shape[channel] // groups, groups)
    if bias is not None:
        labelling.bind(bias, 0, outputs, call.name)
    resized(labelling, call, weight, **{f"in_{noun}": inputs, f"out_{noun}": outputs})
    labelling.rows.add((weight.name, out_dim))
    labelling.columns.add((weight.name, in_dim))
    result.axes[channel] = outputs
    return result


def grouped(
    labelling: Labelling, call: Call, inputs: Labels | None, weight: Tensor, block: int, groups: int
) -> Labels | None:
    """A grouped convolution, `block` input channels to a group. Of the two ways to cut it, take the finer one.

    Whole groups: the inputs and outputs of a group are one atom, and the attribute `groups` follows.
    Inside: every group loses the same positions of its inputs, and the same of its outputs.
    """
    if inputs is not None and call.module is not None and groups >= block:
        first = labelling.tie_rows(inputs.reshape(groups, block).T.ravel(), block)
        outputs = np.repeat(first, call.module.out_channels // groups)
        labelling.bind(weight, 0, outputs, call.name)
        resized(labelling, call, weight, block, groups=inputs)
        return outputs
    inside = labelling.tie_rows(inputs, groups) if inputs is not None else None
    labelling.bind(weight, 1, inside, call.name)
    outputs = labelling.axis(weight, 0)
    if outputs is not None:
        labelling.tie_rows(outputs, groups)
    return outputs


def scaled(labelling: Labelling, call: Call, x: Tensor, parameters: list[Tensor | None], attribute: str) -> Tensor:
    """These parameters have one number for each channel, and this attribute of the layer says how many."""
    labels = labelling.axis(x, 1)
    for tensor in filter(None, parameters):
        labelling.bind(tensor, 0, labels, call.name)
        resized(labelling, call, tensor, **{attribute: labels})
    return labelling.like(x)


def batch_norm(labelling: Labelling, call: Call) -> Tensor:
    """BatchNorm: a mean, variance, scale and shift for each channel. Those that it measures span all other axes."""
    x, *parameters = operands(labelling, call, "running_mean", "running_var", "weight", "bias")
    layer = call.module
    if layer.training or layer.running_mean is None if layer else call.argument(5, "training", False):
        labelling.pin_all(x, f"{call.name}: {SHARED_STATISTICS}", keep=(1,))
    return scaled(labelling, call, x, parameters, "num_features")


def layer_norm(labelling: Labelling, call: Call) -> Tensor:
    """LayerNorm, RMSNorm, GroupNorm: channels share their statistics, so cutting one would change others.

    Weight and bias are as long as the shape that is normalised over, or as there are channels: a fixed number.
    """
    x, module = call.tensors[0], call.module
    shape = getattr(module, "normalized_shape", x.shape[1:]) if module else call.argument(1, "normalized_shape")
    scale = operands(labelling, call, "weight", "bias")[1:] if module else call.tensors[1:]
    reason = f"{call.name}: {SHARED_STATISTICS}"
    labelling.pin_all(x, reason, keep=range(len(x.shape) - len(shape)))
    labelling.pin_all(scale, reason)
    return labelling.like(x)


def prelu(labelling: Labelling, call: Call) -> Tensor:
    """PReLU: one slope for all, or one for each channel."""
    x, weight = operands(labelling, call, "weight")
    return scaled(labelling, call, x, [weight] if call.module.num_parameters > 1 else [], "num_parameters")


def is_ordinary(module: nn.Module) -> bool:
    """A layer that computes what its class says, with parameters of its own: no hooks, no parametrisation."""
    computed = [n for n in ("weight", "bias") if getattr(module, n, None) is not None and n not in module._parameters]
    return not has_hooks(module) and not computed
