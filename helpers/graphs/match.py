"""What a search brings back: the matches, and the pieces that were refused with the reason."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

Bound = dict[Any, Any]  # pattern node -> graph node, or the literal that stands there


@dataclass(frozen=True)
class Match:
    """One place where a pattern fits.

    Attributes:
        anchors: the nodes that stand for the pattern's outputs.
        nodes: the node map: pattern node -> graph node (or literal).
        placeholders: what stands for the pattern's values, in the pattern's order.
        returning: the matched operations whose results are used outside the match.
        vanishing: the matched operations that a rewrite removes, last one first.
    """

    graph_module: fx.GraphModule
    anchors: tuple[fx.Node, ...]
    nodes: Bound
    placeholders: tuple[Any, ...]
    returning: tuple[fx.Node, ...]
    vanishing: tuple[fx.Node, ...]

    @property
    def anchor(self) -> fx.Node:
        """The node of the pattern's first output."""
        return self.anchors[0]

    def __getitem__(self, name: str) -> Any:
        """The node (or literal) that the pattern calls `name`."""
        for part, node in self.nodes.items():
            if part.name == name:
                return node
        raise KeyError(f"the pattern has no node {name!r}; it has {[part.name for part in self.nodes if part.name]}")

    def constant(self, name: str) -> Any:
        """The number or tensor of the constant that the pattern calls `name`."""
        node = self[name]
        return attribute(self.graph_module, node.target) if isinstance(node, fx.Node) else node


@dataclass(frozen=True)
class Refusal:
    """A piece of graph that has the shape of the pattern, and what keeps it from being a match."""

    node: fx.Node
    reason: str


@dataclass(frozen=True)
class Found:
    """What a search brought: the matches and the near misses, both in graph order."""

    matches: list[Match]
    refused: list[Refusal]


def attribute(root: torch.nn.Module, path: str) -> Any:
    """What the dotted `path` of a `get_attr` node names."""
    for name in path.split("."):
        root = getattr(root, name)
    return root
