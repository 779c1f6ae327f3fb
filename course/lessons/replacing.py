"""Puts something new in the place of each match; lessons 02b, 04a and 04b teach with it.

Example:
    >>> silu = pattern_of(lambda x: x * torch.sigmoid(x))
    >>> call_silu = lambda match: graph_module.graph.call_function(F.silu, (match["x"],))
    >>> replace_all(graph_module, silu, call_silu)
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import fx

from course.lessons.patterns import LessonMatch, opened
from helpers.graphs.matching import Match
from helpers.graphs.patterns import OpPattern
from helpers.graphs.rewriting import rewrite

PROVENANCE = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")
VALUES = ("val", "tensor_meta")


class Replacement(NamedTuple):
    """What one replacement did: the names of the nodes that went, the nodes that came, and the node
    map of the match.
    """

    anchor: str
    removed: tuple[str, ...]
    inserted: tuple[fx.Node, ...]
    result: fx.Node
    nodes_map: dict[Any, Any]


def replace_all(
    graph_module: fx.GraphModule,
    pattern: OpPattern,
    build: Callable[[LessonMatch], fx.Node],
    filters: Sequence[Callable[[LessonMatch], None]] = (),
) -> list[Replacement]:
    """Replace every match of a pattern by what `build` makes, in place.

    The new nodes inherit the anchor's source line and its module stack, and the new result its fake
    value too, since it is the same. The matched nodes go, but for those that are still used.

    Args:
        build: makes the new nodes where the graph inserts, and returns the new result.
        filters: conditions on a match; each raises `Declined` if it is not to be replaced.

    Returns:
        One report for each match, in graph order.

    Raises:
        RuntimeError: `build` returned something else than a node. That match is as before, as after
            any other error.
    """
    replaced: list[Replacement] = []

    def rule(found: Match, **named: Any) -> str:
        match = opened(found)
        for check in filters:
            check(match)
        replaced.append(_replace(match, build))
        return f"replaced by {replaced[-1].result}"

    try:
        rewrite(graph_module, {pattern: rule})
    finally:
        graph_module.recompile()
    return replaced


def _replace(match: LessonMatch, build: Callable[[LessonMatch], fx.Node]) -> Replacement:
    graph, anchor, following = match.editor.graph, match.anchor, match.anchor.next
    try:
        with graph.inserting_before(following):
            result = build(match)
        if not isinstance(result, fx.Node):
            raise RuntimeError(
                f"the replacement of the match at {anchor} is {result}, and must be one node"
            )
    except BaseException:
        for node in reversed(_between(anchor, following)):
            graph.erase_node(node)
        raise
    inserted = _between(anchor, following)
    for node in inserted:
        copy_meta(anchor, node, PROVENANCE)
    if result in inserted:
        copy_meta(anchor, result, VALUES)
    anchor.replace_all_uses_with(result, delete_user_cb=lambda user: user not in inserted)
    unused = []
    for node in sorted(match.operations, reverse=True):
        if not node.users:
            unused.append(node.name)
            graph.erase_node(node)
    return Replacement(anchor.name, tuple(unused), inserted, result, match.nodes)


def _between(start: fx.Node, end: fx.Node) -> tuple[fx.Node, ...]:
    nodes = []
    while start.next is not end:
        start = start.next
        nodes.append(start)
    return tuple(nodes)


def copy_meta(old: fx.Node, new: fx.Node, keys: Sequence[str]) -> None:
    """Give a new node the notes of the old one that it lacks."""
    for key in keys:
        if key in old.meta:
            new.meta.setdefault(key, old.meta[key])
