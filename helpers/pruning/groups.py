"""Channel groups: which channels of a network can be cut, and what has to be cut with them.

Example: a block that widens four channels to six, and adds.

    y = a(x)                                    a = Conv2d(3, 4, 1)
    z = depthwise(expand(y))                    expand = Conv2d(4, 6, 1)
    y = y + project(z)                          depthwise = Conv2d(6, 6, 3, padding=1, groups=6)
    return head(y)                              project = Conv2d(6, 4, 1), head = Conv2d(4, 2, 1)

Each index of an axis that holds channels has a label (labelling.py). What reads a channel repeats
its label:

    a.weight          axis 0     0  1  2  3            so has a.bias
    expand.weight     axis 1     0  1  2  3            it reads what a makes
                      axis 0     4  5  6  7  8  9
    depthwise.weight  axis 0     4  5  6  7  8  9      filter i reads and makes channel i
    project.weight    axis 1     4  5  6  7  8  9
                      axis 0    10 11 12 13            the addition ties 10 to 0, 11 to 1, ...
    head.weight       axis 1     0  1  2  3
                      axis 0    14 15                  pinned: they are outputs of the network

Labels that are tied are one unit, which has the smallest number: 10 to 13 are units 0 to 3. Units
on the same axes of the same tensors are a group, named after the layer that makes them:

    a         units 0 to 3      a, expand (axis 1), project, head (axis 1)          shared by blocks
    expand    units 4 to 9      expand, depthwise, project (axis 1)                 hidden
    head      units 14 and 15   cannot be pruned

To cut unit 1 of the group expand, label 5, is to take index 1 out of axis 0 of expand.weight,
expand.bias, depthwise.weight and depthwise.bias, and of axis 1 of project.weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from torch import fx

from helpers.pruning.labelling import Labelling
from helpers.pruning.ties import NONE, Labels

SCOPES = ("hidden", "all")


class PruneError(ValueError):
    """What is asked for cannot be pruned, or not in this way; says what, where, and what to do
    instead.
    """


@dataclass(frozen=True)
class Member:
    """Part of one axis of one tensor: place `indices[i]` of the axis belongs to the unit that is
    number `numbers[i]` in its group, counted from 0.
    """

    tensor: str
    dim: int
    indices: np.ndarray
    numbers: np.ndarray

    @property
    def axis(self) -> tuple[str, int]:
        """The axis that it is a part of."""
        return self.tensor, self.dim


@dataclass(frozen=True)
class Group:
    """Units on the same axes of the same tensors. A unit is cut as a whole or not at all."""

    name: str  # of the layer that produces it
    units: Labels  # their smallest labels
    members: tuple[Member, ...]
    reason: str | None  # why it cannot be pruned; None if it can
    hidden: bool  # inside one block of the network, and not shared with others

    @property
    def size(self) -> int:
        """How many units there are to choose from."""
        return len(self.units)


@dataclass
class ChannelGroups:
    """All groups of a network, in the order in which the network uses them."""

    by_name: dict[str, Group]
    unit_of: Labels  # for each label its unit
    axes: dict[str, dict[int, Labels]]  # tensor -> axis -> units
    labelling: Labelling = field(repr=False)
    nodes: list[fx.Node] = field(repr=False)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.by_name.values())

    def __getitem__(self, name: str) -> Group:
        return self.by_name[name]

    def prunable(self, scope: str = "all") -> list[Group]:
        """The groups that can be pruned: all of them, or only the hidden ones."""
        if scope not in SCOPES:
            raise PruneError(f"unknown scope {scope!r}; choose 'hidden' or 'all'")
        return [g for g in self if g.reason is None and (scope == "all" or g.hidden)]

    def table(self) -> pd.DataFrame:
        """One row for each group."""
        rows = [
            (g.name, g.size, len({m.tensor for m in g.members}), g.hidden, g.reason or "")
            for g in self
        ]
        return pd.DataFrame(
            rows, columns=["group", "units", "tensors", "hidden", "unprunable because"]
        )


def groups_of(labelling: Labelling, evaluated: list[fx.Node]) -> ChannelGroups:
    """Resolve the ties, and gather the units that live on exactly the same axes into groups."""
    unit_of = labelling.ties.units()
    pinned = labelling.ties.pinned(unit_of)
    axes = {}
    for name, tensor in labelling.tensors.items():
        labelled = [(d, a) for d, a in enumerate(tensor.axes) if isinstance(a, np.ndarray)]
        axes[name] = {dim: unit_of[labels] for dim, labels in labelled}
    shared = unit_of[np.concatenate([NONE, *labelling.shared])]
    blocks = block_prefixes(labelling)
    groups: dict[str, Group] = {}
    for units, members in gather(axes, unit_of, pinned):
        name = members[0].tensor.rpartition(".")[0] or members[0].tensor
        # A layer may produce several groups.
        before = [other for other in groups if other.partition("#")[0] == name]
        if before:
            name = f"{name}#{len(before) + 1}"
        produced = any(member.axis in labelling.output_axes for member in members)
        inside = any(all(m.tensor.startswith(block) for m in members) for block in blocks)
        hidden = inside and not np.isin(units, shared).any()
        reason = why_unprunable(units, pinned, produced)
        groups[name] = Group(name, units, tuple(members), reason, hidden)
    return ChannelGroups(groups, unit_of, axes, labelling, evaluated)


def block_prefixes(labelling: Labelling) -> list[str]:
    """What the names of a block's tensors begin with; a network without blocks is one."""
    if not labelling.blocks:
        return [""]
    modules = labelling.model.named_modules()
    paths = [path for path, module in modules if type(module) in labelling.blocks]
    return [f"{path}." if path else "" for path in paths]


def gather(
    axes: dict[str, dict[int, Labels]], unit_of: Labels, pinned: dict[str, np.ndarray]
) -> list[tuple[Labels, list[Member]]]:
    """The units of each group with its members, in the order in which the network uses them."""
    # Most axes equal others (filters, bias, four tensors of a BatchNorm): look at each kind once.
    distinct_axes = {
        units.tobytes(): units for tensor in axes.values() for units in tensor.values()
    }
    # Pinned units count as an axis of their own, so that no group has both these and others.
    stays = np.concatenate([NONE, *map(np.flatnonzero, pinned.values())])
    signature = signatures(len(unit_of), [stays, *distinct_axes.values()])
    occurrences = {key: split(units, signature) for key, units in distinct_axes.items()}
    found: dict[int, tuple[Labels, list[Member]]] = {}
    for name, tensor in axes.items():
        for dim, axis in tensor.items():
            for number, (units, indices, numbers) in occurrences[axis.tobytes()].items():
                _, members = found.setdefault(number, (units, []))
                members.append(Member(name, dim, indices, numbers))
    return list(found.values())


def signatures(count: int, axes: list[Labels]) -> Labels:
    """A number for each unit, equal for units that lie on the same axes. At first all are equal;
    then on each axis, units that share a number get a new one, which they share again.
    """
    signature = np.zeros(count, dtype=np.int64)
    unused = 1
    for units in map(np.unique, axes):
        old, split_into = np.unique(signature[units], return_inverse=True)
        signature[units] = unused + split_into
        unused += len(old)
    return signature


def split(axis: Labels, signature: Labels) -> dict[int, tuple[Labels, np.ndarray, np.ndarray]]:
    """For each signature on an axis: its units in order, the indices where they lie, and which of
    these units lies at each of these indices.
    """
    parts = {}
    for number in np.unique(signature[axis]).tolist():
        indices = np.flatnonzero(signature[axis] == number)
        units, numbers = np.unique(axis[indices], return_inverse=True)
        parts[number] = (units, indices, numbers)
    return parts


def why_unprunable(units: Labels, pinned: dict[str, np.ndarray], produced: bool) -> str | None:
    """The first three reasons why units stay; or that no layer rates them, or that there is only
    one.
    """
    if reasons := [reason for reason, mask in pinned.items() if mask[units].any()]:
        return "; ".join(reasons[:3])
    if not produced:
        return "no layer has filters for these channels, by which they could be rated"
    if len(units) == 1:
        return "all its channels are tied into one, and cutting that would empty it"
    return None
