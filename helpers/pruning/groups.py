"""Channel groups: which channels of a network can be cut, and what has to be cut with them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from torch import fx

from helpers.pruning.atoms import Labels
from helpers.pruning.labelling import Labelling


class PruneError(ValueError):
    """What is asked for cannot be pruned, or not in this way; says what, where, and what to do
    instead.
    """


@dataclass(frozen=True)
class Member:
    """Part of one axis of one tensor: index `positions[i]` belongs to unit `units[i]` of the group."""

    tensor: str
    dim: int
    positions: np.ndarray
    units: np.ndarray


@dataclass(frozen=True)
class Group:
    """Units that live on the same axes of the same tensors. A unit is cut as a whole or not at all."""

    name: str  # of the layer that produces it
    units: Labels  # the atoms that stand for them
    members: tuple[Member, ...]
    reason: str | None  # why it cannot be pruned; None if it can
    hidden: bool  # inside one block of the network, away from its trunk

    @property
    def size(self) -> int:
        """How many units there are to choose from."""
        return len(self.units)


@dataclass
class ChannelGroups:
    """All groups of a network, in the order in which the network uses them."""

    by_name: dict[str, Group]
    roots: Labels  # for each atom the unit it belongs to
    axes: dict[str, dict[int, Labels]]  # tensor -> axis -> units
    labelling: Labelling = field(repr=False)
    nodes: list[fx.Node] = field(repr=False)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def __getitem__(self, name: str) -> Group:
        return self.by_name[name]

    def prunable(self, scope: str = "all") -> list[Group]:
        """The groups that can be pruned: all of them, or only the hidden ones."""
        return [g for g in self if g.reason is None and (scope == "all" or g.hidden)]

    def table(self) -> pd.DataFrame:
        """One row for each group."""
        rows = [(g.name, g.size, len(g.members), g.hidden, g.reason or "") for g in self]
        return pd.DataFrame(
            rows, columns=["group", "units", "tensors", "hidden", "unprunable because"]
        )


def build(labelling: Labelling, evaluated: list[fx.Node]) -> ChannelGroups:
    """Resolve the ties, and gather the units that live on exactly the same axes into groups."""
    roots = labelling.atoms.roots()
    pinned = labelling.atoms.pinned(roots)
    tensors = labelling.tensors.items()
    axes = {
        name: {d: roots[a] for d, a in enumerate(t.axes) if isinstance(a, np.ndarray)}
        for name, t in tensors
    }
    # Most axes are cut with others (a convolution's rows, its bias, four tensors of BatchNorm,
    # ...): each kind once.
    kinds = {units.tobytes(): units for tensor in axes.values() for units in tensor.values()}
    stays = np.concatenate([*map(np.flatnonzero, pinned.values()), roots[:0]])
    classes = classes_of(len(roots), [stays, *kinds.values()])
    places = {key: places_of(units, classes) for key, units in kinds.items()}
    found: dict[int, tuple[Labels, list[Member]]] = {}
    for name, tensor in axes.items():
        for dim, axis in tensor.items():
            for number, (positions, units, numbers) in places[axis.tobytes()].items():
                found.setdefault(number, (units, []))[1].append(
                    Member(name, dim, positions, numbers)
                )
    trunk = set(roots[np.concatenate(labelling.trunk)].tolist()) if labelling.trunk else set()
    paths = [
        path for path, module in labelling.model.named_modules() if type(module) in labelling.blocks
    ]
    blocks = [f"{path}." if path else "" for path in paths] if labelling.blocks else [""]
    groups: dict[str, Group] = {}
    for units, members in found.values():
        first = members[0].tensor.rpartition(".")[0] or members[0].tensor
        before = sum(
            name.partition("#")[0] == first for name in groups
        )  # a layer may produce several groups
        name = f"{first}#{before + 1}" if before else first
        inside = any(all(member.tensor.startswith(block) for member in members) for block in blocks)
        hidden = inside and trunk.isdisjoint(units.tolist())
        produced = any((member.tensor, member.dim) in labelling.rows for member in members)
        groups[name] = Group(name, units, tuple(members), why_not(units, pinned, produced), hidden)
    return ChannelGroups(groups, roots, axes, labelling, evaluated)


def classes_of(count: int, axes: list[Labels]) -> Labels:
    """Give two units the same class if the same axes hold them: every axis splits the classes that
    it cuts through.
    """
    classes, following = np.zeros(count, dtype=np.int64), 1
    for units in map(np.unique, axes):
        old, split = np.unique(classes[units], return_inverse=True)
        classes[units] = following + split
        following += len(old)
    return classes


def places_of(axis: Labels, classes: Labels) -> dict[int, tuple[np.ndarray, Labels, np.ndarray]]:
    """Where each class is found on an axis, its units in order, and the number of the unit at each
    of these places.
    """
    held = classes[axis]
    places = {number: np.flatnonzero(held == number) for number in np.unique(held).tolist()}
    return {
        number: (where, *np.unique(axis[where], return_inverse=True))
        for number, where in places.items()
    }


def why_not(units: Labels, pinned: dict[str, np.ndarray], produced: bool) -> str | None:
    """The reasons why these units stay, the three first found; or that there is nothing to choose
    from, or by.
    """
    if reasons := [reason for reason, mask in pinned.items() if mask[units].any()]:
        return "; ".join(reasons[:3])
    if not produced:
        return "no layer has filters for these channels, by which they could be rated"
    return (
        "all its channels are tied into one, and cutting that would empty it"
        if len(units) == 1
        else None
    )
