"""The pattern language: what a piece of graph looks like, written as data.

A pattern is a small tree (or DAG) that is read from its result towards its inputs. Four kinds of
node make it up:

    OpPattern(targets, args)   a node that computes: one of `targets`, with operands like `args`
    Value(name)                any input; where the pattern ends
    Constant(name)             a number, or a parameter or buffer of the network
    a Python literal           must be equal; `...` as the last operand stands for any others

An operation inside a pattern is an *intermediate*: a rewrite makes it vanish, so nothing outside
the match may use it and the network may not return it. The outermost one (the *anchor*) is
replaced, and may have any number of users.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.operations import attribute, target_name


@dataclass(frozen=True, eq=False)
class Value:
    """Any input of a pattern.

    The same `Value` object in two places must be the same node in the graph.

    Args:
        name: the name under which a match gives the node back.
        where: a condition on the node (or on the literal that stands there); raises `Declined`.
    """

    name: str
    where: Callable[[Any], None] | None = None


class Constant(Value):
    """An input that does not depend on the network's inputs; `where` gets its value.

    A Python number counts, and so does a `get_attr` of a tensor that the graph never writes to.
    """


class OpPattern:
    """A node that computes.

    Args:
        targets: what it may call: functions and ATen overloads, method names (strings), module
            classes. A subclass of a module class is not that class: it may compute something else.
        args: patterns of the positional operands, `...` last for 'and any others'; None for any
            operands at all.
        kwargs: patterns of the keyword operands. Keywords that are not named here must be absent,
            unless `args` is None or ends in `...`.
        name: the name under which a match gives the node back.
        commutative: the first two operands may be swapped.
    """

    def __init__(
        self,
        targets: Iterable[Any],
        args: tuple[Any, ...] | None = None,
        *,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        commutative: bool = False,
    ):
        self.targets = frozenset(targets)
        self.open = args is None or args[-1:] == (...,)
        self.args = tuple(arg for arg in args or () if arg is not ...)
        self.kwargs = dict(kwargs or {})
        self.name = name
        self.commutative = commutative
        if not self.targets or (commutative and len(self.args) < 2):
            raise ValueError(
                f"operation {self} needs at least one target, and two operands if it is commutative"
            )

    def __repr__(self) -> str:
        return self.name or "/".join(sorted(target_name(target) for target in self.targets))


@dataclass(frozen=True)
class Match:
    """One place where a pattern fits.

    Attributes:
        editor: reads and changes the graph in which it was found.
        anchor: the node that stands for the pattern's result.
        nodes: the node map: pattern node -> graph node (or literal).
    """

    editor: Editor
    anchor: fx.Node
    nodes: dict[Any, Any]

    @property
    def named(self) -> dict[str, Any]:
        """What the pattern's names stand for: nodes and literals, and the values of constants."""
        found = {}
        for part, node in self.nodes.items():
            if isinstance(part, Constant) and isinstance(node, fx.Node):
                node = attribute(self.editor.graph_module, node.target)
            if part.name:
                found[part.name] = node
        return found

    @functools.cached_property
    def vanishing(self) -> tuple[fx.Node, ...]:
        """The matched operations, all of which a rewrite removes."""
        operations = [node for part, node in self.nodes.items() if isinstance(part, OpPattern)]
        return tuple(dict.fromkeys(operations))
