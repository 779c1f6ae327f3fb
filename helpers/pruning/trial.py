"""The trial cut: do the groups hold? Leave one unit of each, read the small network afresh, compare the two graphs.

The rules say how large every value will be. A forward that computes with a fixed number (`view(-1, 256)`, a slice,
a stored width) shows up here as a graph that fails or whose shapes or constants differ. One that decides by a number
of channels (layers that are equally wide, a power of two) most likely does so when hardly anything is left.
"""

from typing import Any

import numpy as np
import torch
from torch import fx, nn

from helpers.pruning.atoms import Labels
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.labelling import Number, Tensor
from helpers.pruning.nesting import leaves
from helpers.pruning.reader import TraceError, name_of, read
from helpers.pruning.surgery import Stays, kept_atoms, shrink


def first_misfit(groups: ChannelGroups, root: nn.Module, example_inputs: Any) -> tuple[Labels, str] | None:
    """The atoms and the reason of the first node that a trial cut does not leave as predicted; None if all is well.

    Args:
        groups: what has been found.
        root: the network without content; it is cut.
        example_inputs: as the network takes them.
    """
    plan = {g.name: np.arange(1, g.size) for g in groups.prunable()}
    if not plan:
        return None
    keep = kept_atoms(groups, plan)
    left = Stays(keep)
    shrink(root, groups, left)
    try:
        found = read(root, example_inputs)
    except TraceError as error:
        return blame(groups, keep, groups.nodes[error.position], f"a trial cut fails: {error.cause}")
    orders = [{node: number for number, node in enumerate(nodes)} for nodes in (groups.nodes, found)]
    for node, other in zip(groups.nodes, found, strict=False):
        if described(node, orders[0]) != described(other, orders[1]):
            return blame(groups, keep, node, "the forward computes with a stored number of channels")
        if "labels" in node.meta and shapes(other.meta["value"]) != predicted(node.meta["labels"], left):
            return blame(groups, keep, node, "a trial cut gave another shape than the channels left")
    return None


def described(node: fx.Node, order: dict[fx.Node, int]) -> tuple:
    """What has to be the same after the cut: the operation, where its inputs come from, and the constants."""
    args = fx.map_arg((node.args, node.kwargs), lambda n: f"%{order[n]}")
    target = "constant" if node.op == "get_attr" and node.target.startswith("_tensor_constant") else node.target
    return node.op, target, list(node.kwargs), [constant(v) for v in leaves(args)]


def constant(value: Any) -> Any:
    """A plain argument, so that it equals itself: NaN does not."""
    return repr(value) if isinstance(value, float) else value


def shapes(value: Any) -> list[tuple[int, ...]]:
    """The shapes of all tensors in a value."""
    return [tuple(t.shape) for t in leaves(value) if isinstance(t, torch.Tensor)]


def predicted(labels: Any, left: Stays) -> list[tuple[int, ...]]:
    """The shapes that the rules expect once only these atoms are left."""
    return [
        tuple(n if (index := left(a)) is None else index.numel() for n, a in zip(t.shape, t.axes, strict=True))
        for t in leaves(labels)
        if isinstance(t, Tensor)
    ]


def blame(groups: ChannelGroups, keep: np.ndarray, node: fx.Node, why: str) -> tuple[Labels, str]:
    """The atoms that reach this node and were cut; if there are none, those of every group."""
    found = [n.meta.get("labels") for n in (*node.all_input_nodes, node)]
    tensors = [t for t in leaves(found) if isinstance(t, Tensor | Number)]
    axes = [a for t in tensors for a in t.axes if isinstance(a, np.ndarray) and not keep[a].all()]
    labels = np.concatenate(axes or [g.units for g in groups.prunable()])
    return labels, f"{name_of(node)}: {why}"
