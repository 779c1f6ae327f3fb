"""Puts something else where a pattern matched, and reports what it put in.

The new nodes stand where the old result stood. They inherit its source line and its module stack, and the new results
inherit its fake value too, since they compute the same thing. Nodes that nobody needs any more are removed, and only
those that the match says vanish.

Example:
    >>> silu = traced(lambda x: x * torch.sigmoid(x))
    >>> for done in replace_all(graph_module, silu, by_function(F.silu)): print(done.inserted)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx, nn

from helpers.graphs.matching import Filter, Match, find
from helpers.graphs.patterns import Op, Pattern

# Makes the new nodes at the graph's insertion point and returns the new results, one for each anchor.
Build = Callable[[Match], fx.Node | tuple[fx.Node, ...]]

PROVENANCE = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")
VALUES = ("val", "tensor_meta", "example_value")


class ReplacementError(RuntimeError):
    """A replacement that would not compute what stood there before."""


@dataclass(frozen=True)
class Replacement:
    """What one replacement did.

    Attributes:
        anchors: names of the old results.
        removed: names of all the nodes that went.
        inserted: the nodes that were put in, in graph order.
        results: the nodes that took the place of the anchors.
        nodes_map: the node map of the match.
    """

    anchors: tuple[str, ...]
    removed: tuple[str, ...]
    inserted: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]
    nodes_map: dict[Any, Any]


def replace_all(
    graph_module: fx.GraphModule, pattern: Op | Pattern, build: Build, filters: Sequence[Filter] = ()
) -> list[Replacement]:
    """Replace every match of a pattern.

    Args:
        graph_module: changed in place, and recompiled.
        pattern: what to look for; matches that overlap an earlier one stay as they are.
        build: makes the new nodes for one match.
        filters: further conditions on a match, see `matching.find`.

    Returns:
        One report for each match, in graph order.
    """
    return replace_matches(find(graph_module, pattern, filters=filters).matches, build)


def replace_matches(matches: Sequence[Match], build: Build) -> list[Replacement]:
    """Replace several matches that one search found, and recompile; arguments and result as in `replace_all`."""
    renewed: dict[Any, Any] = {}  # an earlier replacement may have renewed what feeds a later match
    reports = []
    for match in matches:
        nodes = {part: renewed.get(node, node) if _is_node(node) else node for part, node in match.nodes.items()}
        values = tuple(renewed.get(node, node) if _is_node(node) else node for node in match.placeholders)
        report = replace_match(replace(match, nodes=nodes, placeholders=values), build)
        renewed.update(zip(match.anchors, report.results, strict=True))
        reports.append(report)
    if reports:
        matches[0].graph_module.recompile()
    return reports


def replace_match(match: Match, build: Build) -> Replacement:
    """Replace one match in place; the caller recompiles when all is done.

    Args:
        match: what `matching.find` found in the graph as it is now.
        build: makes the new nodes.

    Returns:
        What was put in and what went.

    Raises:
        ReplacementError: the match has no place where all inputs are known and no result is needed yet, or `build`
            returns another number of results than the pattern has. The graph is as before.
    """
    graph = match.graph_module.graph
    place = _insertion_point(match)
    following = place.next
    with graph.inserting_before(following):
        results = build(match)
    results = results if isinstance(results, tuple) else (results,)
    inserted = tuple(_between(place, following))
    if len(results) != len(match.anchors):
        for node in reversed(inserted):
            graph.erase_node(node)
        raise ReplacementError(f"the match at {match.anchor} has {len(match.anchors)} results, not {len(results)}")
    inherit(inserted, match.anchor)
    for anchor, result in zip(match.anchors, results, strict=True):
        result.meta.update({key: anchor.meta[key] for key in VALUES if key in anchor.meta})
        anchor.replace_all_uses_with(result, delete_user_cb=lambda user: user not in inserted)
    removed = []
    for node in sorted(match.vanishing, reverse=True):
        if not node.users:
            removed.append(node.name)
            graph.erase_node(node)
    return Replacement(tuple(map(str, match.anchors)), tuple(removed), inserted, results, match.nodes)


def inherit(nodes: Sequence[fx.Node], old: fx.Node) -> None:
    """Give new nodes the source line and the module stack of the node they stand for."""
    for node in nodes:
        node.meta.update({key: old.meta[key] for key in PROVENANCE if key in old.meta and key not in node.meta})


def by_function(function: Callable[..., Any] | nn.Module) -> Build:
    """The replacement that a Python function or module describes; its arguments are the pattern's values, in order.

    Submodules, parameters and buffers of `function` are shared with the network under fresh names.
    """
    example = fx.symbolic_trace(function)

    def build(match: Match) -> fx.Node | tuple[fx.Node, ...]:
        graph = match.graph_module.graph
        made: dict[fx.Node, Any] = {}
        values = iter(match.placeholders)
        for node in example.graph.nodes:
            if node.op == "placeholder":
                made[node] = next(values)
            elif node.op == "output":
                return fx.node.map_arg(node.args[0], made.__getitem__)
            else:
                made[node] = graph.node_copy(node, made.__getitem__)
                if node.op in ("call_module", "get_attr"):
                    made[node].target = _adopt(match.graph_module, example, node.target)
        raise ReplacementError("the replacement function returns nothing")

    return build


def _adopt(graph_module: fx.GraphModule, example: fx.GraphModule, path: str) -> str:
    """Hang what `example` holds at `path` on the network, under a name that is free there."""
    owner, _, name = path.rpartition(".")
    part = getattr(example.get_submodule(owner), name)
    stem = path.replace(".", "_")
    free, count = stem, 0
    while hasattr(graph_module, free):
        if getattr(graph_module, free) is part:
            return free
        count += 1
        free = f"{stem}_{count}"
    setattr(graph_module, free, part)
    return free


def _insertion_point(match: Match) -> fx.Node:
    """The node behind which the new ones go: the first anchor, or the last input where that comes later."""
    inside = {*match.vanishing, *match.anchors}
    inputs = {node for old in inside for node in old.all_input_nodes} - inside
    place = max((min(match.anchors), *inputs))
    needy = min((user for old in match.anchors for user in old.users if user not in inside), default=None)
    if needy is not None and needy <= place:
        raise ReplacementError(
            f"{needy} needs a result of the match at {match.anchor} before its input {place} is known: "
            "replace the results one by one"
        )
    return place


def _between(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    """The nodes between two. To look only there keeps the cost of a replacement the same in any graph."""
    while (first := first.next) is not last:
        yield first


def _is_node(value: Any) -> bool:
    return isinstance(value, fx.Node)
