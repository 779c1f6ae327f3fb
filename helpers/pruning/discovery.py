"""Find the channel groups of a network: read its graph, resolve what is tied, and put the result to
the test.

The test is a trial cut: leave one unit of each group, read the small network afresh, compare the
two graphs. The rules say how large every value will be. A forward that computes with a fixed number
(`view(-1, 256)`, a slice, a stored width) shows up here as a graph that fails or whose shapes or
constants differ. One that decides by a number of channels (layers that are equally wide, a power of
two) most likely does so when hardly anything is left; if it does so later, `prune` finds out by the
same comparison.
"""

import re
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from helpers.pruning.atoms import Labels
from helpers.pruning.groups import ChannelGroups, build
from helpers.pruning.labelling import Labelling, Number, Tensor
from helpers.pruning.reader import TraceError, content, leaves, name_of, on_meta, read
from helpers.pruning.rules import apply
from helpers.pruning.surgery import Plan, cut, kept_atoms


def channel_groups(model: nn.Module, example_inputs: torch.Tensor | tuple) -> ChannelGroups:
    """Find all channel groups of a network.

    The groups that the rules propose are put to the test: a trial cut has to give the same graph
        with exactly the
    shapes that were predicted. Where it does not, the groups at that place are declared unprunable.

    Args:
        model: any network that runs in eval mode, and in train mode if it owns layers that eval
            mode does not call; it is left alone.
        example_inputs: a tensor or a tuple of them, as forward takes them.

    Returns:
        Groups with their members, and with a reason where a group cannot be pruned.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
        >>> groups = channel_groups(net, torch.zeros(1, 3, 8, 8))
        >>> [(g.name, g.size, g.reason is None) for g in groups]
        [('0', 8, True), ('2', 4, False)]
    """
    if model.training:
        raise TraceError(f"{type(model).__name__} is in train mode; call model.eval() first")
    root, labelling = on_meta(model), Labelling(model)
    evaluated = read(root, example_inputs)
    labelling.label(evaluated, apply)
    owners = (
        {name.rpartition(".")[0] for name in found}
        for found in (labelling.learned, labelling.tensors)
    )
    if idle := sorted(
        set.difference(*owners)
    ):  # an evaluation does not call them: auxiliary heads, as in GoogLeNet
        try:
            labelling.label(read(root.train(), example_inputs), apply)
        except TraceError as error:
            why = (
                f"This was in train mode, which is read because eval mode does not call {idle[0]!r}"
            )
            remedy = (
                "take it out if nothing calls it, or let forward run in train mode (perhaps on a"
                " batch of two)"
            )
            raise TraceError(f"{error}. {why}: {remedy}") from error
        root.eval()
    while True:
        groups = build(labelling, evaluated)
        plan = {group.name: np.arange(1, group.size) for group in groups.prunable()}
        misfit = (
            first_misfit(groups, plan, cut(root, groups, plan)[0], example_inputs) if plan else None
        )
        if misfit is None:
            return groups
        labelling.atoms.pin(*misfit)


def first_misfit(
    groups: ChannelGroups, plan: Plan, small: nn.Module, example_inputs: Any
) -> tuple[Labels, str] | None:
    """The first node that a cut has not left as predicted: the atoms that reach it and were cut (if
    there are none,
    those of every group), and the reason; or None. `small` is the network after the cut, on the
    meta device.
    """
    keep, misfits = kept_atoms(groups, plan), []
    try:
        for node, other in zip(groups.nodes, read(small, example_inputs), strict=False):
            shapes = [
                tuple(t.shape) for t in leaves(other.meta.get("val")) if isinstance(t, torch.Tensor)
            ]
            if described(node) != described(other):
                misfits.append((node, "the forward computes with a stored number of channels"))
            elif "labels" in node.meta and shapes != predicted(node.meta["labels"], keep):
                misfits.append((node, "a trial cut gave another shape than the channels left"))
    except TraceError as error:
        misfits.append((groups.nodes[error.position], f"a trial cut fails: {error.cause}"))
    for node, why in misfits[:1]:
        reached = leaves([n.meta.get("labels") for n in (*node.all_input_nodes, node)])
        axes = [
            a
            for t in reached
            if isinstance(t, Tensor | Number)
            for a in t.axes
            if isinstance(a, np.ndarray)
        ]
        cut_here = [a for a in axes if not keep[a].all()] or [
            group.units for group in groups.prunable()
        ]
        return np.concatenate(cut_here), f"{name_of(node)}: {why}"
    return None


def described(node: fx.Node) -> str:
    """What has to be the same after the cut: the operation, its inputs by name, and what constants
    hold.
    """
    contents = [content(n) for n in node.all_input_nodes]
    return re.sub(
        r"_tensor_constant\d+",
        "constant",
        repr((node.op, node.target, node.args, node.kwargs, contents)),
    )


def predicted(labels: Any, keep: np.ndarray) -> list[tuple[int, ...]]:
    """The shapes that the rules expect once only these atoms are left."""
    tensors = (t for t in leaves(labels) if isinstance(t, Tensor))
    sizes = (zip(t.shape, t.axes, strict=True) for t in tensors)
    return [
        tuple(int(keep[a].sum()) if isinstance(a, np.ndarray) else n for n, a in axes)
        for axes in sizes
    ]
