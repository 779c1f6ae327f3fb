"""Find the channel groups of a network: read its graph, resolve what is tied, and try it out.

The test is a trial cut: leave one unit of each group, read the small network afresh, compare the
two graphs. The rules say how large every value will be. A forward that computes with a fixed number
(`view(-1, 256)`, a slice, a stored width) shows up here as a graph that fails or whose shapes or
constants differ. A forward may decide by a number of channels (are two layers equally wide, is a
width even?). Most likely it decides otherwise when hardly anything is left, and is found out here.
If not, `prune` finds out by the same comparison after its own cut.
"""

import re
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from helpers.pruning.groups import ChannelGroups, groups_of
from helpers.pruning.labelling import LabelledTensor, Labelling, Number
from helpers.pruning.reader import ReadError, content, is_aten, leaves, name_of_node, on_meta, read
from helpers.pruning.rules import apply
from helpers.pruning.surgery import Cut, cut, kept_labels
from helpers.pruning.ties import Labels


def channel_groups(model: nn.Module, example_inputs: torch.Tensor | tuple) -> ChannelGroups:
    """Find all channel groups of a network.

    The groups that the rules propose are put to the test: a trial cut has to give the same graph
    with exactly the shapes that were predicted. Where it does not, the groups at that place are
    declared unprunable.

    Args:
        model: a network in eval mode, which must run in train mode, too, if it owns parameters that
            eval mode does not read; it is left alone.
        example_inputs: a tensor or a tuple of them, as forward takes them.

    Returns:
        Groups with their members, and with a reason where a group cannot be pruned.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
        >>> groups = channel_groups(net, torch.zeros(1, 3, 8, 8))
        >>> [(g.name, g.size, g.reason is None) for g in groups]
        [('0', 8, True), ('2', 4, False)]
    """
    graph = getattr(model, "graph", None)
    if isinstance(graph, fx.Graph) and any(is_aten(node.target) for node in graph.nodes):
        raise ReadError(
            f"{type(model).__name__} is a graph that torch.export recorded, with sizes written into"
            " it: prune the network that it was made of, then export that"
        )
    if model.training:
        raise ReadError(f"{type(model).__name__} is in train mode; call model.eval() first")
    labelling = Labelling(model)
    # Each reading has a copy of its own: a forward may keep what it computes.
    evaluated = read(on_meta(model), example_inputs)
    labelling.label(evaluated, apply)
    idle = labelling.parameter_names - labelling.tensors.keys()
    if idle:  # an evaluation does not read them: auxiliary heads, as in GoogLeNet, or noise
        try:
            labelling.label(read(on_meta(model).train(), example_inputs), apply)
        except ReadError as error:
            raise ReadError(
                f"{error}. This was in train mode, which is read because eval mode does not read"
                f" {min(idle)!r}: take it out if nothing does, or let forward run in train mode"
                " (perhaps on a batch of two)"
            ) from error
    while True:
        groups = groups_of(labelling, evaluated)
        all_but_one = {group.name: np.arange(1, group.size) for group in groups.prunable()}
        if not all_but_one:
            return groups
        small, _ = cut(model, groups, all_but_one, device="meta")
        misfit = first_misfit(groups, all_but_one, small.eval(), example_inputs)
        if misfit is None:
            return groups
        labelling.ties.pin(*misfit)


def first_misfit(
    groups: ChannelGroups, removed: Cut, small: nn.Module, example_inputs: Any
) -> tuple[Labels, str] | None:
    """The first node that a cut has not left as predicted, if there is one.

    Args:
        small: the network after the cut, on the meta device.

    Returns:
        The labels of the axes that reach it and were cut (if there are none, the units of all
        prunable groups), and the reason.
    """
    keep = kept_labels(groups, removed)
    why = ""
    try:
        for node, after in zip(groups.nodes, read(small, example_inputs), strict=False):
            values = leaves(after.meta.get("val"))
            shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
            if described(node) != described(after):
                why = "the forward decides by a number of channels, or computes with a stored one"
            elif "labels" in node.meta and shapes != predicted(node, keep):
                why = "a trial cut gave another shape than the channels left"
            if why:
                break
    except ReadError as error:
        node = groups.nodes[: error.position + 1][-1]  # the cut may have led to a longer path
        why = f"a trial cut fails: {error.cause}"
    if not why:
        return None
    reached = leaves([n.meta.get("labels") for n in (*node.all_input_nodes, node)])
    labelled = [value for value in reached if isinstance(value, LabelledTensor | Number)]
    axes = [a for value in labelled for a in value.axes if isinstance(a, np.ndarray)]
    axes = [a for a in axes if not keep[a].all()] or [g.units for g in groups.prunable()]
    return np.concatenate(axes), f"{name_of_node(node)}: {why}"


def described(node: fx.Node) -> str:
    """What has to be the same after the cut: the operation, its inputs by name, and what constants
    hold.
    """
    contents = [content(n) for n in node.all_input_nodes]
    said = repr((node.op, node.target, node.args, node.kwargs, contents))
    return re.sub(r"_tensor_constant\d+", "constant", said)


def predicted(node: fx.Node, keep: np.ndarray) -> list[tuple[int, ...]]:
    """The shapes that the rules expect once only these labels are left."""
    shapes = []
    for value in leaves(node.meta["labels"]):
        if isinstance(value, LabelledTensor):
            axes = zip(value.shape, value.axes, strict=True)
            sizes = [int(keep[a].sum()) if isinstance(a, np.ndarray) else n for n, a in axes]
            shapes.append(tuple(sizes))
    return shapes
