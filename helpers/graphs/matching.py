"""Looks a pattern up in a graph, and puts something else where it matched.

`find` tells what matches, and why a piece that almost matched was refused. It goes from an anchor
to its operands. Operations are compared before values, so a refusal is only ever about a piece of
graph that has the *shape* of the pattern. Unlike in torch's `SubgraphMatcher`, modules are compared
by class and not by name, operands of commutative operations may stand in either order, and there
are reasons.

`replace_all` builds new nodes where each match's result stood. They inherit its source line and its
module stack, and the new result its fake value too, since it is the same. Those nodes of the match
go that nobody needs any more.

Example:
    >>> silu = traced(lambda x: x * torch.sigmoid(x))
    >>> [(refusal.node, refusal.reason) for refusal in find(graph_module, silu).refused]
    >>> call_silu = lambda match: graph_module.graph.call_function(F.silu, (match["x"],))
    >>> replace_all(graph_module, silu, call_silu)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.effects import attribute, called_modules, callee, nodes_in
from helpers.graphs.patterns import Constant, Match, Op, Value

Filter = Callable[
    [Match], str | None
]  # looks at a whole match, and returns None or a one-line reason against it
Build = Callable[
    [Match], fx.Node
]  # makes the new nodes at the graph's insertion point and returns the new result
Bound = dict[Any, Any]  # pattern node -> graph node, or the literal that stands there

PROVENANCE = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")
VALUES = ("val", "tensor_meta")


class Refusal(NamedTuple):
    """A piece of graph that has the shape of the pattern, and what keeps it from being a match."""

    node: fx.Node
    reason: str


class Found(NamedTuple):
    """What a search brought: the matches and the near misses, both in graph order."""

    matches: list[Match]
    refused: list[Refusal]


def find(
    graph_module: fx.GraphModule,
    pattern: Op,
    *,
    match_output: bool = False,
    match_placeholders: bool = False,
    any_literals: bool = False,
    allow_overlap: bool = False,
    filters: Sequence[Filter] = (),
) -> Found:
    """Find every place where a pattern fits, and the near misses.

    Args:
        match_output: the pattern's result must be exactly what the network returns.
        match_placeholders: the pattern's values must be inputs of the network.
        any_literals: every literal of the pattern stands for any literal.
        allow_overlap: keep matches that share operations; otherwise the first in graph order wins.
        filters: further conditions on a whole match.
    """
    found, claimed, of_modules = (
        Found([], []),
        {},
        any(isinstance(target, type) for target in pattern.targets),
    )
    nodes = graph_module.graph.nodes
    anchors = [
        n for n in nodes if n.target in pattern.targets or (of_modules and n.op == "call_module")
    ]
    if not anchors:
        return found
    search = _Search(graph_module, match_placeholders, any_literals)

    def overlap(match: Match) -> str | None:
        shared = next((node for node in match.vanishing if node in claimed), None)
        return (
            None
            if shared is None
            else f"{shared} already belongs to the match at {claimed[shared]}"
        )

    checks = [_escapes, search.sees_a_write, *([_is_the_output] if match_output else []), *filters]
    checks += [] if allow_overlap else [overlap]
    for node in anchors:
        match, reason = search.at(pattern, node, checks)
        if match is not None:
            found.matches.append(match)
            claimed.update(dict.fromkeys(match.vanishing, match.anchor))
        elif reason is not None:
            found.refused.append(Refusal(node, reason))
    return found


def _is_the_output(match: Match) -> str | None:
    returned = match.graph_module.graph.output_node().args[0]
    return None if returned is match.anchor else f"is not what the network returns ({returned})"


def _escapes(match: Match) -> str | None:
    """An intermediate that somebody outside the match needs cannot vanish."""
    for node in match.returning:
        if node is not match.anchor:
            users = [user for user in node.users if user not in match.vanishing]
            returned = any(user.op == "output" for user in users)
            return (
                f"{node} is also"
                f" {'returned' if returned else 'used by ' + ', '.join(map(str, users))}"
            )
    return None


class _Search:
    """Solutions come from generators: asking for the next one is the backtracking."""

    def __init__(self, graph_module: fx.GraphModule, match_placeholders: bool, any_literals: bool):
        self.graph_module, self.editor = graph_module, Editor(graph_module)
        self.match_placeholders, self.any_literals = match_placeholders, any_literals
        self.modules = called_modules(graph_module)
        self.reason: str | None = None  # the first for which the current anchor is refused

    def at(
        self, pattern: Op, node: fx.Node, checks: Sequence[Filter]
    ) -> tuple[Match | None, str | None]:
        """The first match whose anchor is `node`, or why there is none (None when the shape
        differs).
        """
        self.reason = None
        for bound in self._op(pattern, node, {}):
            match = Match(self.graph_module, node, bound)
            reason = next(
                (reason for check in checks if (reason := check(match)) is not None), None
            )
            if reason is None:
                return match, None
            self.reason = self.reason or reason
        return None, self.reason

    def _part(self, part: Any, value: Any, bound: Bound) -> Iterator[Bound]:
        """All ways to match one element of a pattern with what stands in the graph."""
        if isinstance(part, (Op, Value)) and part in bound:
            if bound[part] == value:
                yield bound
        elif isinstance(part, Op):
            yield from self._op(part, value, bound)
        elif isinstance(part, Value):
            reason = self._objection(part, value)
            self.reason = self.reason or reason
            if reason is None:
                yield {**bound, part: value}
        elif isinstance(part, (list, tuple)) and isinstance(value, (list, tuple)):
            if len(part) == len(value):
                yield from self._all(list(zip(part, value, strict=True)), bound)
        elif not nodes_in(value) and (self.any_literals or part == value):
            yield bound

    def _all(self, pairs: list[tuple[Any, Any]], bound: Bound) -> Iterator[Bound]:
        """All ways to match several elements at once, operations first."""
        if not pairs:
            yield bound
            return
        first = next((i for i, (part, _) in enumerate(pairs) if isinstance(part, Op)), 0)
        for one in self._part(*pairs[first], bound):
            yield from self._all(pairs[:first] + pairs[first + 1 :], one)

    def _op(self, part: Op, node: Any, bound: Bound) -> Iterator[Bound]:
        if not isinstance(node, fx.Node) or callee(node, self.modules) not in part.targets:
            return
        if len(node.args) < len(part.args) or not part.kwargs.keys() <= node.kwargs.keys():
            return
        named = [(pattern, node.kwargs[key]) for key, pattern in part.kwargs.items()]
        surplus = [f"{key}={value}" for key, value in node.kwargs.items() if key not in part.kwargs]
        surplus += map(str, node.args[len(part.args) :])
        orders = (
            [part.args, (part.args[1], part.args[0], *part.args[2:])]
            if part.commutative
            else [part.args]
        )
        for operands in orders:
            for one in self._all(
                [*zip(operands, node.args, strict=False), *named], {**bound, part: node}
            ):
                if part.open or not surplus:
                    yield one
                else:
                    self.reason = self.reason or f"{node} also passes {', '.join(surplus)}"

    def _objection(self, part: Value, value: Any) -> str | None:
        """What keeps a graph node or literal from being this value."""
        if self.match_placeholders and not (
            isinstance(value, fx.Node) and value.op == "placeholder"
        ):
            return f"{value} is not an input of the network"
        if isinstance(part, Constant):
            if isinstance(value, fx.Node):
                if value.op != "get_attr":
                    return f"{value} is not a constant"
                if self.editor.storage.is_written(value):
                    return f"{value} is written to by the network"
                value = attribute(self.graph_module, value.target)
            if not isinstance(value, (torch.Tensor, int, float, complex)):
                return f"{value!r} is neither a number nor a tensor"
        return part.where(value) if part.where else None

    def sees_a_write(self, match: Match) -> str | None:
        """A rewrite computes everything where the anchor stands: nothing may write to what it reads
        before that.
        """
        first, inside, storage = min(match.vanishing), match.vanishing, self.editor.storage
        between = [
            node for node in storage.writers if first < node < match.anchor and node not in inside
        ]
        if between and any(
            storage.is_written(one) for node in inside for one in node.all_input_nodes
        ):
            return f"{between[0]}, which stands in between, may write to its inputs"
        moved = (
            [node for node in inside if node.op == "call_module" and node is not match.anchor]
            if between
            else []
        )
        layers = [self.modules[node.target] for node in moved]
        if any(
            storage.is_tensor_written(t)
            for layer in layers
            for t in (*layer.parameters(), *layer.buffers())
        ):
            return f"{between[0]}, which stands in between, may write to its weights or statistics"
        return None


class Replacement(NamedTuple):
    """What one replacement did: names of nodes that went, nodes that came, and the node map of the
    match.
    """

    anchor: str
    removed: tuple[str, ...]
    inserted: tuple[fx.Node, ...]
    result: fx.Node
    nodes_map: dict[Any, Any]


def replace_all(
    graph_module: fx.GraphModule, pattern: Op, build: Build, filters: Sequence[Filter] = ()
) -> list[Replacement]:
    """Replace every match of a pattern by what `build` makes, in place; one that overlaps an
    earlier one stays.

    Returns:
        One report for each match, in graph order.

    Raises:
        RuntimeError: `build` returned something else than a node. That match is as before, as after
            any other error.
    """
    renewed: dict[
        fx.Node, fx.Node
    ] = {}  # an earlier replacement may have renewed what feeds a later match
    reports = []
    try:
        for match in find(graph_module, pattern, filters=filters).matches:
            nodes = {
                part: renewed.get(at, at) if isinstance(at, fx.Node) else at
                for part, at in match.nodes.items()
            }
            reports.append(_replace_one(replace(match, nodes=nodes), build))
            renewed[match.anchor] = reports[-1].result
    finally:
        graph_module.recompile()
    return reports


def _replace_one(match: Match, build: Build) -> Replacement:
    graph, anchor, following = match.graph_module.graph, match.anchor, match.anchor.next
    try:
        with graph.inserting_before(following):
            result = build(match)
        if not isinstance(result, fx.Node):
            raise RuntimeError(
                f"the replacement of the match at {anchor} is {result}, and must be one node"
            )
    except BaseException:
        while following.prev is not anchor:
            graph.erase_node(following.prev)
        raise
    inserted, node = (), anchor
    while (node := node.next) is not following:
        inserted += (node,)
    for node in inserted:
        node.meta.update(
            {
                key: anchor.meta[key]
                for key in PROVENANCE
                if key in anchor.meta and key not in node.meta
            }
        )
    if result in inserted:
        result.meta.update({key: anchor.meta[key] for key in VALUES if key in anchor.meta})
    anchor.replace_all_uses_with(result, delete_user_cb=lambda user: user not in inserted)
    unused = []
    for node in sorted(match.vanishing, reverse=True):
        if not node.users:
            unused.append(node.name)
            graph.erase_node(node)
    return Replacement(anchor.name, tuple(unused), inserted, result, match.nodes)
