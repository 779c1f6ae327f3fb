"""Which inputs of layers are the same number for every image.

Such a constant begins at a BatchNorm: a variance of about 0 means that the channel never changed in
training, and then BatchNorm gives beta. The channel is called *switched off*. An input of a layer
is such a constant if

    its BatchNorm      has a variance of about 0 or a gamma of 0, and gives beta for random images,
    the way from it    has only operations that work on each value alone, move or pool values,
    random images      give the same number at every place: the constant

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

from helpers.equivalence import forked_random, seed_generators
from helpers.graphs.effects import is_fresh, is_random, written
from helpers.graphs.layers import channel_axis
from helpers.graphs.operations import called_module, operation
from helpers.graphs.tracing import as_tuple
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.reader import leaves
from helpers.pruning.rules import RULES
from helpers.pruning.rules_shape import concatenate, item, moved
from helpers.pruning.rules_value import elementwise
from helpers.pruning.ties import NONE, Labels

Axis = tuple[str, int]  # of a weight, by its name
ROUNDING = 1e-5  # of what a BatchNorm gives, and of its variance as a share of eps
CONTRAST = 3  # of random images: black and white, once normalised, are 2 to 3 away from 0
# Of a constant they make the same constant.
KEEP_CONSTANTS = {"mean", "amax", "amin", "max_pool2d", "adaptive_avg_pool2d"}


@torch.no_grad()
def constant_inputs(
    model: nn.Module, groups: ChannelGroups, example_inputs: Any
) -> dict[Axis, torch.Tensor]:
    """For the weight of each ungrouped layer, the constant of each input, or NaN if it varies.

    Args:
        model: gets hooks, and is run on random images.
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
        if not all(map(is_ungrouped, calls.values())):
            continue
        for call in calls.values():
            layer = model.get_submodule(call.target)
            layer.register_forward_pre_hook(partial(observe, found, axis), with_kwargs=True)
    try:
        with forked_random():
            seed_generators(0)
            model(*(CONTRAST * torch.randn_like(x) for x in as_tuple(example_inputs)))
    except Exception as error:
        why = f"{type(model).__name__} fails on random images: {error}"
        warnings.warn(f"dead channels are not looked for, since {why}", stacklevel=3)
        return {}
    sources = Sources(groups, off)
    for axis, constants in found.items():
        for call in groups.labelling.input_axes[axis].values():
            varies = torch.from_numpy(~sources.inputs_switched_off(call))
            constants.masked_fill_(varies.to(constants.device), torch.nan)
    return found


def is_ungrouped(call: fx.Node) -> bool:
    """Whether this calls a layer whose filters read all inputs."""
    layer = called_module(call)
    return layer is not None and getattr(layer, "groups", 1) == 1


def snap_to_beta(off: torch.Tensor, norm: nn.Module, args: tuple, output: torch.Tensor) -> None:
    """A hook: channels that are not beta for these images leave the mask; the others that are in it
    are rounded to beta.
    """
    by_channel = output.transpose(0, 1)
    beta = torch.zeros_like(norm.weight) if norm.bias is None else norm.bias
    beta = beta.view(-1, *[1] * (output.dim() - 1))
    off &= ((by_channel - beta).abs() <= ROUNDING).flatten(1).all(1)
    by_channel[off] = beta[off]


def observe(found: dict, axis: Axis, layer: nn.Module, args: tuple, kwargs: dict) -> None:
    """A hook: note the constants that a layer gets, NaN for a channel that varies."""
    x = args[0] if args else kwargs["input"]
    low, high = x.movedim(channel_axis(layer, x.dim()), 0).unsqueeze(-1).flatten(1).aminmax(dim=1)
    same = (high - low <= ROUNDING) & (low == found.get(axis, low))
    found[axis] = low.where(same, torch.nan)


class Sources:
    """The BatchNorms that switch channels off, and where their constants arrive.

    It compares units and not labels, since one index of a value may stand for several channels that
    are tied.
    """

    def __init__(self, groups: ChannelGroups, off: dict[str, torch.Tensor]) -> None:
        self.unit_of = groups.unit_of
        self.off: dict[fx.Node, Labels] = {}
        for node in groups.nodes:
            calls_norm = node.op == "call_module" and node.target in off
            if calls_norm and node.meta["labels"].axes[1] is not None:
                units = self.unit_of[node.meta["labels"].axes[1]]
                mask = off[node.target].cpu().numpy()
                self.off[node] = np.setdiff1d(units[mask], units[~mask])

    def inputs_switched_off(self, call: fx.Node) -> np.ndarray:
        """For each input of a layer, whether it comes from a channel that is switched off."""
        source = call.all_input_nodes[0]
        axes = source.meta["labels"].axes
        labels = axes[channel_axis(called_module(call), len(axes))]
        if labels is None:
            return np.array([False])
        return np.isin(self.unit_of[labels], self.switched_off(source, call))

    def switched_off(self, node: fx.Node, reader: fx.Node) -> Labels:
        """The units of a value that are switched off when `reader` gets it; none if another user of
        the value may write into it.
        """
        if any(may_change(user) for user in node.users if user is not reader):
            return NONE
        if node in self.off:
            return self.off[node]
        name = operation(node)
        rule = RULES.get(name)
        inputs = node.all_input_nodes
        if rule is concatenate:
            # Side by side along the axis with the channels, and no unit is in two parts.
            units = np.concatenate([self.units(part) for part in inputs])
            if len(np.unique(units)) == len(units) == len(self.units(node)):
                return np.concatenate([self.switched_off(part, node) for part in inputs])
        alone = len(inputs) == 1 and not is_random(node)
        if rule in (moved, item) or name in KEEP_CONSTANTS or (rule is elementwise and alone):
            return self.switched_off(inputs[0], node)
        return NONE

    def units(self, node: fx.Node) -> Labels:
        """The units on all axes of a value."""
        axes = [axis for axis in node.meta["labels"].axes if isinstance(axis, np.ndarray)]
        return self.unit_of[np.concatenate([NONE, *axes])]


def may_change(user: fx.Node) -> bool:
    """Whether a node may write into what it reads, or gives a view of it, into which others may."""
    gives = [value for value in leaves(user.meta.get("val")) if isinstance(value, torch.Tensor)]
    views = bool(gives) and not is_fresh(user)
    return views or any(isinstance(part, fx.Node) for part in written(user))
