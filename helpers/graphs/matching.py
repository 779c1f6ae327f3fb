"""Searches a graph for a pattern, and says why a place that almost matches does not. The graph is
never changed.

The search starts at an anchor, which may be the result of the pattern, and goes on to its operands.
Operands that are operations are compared before values: where an operation does not fit, nothing is
said, and the reasons speak of places where the operations fit and a value does not. Unlike in
torch's `SubgraphMatcher`, modules are compared by class and not by name, operands of commutative
operations may stand in either order, and there are reasons.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.effects import nodes_in
from helpers.graphs.errors import Declined
from helpers.graphs.operations import attribute, called_module, callee
from helpers.graphs.patterns import Constant, OpPattern, Value

Bound = dict[Any, Any]  # part of a pattern -> the graph node or literal that stands there


@dataclass(frozen=True)
class Match:
    """One place where a pattern fits.

    Attributes:
        editor: reads and changes the graph in which it was found.
        anchor: the node that is the pattern's result.
        nodes: part of the pattern -> the graph node or literal that stands there.
    """

    editor: Editor
    anchor: fx.Node
    nodes: dict[Any, Any]

    @property
    def named(self) -> dict[str, Any]:
        """What the pattern's names stand for: nodes and literals, and the values of constants."""
        values = {}
        for part, node in self.nodes.items():
            if isinstance(part, Constant) and isinstance(node, fx.Node):
                node = attribute(self.editor.graph_module, node.target)
            if part.name:
                values[part.name] = node
        return values

    @functools.cached_property
    def operations(self) -> tuple[fx.Node, ...]:
        """The matched nodes that compute something; a rewrite may replace all of them."""
        operations = [node for part, node in self.nodes.items() if isinstance(part, OpPattern)]
        return tuple(dict.fromkeys(operations))


class Matcher:
    """Searches one graph for patterns.

    Each method that begins with `_match` is a generator of all ways to match: when a choice leads
    nowhere, the loop that asked for it takes the next one.
    """

    def __init__(self, editor: Editor):
        self.editor = editor
        self.reason: Declined | None = None  # why the current anchor is declined: the first reason

    def anchors(self, pattern: OpPattern) -> list[fx.Node]:
        """The nodes that may be the result of a pattern, in graph order."""
        nodes = self.editor.graph.nodes
        return [node for node in nodes if callee(node) in pattern.targets]

    def first(self, pattern: OpPattern, anchor: fx.Node, use: Callable[[Match], Any]) -> Any:
        """What `use` returns for the first match that it accepts at an anchor; None where
        operations, literals or numbers of operands differ from the pattern's.

        Raises:
            Declined: the operations are those of the pattern, but there is no match; says why.
        """
        self.reason = None
        for bound in self._match_operation(pattern, anchor, {}):
            match = Match(self.editor, anchor, bound)
            try:
                _check_intermediates(match)
                _check_written_between(match)
                return use(match)
            except Declined as reason:
                self._decline(reason)
        if self.reason is not None:
            raise self.reason
        return None

    def _decline(self, reason: Declined) -> None:
        self.reason = self.reason or reason

    def _match_part(self, part: Any, value: Any, bound: Bound) -> Iterator[Bound]:
        """All ways to match one part of a pattern with what stands in the graph."""
        if isinstance(part, (OpPattern, Value)) and part in bound:
            if bound[part] == value:
                yield bound
        elif isinstance(part, OpPattern):
            yield from self._match_operation(part, value, bound)
        elif isinstance(part, Value):
            try:
                self._check_value(part, value)
            except Declined as reason:
                self._decline(reason)
            else:
                yield {**bound, part: value}
        elif isinstance(part, (list, tuple)) and isinstance(value, (list, tuple)):
            if len(part) == len(value):
                yield from self._match_all(list(zip(part, value, strict=True)), bound)
        elif not nodes_in(value) and part == value:
            yield bound

    def _match_all(self, pairs: list[tuple[Any, Any]], bound: Bound) -> Iterator[Bound]:
        """All ways to match several parts at once, operations first."""
        if not pairs:
            yield bound
            return
        first, *others = sorted(pairs, key=lambda pair: not isinstance(pair[0], OpPattern))
        for with_first in self._match_part(*first, bound):
            yield from self._match_all(others, with_first)

    def _match_operation(self, part: OpPattern, node: Any, bound: Bound) -> Iterator[Bound]:
        """All ways to match a node and its operands, in each order that they may have."""
        if not isinstance(node, fx.Node) or callee(node) not in part.targets:
            return
        if len(node.args) < len(part.args) or not part.kwargs.keys() <= node.kwargs.keys():
            return
        surplus = [f"{key}={value}" for key, value in node.kwargs.items() if key not in part.kwargs]
        surplus += map(str, node.args[len(part.args) :])
        named = [(pattern, node.kwargs[key]) for key, pattern in part.kwargs.items()]
        orders = [part.args]
        if part.commutative:
            orders.append((part.args[1], part.args[0], *part.args[2:]))
        for operands in orders:
            pairs = [*zip(operands, node.args, strict=False), *named]
            for complete in self._match_all(pairs, {**bound, part: node}):
                if part.allows_others or not surplus:
                    yield complete
                else:
                    self._decline(Declined(f"{node} also passes {', '.join(surplus)}"))

    def _check_value(self, part: Value, value: Any) -> None:
        """Decline a graph node or literal that this value or constant does not stand for."""
        if isinstance(part, Constant):
            if isinstance(value, fx.Node):
                if value.op != "get_attr":
                    raise Declined(f"{value} is not a constant")
                if self.editor.storage.is_written(value):
                    raise Declined(f"{value} is written to by the network")
                value = attribute(self.editor.graph_module, value.target)
            if not isinstance(value, (torch.Tensor, int, float, complex)):
                raise Declined(f"{value!r} is neither a number nor a tensor")
        if part.where is not None:
            part.where(value)


def _check_intermediates(match: Match) -> None:
    """Decline a match with an intermediate that is needed outside of it, and so cannot vanish."""
    for node in match.operations:
        users = [user for user in node.users if user not in match.operations]
        if node is match.anchor or not users:
            continue
        if any(user.op == "output" for user in users):
            raise Declined(f"{node} is also returned")
        raise Declined(f"{node} is also used by {', '.join(map(str, users))}")


def _check_written_between(match: Match) -> None:
    """Decline a match if something is written in the middle of it: a rewrite may compute all
    of it where the anchor stands, and would read what was written.
    """
    storage = match.editor.storage
    inside = match.operations
    start = min(inside)
    between = [n for n in storage.writers if start < n < match.anchor and n not in inside]
    if not between:
        return
    place = f"{between[0]}, which stands in between, may write to its"
    if any(storage.is_written(source) for node in inside for source in node.all_input_nodes):
        raise Declined(f"{place} inputs")
    for node in inside:
        module = called_module(node)
        if module is None or node is match.anchor:
            continue
        if storage.is_module_written(module):
            raise Declined(f"{place} weights or statistics")
