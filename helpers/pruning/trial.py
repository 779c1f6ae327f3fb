"""The trial cut: do the groups hold? Cut some of everything, read the small network afresh, compare the two graphs.

The rules say how large every value will be. A forward that computes with a fixed number (`view(-1, 256)`, a slice,
a stored width) shows up here as a graph that fails or whose shapes or constants differ.
"""

from typing import Any

import numpy as np
import torch
from torch import fx

from helpers.pruning.atoms import Labels
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.labelling import Number, Tensor, leaves
from helpers.pruning.surgery import cut, kept_atoms
from helpers.pruning.tracing import TraceError, read_graph

SHARE = 1 / 3


def first_misfit(groups: ChannelGroups, example_inputs: Any) -> tuple[Labels, str] | None:
    """The atoms and the reason of the first node that a trial cut does not leave as predicted; None if all is well."""
    plan = {g.name: np.arange(max(1, int(SHARE * g.size))) for g in groups.prunable()}
    if not plan:
        return None
    keep = kept_atoms(groups, plan)
    small, _ = cut(groups.trace.root, groups, plan)
    try:
        found = read_graph(small, example_inputs).nodes
    except TraceError as error:
        node = None if error.position is None else groups.trace.nodes[error.position]
        return blame(groups, keep, node, f"a trial cut fails: {error.cause}")
    for node, other in zip(groups.trace.nodes, found, strict=False):
        if not same_operation(node, other):
            return blame(groups, keep, node, "the forward computes with a stored number of channels")
        if node.op != "output" and shapes(other.meta["value"]) != predicted(node.meta["labels"], keep):
            return blame(groups, keep, node, "a trial cut gave another shape than the channels left")
    return None


def same_operation(node: fx.Node, other: fx.Node) -> bool:
    """The same target, the same inputs and the same constants."""
    described = [(n.op, n.target, fx.map_arg((n.args, n.kwargs), lambda a: f"%{a.name}")) for n in (node, other)]
    return described[0] == described[1]


def shapes(value: Any) -> list[tuple[int, ...]]:
    """The shapes of all tensors in a value."""
    return [tuple(t.shape) for t in leaves(value) if isinstance(t, torch.Tensor)]


def predicted(labels: Any, keep: np.ndarray) -> list[tuple[int, ...]]:
    """The shapes that the rules expect once only these atoms are left."""
    return [
        tuple(int(keep[a].sum()) if isinstance(a, np.ndarray) else n for n, a in zip(t.shape, t.axes, strict=True))
        for t in leaves(labels)
        if isinstance(t, Tensor)
    ]


def blame(groups: ChannelGroups, keep: np.ndarray, node: fx.Node | None, why: str) -> tuple[Labels, str]:
    """The atoms that reach this node and were cut; if there are none, those of every group."""
    where = "" if node is None else f"{node.name}: "
    reached = [] if node is None else [a.meta["labels"] for a in node.all_input_nodes] + [node.meta["labels"]]
    tensors = [t for t in leaves(reached) if isinstance(t, Tensor | Number)]
    axes = [a for t in tensors for a in t.axes if isinstance(a, np.ndarray) and not keep[a].all()]
    return np.concatenate(axes) if axes else np.concatenate([g.units for g in groups.prunable()]), where + why
