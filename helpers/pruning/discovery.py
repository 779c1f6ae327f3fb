"""Find the channel groups of a network: read its graph, resolve what is tied, and put the result to the test."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from helpers.graphs.module_tree import modules_by_path
from helpers.pruning.atoms import Labels, Pinned, ascending, distinct
from helpers.pruning.groups import ChannelGroups, Group, Member
from helpers.pruning.labelling import Labelling, label
from helpers.pruning.reader import TraceError, on_meta, read
from helpers.pruning.rules import rule_for
from helpers.pruning.trial import first_misfit


def labelled(model: nn.Module, root: nn.Module, example_inputs: Any) -> tuple[Labelling, list[fx.Node]]:
    """Label the graph; and once more the graph in train mode, if some parameters are only used there."""
    labelling = Labelling(model)
    evaluated = read(root, example_inputs)
    label(labelling, evaluated, rule_for)
    if idle := sleepers(evaluated, labelling.learned):
        awake = list(labelling.layers)
        label(labelling, awakened(root, example_inputs, idle), rule_for)
        root.eval()
        seen = {layer.weight for layer in awake}
        asleep = [dataclasses.replace(layer, places=0) for layer in labelling.layers if layer.weight not in seen]
        labelling.layers = [*awake, *asleep]
    return labelling, evaluated


def awakened(root: nn.Module, example_inputs: Any, idle: list[str]) -> list[fx.Node]:
    """The graph in train mode. Without it nobody knows which channels the idle layers read, so there is no way on."""
    try:
        return read(root.train(), example_inputs)
    except TraceError as error:
        raise TraceError(
            f"{error}. This was in train mode, which is read as well because eval mode does not call {idle[0]!r}: take"
            " the layer out if nothing calls it, or let forward run in train mode, too, on the example inputs alone"
            " (BatchNorm may want a batch of two)"
        ) from error


def sleepers(evaluated: list[fx.Node], learned: set[str]) -> list[str]:
    """Layers of the network that an evaluation does not call (auxiliary heads of GoogLeNet and Inception)."""
    used = {node.target for node in evaluated if node.op in ("call_module", "get_attr")}
    owners = {name.rpartition(".")[0] for name in learned}
    awake = used | {u.rpartition(".")[0] for u in used}
    return sorted(owner for owner in owners if awake.isdisjoint(ancestors(owner)))


def ancestors(path: str) -> set[str]:
    """The path of a module and of all modules around it, without the root: a layer may own layers (attention)."""
    names = path.split(".")
    return {".".join(names[:k]) for k in range(1, len(names) + 1)}


def build(labelling: Labelling, evaluated: list[fx.Node], model: nn.Module) -> ChannelGroups:
    """Resolve the ties, and gather the units that live on exactly the same axes into groups."""
    roots = labelling.atoms.roots()
    pinned = labelling.atoms.pinned(roots)
    tensors = labelling.tensors.items()
    axes = {name: {d: a for d, a in enumerate(t.axes) if isinstance(a, np.ndarray)} for name, t in tensors}
    # Most axes are cut with others (a convolution's rows, its bias, four tensors of BatchNorm, ...): each kind once.
    known = {id(labels): roots[labels] for tensor in axes.values() for labels in tensor.values()}
    kinds: dict[bytes, Labels] = {}
    same = {key: kinds.setdefault(units.tobytes(), units) for key, units in known.items()}
    axes = {name: {d: same[id(labels)] for d, labels in tensor.items()} for name, tensor in axes.items()}
    arrays = {id(units): units for units in kinds.values()}
    classes = classes_of(roots, list(arrays.values()), pinned)
    places = {key: positions_by_class(classes[units]) for key, units in arrays.items()}
    members: dict[int, list[tuple[str, int, int]]] = {}
    for name, tensor in axes.items():
        for dim, labels in tensor.items():
            for number in places[id(labels)]:
                members.setdefault(number, []).append((name, dim, id(labels)))
    trunk = set(roots[np.concatenate(labelling.joined)].tolist()) if labelling.joined else set()
    blocks = blocks_of(labelling, model)
    filters = {(layer.weight, layer.out_dim) for layer in labelling.layers}
    number_of, groups = np.zeros(len(roots), dtype=np.int64), {}
    for number, held in members.items():
        units = ascending(arrays[held[0][2]][places[held[0][2]][number]])  # numbered as the first layer does
        number_of[units] = np.arange(len(units))
        positions = {key: places[key][number] for _, _, key in held}
        units_at = {key: number_of[arrays[key][where]] for key, where in positions.items()}
        parts = tuple(Member(name, dim, positions[key], units_at[key]) for name, dim, key in held)
        around = [block for block in blocks if held[0][0].startswith(block)]
        inside = any(all(name.startswith(block) for name, _, _ in held) for block in around)
        hidden = inside and trunk.isdisjoint(units.tolist())
        name = free_name(held[0][0].rpartition(".")[0] or held[0][0], groups)
        produced = any((tensor, dim) in filters for tensor, dim, _ in held)
        groups[name] = Group(name, units, parts, why_not(units, pinned, produced), hidden)
    return ChannelGroups(list(groups.values()), roots, axes, labelling.sizes, labelling, evaluated)


def positions_by_class(classes: Labels) -> dict[int, np.ndarray]:
    """Where each class sits on an axis."""
    found, numbers = distinct(classes)
    ends = np.cumsum(np.bincount(numbers))
    return dict(zip(found.tolist(), np.split(np.argsort(numbers, kind="stable"), ends[:-1]), strict=True))


def free_name(name: str, taken: dict[str, Group]) -> str:
    """The name itself, or name#2, name#3, ... when one layer produces several groups."""
    return next(n for k in itertools.count(1) if (n := name if k == 1 else f"{name}#{k}") not in taken)


def classes_of(roots: Labels, axes: list[Labels], pinned: Pinned) -> Labels:
    """Give two units the same class if the same axes hold them: every axis splits the classes that it cuts through."""
    classes, following = np.zeros(len(roots), dtype=np.int64), 1
    for units in [np.flatnonzero(pinned.anyhow), *map(ascending, axes)]:
        old, split = distinct(classes[units])
        classes[units] = following + split
        following += len(old)
    return classes


def why_not(units: Labels, pinned: Pinned, produced: bool) -> str | None:
    """The reasons why these units stay, the three first found; or that there is nothing to choose from, or by."""
    if pinned.anyhow[units].any():
        return "; ".join(itertools.islice(pinned.reasons(units), 3))
    if not produced:
        return "no layer has filters for these channels, by which they could be rated"
    return "all its channels are tied into one, and cutting that would empty it" if len(units) == 1 else None


def blocks_of(labelling: Labelling, model: nn.Module) -> list[str]:
    """Prefixes of the parameters of each block. A block is a module of a class that joins branches in its forward."""
    kinds = {call.inside for call in labelling.joins}
    modules = modules_by_path(model, each_once=True).items()
    paths = [path for path, module in modules if type(module) in kinds]
    return [f"{path}." if path else "" for path in paths] if kinds else [""]


def channel_groups(model: nn.Module, example_inputs: torch.Tensor | tuple) -> ChannelGroups:
    """Find all channel groups of a network.

    The groups that the rules propose are put to the test: a trial cut has to give the same graph with exactly the
    shapes that were predicted. Where it does not, the groups at that place are declared unprunable.

    Args:
        model: any network that runs in eval mode, and in train mode if it owns layers that eval mode does not call;
            it is left alone.
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
    root = on_meta(model)
    labelling, evaluated = labelled(model, root, example_inputs)
    while True:
        groups = build(labelling, evaluated, model)
        misfit = first_misfit(groups, root, example_inputs)
        if misfit is None:
            return groups
        labels, why = misfit
        labelling.atoms.pin(labels, why)
        root = on_meta(model)
