"""Which inputs of layers are the same number for every image.

Such a constant begins at a BatchNorm: a variance of about 0 says that a channel never changed in
training, and then BatchNorm gives beta. Each BatchNorm says so itself, so no convolution has to be
understood. Three things are asked of an input of a layer:

    the BatchNorm     has a variance of about 0 or a gamma of 0, and gives beta for random images
    the way from it   has only operations that work on each value by itself, or move values
    random images     show what the constant is when it arrives

    Example     BatchNorm2d of four channels  ->  ReLU  ->  Conv2d
    variance    1  0  0  1   so channels 1 and 2 are switched off
    beta        0.5 -1.0 0.2 -0.3
    the result  nan  0.0 0.2  nan   for the inputs of Conv2d
"""

import warnings
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from helpers.graphs.effects import is_fresh, is_random, written_inputs
from helpers.graphs.layers import channel_axis
from helpers.graphs.operations import operation
from helpers.passes.optimizer import as_tuple
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.labelling import LabelledTensor
from helpers.pruning.reader import called_module, leaves
from helpers.pruning.rules import RULES
from helpers.pruning.rules_shape import concatenate, item, moved
from helpers.pruning.rules_value import elementwise
from helpers.pruning.ties import Labels

Axis = tuple[str, int]  # of a weight, by its name
ROUNDING = 1e-5  # of what a BatchNorm gives, and of its variance as a share of eps
CONTRAST = 3  # of random images: black and white, once normalised, are 2 to 3 away from 0
NONE = np.arange(0)
# A constant comes out of these as it went in.
AVERAGES = {"mean", "amax", "amin"}
AVERAGES |= {f"{pool}{n}d" for pool in ("max_pool", "adaptive_avg_pool") for n in (1, 2, 3)}


@torch.no_grad()
def constant_inputs(
    model: nn.Module, groups: ChannelGroups, example_inputs: Any
) -> dict[Axis, torch.Tensor]:
    """For each weight that only ungrouped layers read the constant of each input, NaN if it varies.

    The model gets hooks, and is run on random images.
    """
    off: dict[str, torch.Tensor] = {}
    for path, norm in model.named_modules():
        if isinstance(norm, BatchNorm) and norm.affine and norm.running_var is not None:
            off[path] = (norm.running_var < ROUNDING * norm.eps) | (norm.weight == 0)
            norm.register_forward_hook(partial(snap_to_beta, off[path]))
    if not any(map(torch.any, off.values())):
        return {}
    found: dict[Axis, torch.Tensor] = {}
    for axis, calls in groups.labelling.input_axes.items():
        for call in calls.values() if all(map(is_ungrouped, calls.values())) else ():
            layer = model.get_submodule(call.target)
            layer.register_forward_pre_hook(partial(observe, found, axis), with_kwargs=True)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model(*(CONTRAST * torch.randn_like(x) for x in as_tuple(example_inputs)))
    except Exception as error:
        why = f"{type(model).__name__} fails on random images: {error}"
        warnings.warn(f"dead channels are not looked for, since {why}", stacklevel=3)
        return {}
    for axis, constants in found.items():
        for call in groups.labelling.input_axes[axis].values():
            constants[~sure_inputs(call, off)] = torch.nan
    return found


def is_ungrouped(call: fx.Node) -> bool:
    """Whether this calls a layer whose filters read all inputs."""
    layer = called_module(call)
    return layer is not None and getattr(layer, "groups", 1) == 1


def snap_to_beta(off: torch.Tensor, norm: nn.Module, args: tuple, output: torch.Tensor) -> None:
    """Take channels that are not beta out of a mask (they vary, or the mean lags behind), and round
    the others to beta.
    """
    by_channel = output.transpose(0, 1)
    beta = norm.bias.view(-1, *[1] * (output.dim() - 1))
    off &= ((by_channel - beta).abs() <= ROUNDING).flatten(1).all(1)
    by_channel[off] = beta[off]


def observe(found: dict, axis: Axis, layer: nn.Module, args: tuple, kwargs: dict) -> None:
    """Note the first number of each channel that a layer gets, NaN where calls differ."""
    x = args[0] if args else kwargs["input"]
    values = x.movedim(channel_axis(layer, x.dim()), 0).flatten(1)[:, 0]
    found[axis] = values.where(values == found.get(axis, values), torch.nan)


def sure_inputs(call: fx.Node, off: dict[str, torch.Tensor]) -> torch.Tensor:
    """Whether each input of a layer comes from a channel that is switched off."""
    source = call.all_input_nodes[0]
    axes = source.meta["labels"].axes
    labels = axes[channel_axis(called_module(call), len(axes))]
    return torch.from_numpy(np.isin(labels, switched_off(source, call, off)))


def switched_off(node: fx.Node, reader: fx.Node, off: dict[str, torch.Tensor]) -> Labels:
    """The labels that BatchNorms have switched off in a value, if nothing else can have changed it
    before its reader gets it.
    """
    if any(may_change(user) for user in node.users if user is not reader):
        return NONE
    name = operation(node)
    rule = RULES.get(name)
    inputs = node.all_input_nodes
    value = node.meta["labels"]
    if node.target in off:
        labels = value.axes[1]
        mask = off[node.target].cpu().numpy()
        return NONE if labels is None else np.setdiff1d(labels[mask], labels[~mask])
    if rule is concatenate:
        labels = np.concatenate([NONE, *(axis for axis in value.axes if axis is not None)])
        if len(np.unique(labels)) == len(labels):  # else a label stands for two parts
            return np.concatenate([switched_off(part, node, off) for part in inputs])
    alone = len(inputs) == 1 and not is_random(node, called_module(node))
    averages = isinstance(value, LabelledTensor) and name in AVERAGES
    if rule in (moved, item) or averages or (rule is elementwise and alone):
        return switched_off(inputs[0], node, off)
    return NONE


def may_change(user: fx.Node) -> bool:
    """Whether a node writes into what it reads, or gives a view of it, into which another may."""
    module = called_module(user)
    gives = [value for value in leaves(user.meta.get("val")) if isinstance(value, torch.Tensor)]
    views = bool(gives) and not is_fresh(user, module)
    return views or bool(written_inputs(user, module))
