"""Channel groups: which channels of a network can be cut, and what has to be cut with them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from torch import fx

from helpers.pruning.atoms import Labels
from helpers.pruning.labelling import Labelling, Layer


class GroupError(ValueError):
    """There is no group of this name."""


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

    groups: list[Group]
    roots: Labels  # for each atom the unit it belongs to
    axes: dict[str, dict[int, Labels]]  # tensor -> axis -> atoms
    sizes: dict[tuple[str, str], tuple[Labels, int]]
    labelling: Labelling = field(repr=False)
    nodes: list[fx.Node] = field(repr=False)

    @property
    def layers(self) -> list[Layer]:
        """Every multiplication by a weight."""
        return self.labelling.layers

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, name: str) -> Group:
        for group in self.groups:
            if group.name == name:
                return group
        raise GroupError(
            f"no channel group is called {name!r}; the groups are {', '.join(g.name for g in self.groups)}"
        )

    def prunable(self, scope: str = "all") -> list[Group]:
        """The groups that can be pruned: all of them, or only the hidden ones."""
        return [g for g in self.groups if g.reason is None and (scope == "all" or g.hidden)]

    def table(self) -> pd.DataFrame:
        """One row for each group."""
        rows = [(g.name, g.size, len(g.members), g.hidden, g.reason or "") for g in self.groups]
        return pd.DataFrame(rows, columns=["group", "units", "tensors", "hidden", "unprunable because"])
