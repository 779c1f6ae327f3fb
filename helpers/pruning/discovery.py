"""Find the channel groups of a network: read its graph, resolve what is tied, and put the result to the test."""

from typing import Any

import numpy as np
import torch
from torch import nn

from helpers.pruning.atoms import Labels
from helpers.pruning.groups import ChannelGroups, Group, Member
from helpers.pruning.labelling import Labelling, label
from helpers.pruning.rules import rule_for
from helpers.pruning.tracing import Trace, TraceError, trace
from helpers.pruning.trial import first_misfit


def read(model: nn.Module, example_inputs: Any) -> tuple[Labelling, Trace]:
    """Label the graph; and once more the graph in train mode, if some parameters are only used there."""
    labelling = Labelling(model)
    evaluated = trace(model, example_inputs)
    label(labelling, evaluated, rule_for)
    if has_sleepers(evaluated, model):
        label(labelling, trace(model, example_inputs, training=True), rule_for)
    return labelling, evaluated


def has_sleepers(evaluated: Trace, model: nn.Module) -> bool:
    """Whether the network owns layers that an evaluation does not call (auxiliary heads of GoogLeNet and Inception)."""
    used = {node.target for node in evaluated.nodes if node.op in ("call_module", "get_attr")}
    owners = {name.rpartition(".")[0] for name, _ in model.named_parameters()}
    return any(not (owner in used or any(u.startswith(owner) for u in used)) for owner in owners)


def build(labelling: Labelling, evaluated: Trace, model: nn.Module) -> ChannelGroups:
    """Resolve the ties, and gather the units that live on exactly the same axes into groups."""
    roots = labelling.atoms.roots()
    pinned = labelling.atoms.pinned(roots)
    tensors = labelling.tensors.items()
    axes = {name: {d: a for d, a in enumerate(t.axes) if isinstance(a, np.ndarray)} for name, t in tensors}
    classes = classes_of(roots, [labels for tensor in axes.values() for labels in tensor.values()], pinned)
    members: dict[int, list[tuple[str, int]]] = {}
    for name, tensor in axes.items():
        for dim, labels in tensor.items():
            for number in np.unique(classes[roots[labels]]).tolist():
                members.setdefault(number, []).append((name, dim))
    trunk = set(roots[np.concatenate(labelling.joined)].tolist()) if labelling.joined else set()
    blocks = blocks_of(labelling, model)
    groups: list[Group] = []
    for number, places in members.items():
        first = roots[axes[places[0][0]][places[0][1]]]
        units = unique_in_order(first[classes[first] == number])
        parts = tuple(part(name, dim, roots[axes[name][dim]], units) for name, dim in places)
        inside = any(all(name.startswith(block) for name, _ in places) for block in blocks)
        hidden = inside and trunk.isdisjoint(units.tolist())
        name = places[0][0].rpartition(".")[0] or places[0][0]
        taken = sum(g.name == name or g.name.startswith(name + "#") for g in groups)
        reason = why_not(units, pinned)
        groups.append(Group(f"{name}#{taken + 1}" if taken else name, units, parts, reason, hidden))
    return ChannelGroups(groups, roots, axes, labelling.sizes, labelling, evaluated)


def classes_of(roots: Labels, axes: list[Labels], pinned: dict[int, list[str]]) -> Labels:
    """Give two units the same class if the same axes hold them: every axis splits the classes that it cuts through."""
    classes, following = np.zeros(len(roots), dtype=np.int64), 1
    for units in [np.array(sorted(pinned), dtype=np.int64), *(np.unique(roots[labels]) for labels in axes)]:
        old, split = np.unique(classes[units], return_inverse=True)
        classes[units] = following + split
        following += len(old)
    return classes


def unique_in_order(values: np.ndarray) -> np.ndarray:
    """Each value once, where it first appears: units are numbered as the producing layer numbers its channels."""
    _, first = np.unique(values, return_index=True)
    return values[np.sort(first)]


def part(name: str, dim: int, labels: Labels, units: Labels) -> Member:
    """The indices of an axis that belong to these units."""
    positions = np.flatnonzero(np.isin(labels, units))
    order = np.argsort(units)
    return Member(name, dim, positions, order[np.searchsorted(units, labels[positions], sorter=order)])


def why_not(units: Labels, pinned: dict[int, list[str]]) -> str | None:
    """The reasons why these units stay, the three first found; or that there is nothing to choose from."""
    found = list(dict.fromkeys(reason for unit in units.tolist() for reason in pinned.get(unit, [])))
    if found:
        return "; ".join(found[:3])
    return "all its channels are tied into one, and cutting that would empty it" if len(units) == 1 else None


def blocks_of(labelling: Labelling, model: nn.Module) -> list[str]:
    """Prefixes of the parameters of each block. A block is a module of a class that joins branches in its forward."""
    kinds = {call.inside[-1][1] if call.inside else type(model) for call in labelling.joins}
    paths = [path for path, module in model.named_modules() if type(module) in kinds]
    return [f"{path}." if path else "" for path in paths] if kinds else [""]


def channel_groups(model: nn.Module, example_inputs: torch.Tensor | tuple) -> ChannelGroups:
    """Find all channel groups of a network.

    The groups that the rules propose are put to the test: a trial cut has to give the same graph with exactly the
    shapes that were predicted. Where it does not, the groups at that place are declared unprunable.

    Args:
        model: any network that torch.fx can trace, in eval mode; it is left alone.
        example_inputs: a tensor or a tuple of them, as forward takes them.

    Returns:
        Groups with their members, and with a reason where a group cannot be pruned.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
        >>> [(g.name, g.size, g.reason is None) for g in channel_groups(net, torch.zeros(1, 3, 8, 8))]
        [('0', 8, True), ('2', 4, False)]
    """
    if model.training:
        raise TraceError(f"{type(model).__name__} is in train mode; call model.eval() first")
    labelling, evaluated = read(model, example_inputs)
    while True:
        groups = build(labelling, evaluated, model)
        misfit = first_misfit(groups, example_inputs)
        if misfit is None:
            return groups
        labels, why = misfit
        labelling.atoms.pin(labels, why)
