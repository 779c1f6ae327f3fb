"""Puts something else where a pattern matched, and reports what it put in.

The new nodes stand where the old result stood. They inherit its source line and its module stack, and the new result
inherits its fake value too, since it is the same. Nodes that nobody needs any more are removed, and only those that the
match says vanish.

Example:
    >>> silu = traced(lambda x: x * torch.sigmoid(x))
    >>> for done in replace_all(graph_module, silu, by_function(F.silu)): print(done.inserted)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx, nn

from helpers.graphs.editing import free_name
from helpers.graphs.effects import attribute
from helpers.graphs.matching import find
from helpers.graphs.patterns import Filter, Match, Op

# Makes the new nodes at the graph's insertion point and returns the new result.
Build = Callable[[Match], fx.Node]

PROVENANCE = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")
VALUES = ("val", "tensor_meta", "example_value")


class ReplacementError(RuntimeError):
    """A replacement that would not compute what stood there before."""


@dataclass(frozen=True)
class Replacement:
    """What one replacement did.

    Attributes:
        anchor: name of the old result.
        removed: names of all the nodes that went.
        inserted: the nodes that were put in, in graph order.
        result: the node that took the place of the anchor.
        nodes_map: the node map of the match.
    """

    anchor: str
    removed: tuple[str, ...]
    inserted: tuple[fx.Node, ...]
    result: fx.Node
    nodes_map: dict[Any, Any]


def replace_all(
    graph_module: fx.GraphModule, pattern: Op, build: Build, filters: Sequence[Filter] = ()
) -> list[Replacement]:
    """Replace every match of a pattern.

    Args:
        graph_module: changed in place, and recompiled.
        pattern: what to look for; matches that overlap an earlier one stay as they are.
        build: makes the new nodes for one match.
        filters: further conditions on a match, see `matching.find`.

    Returns:
        One report for each match, in graph order.

    Raises:
        ReplacementError: `build` returned something else than a node. That match is as before.
    """
    renewed: dict[fx.Node, fx.Node] = {}  # an earlier replacement may have renewed what feeds a later match
    reports = []
    for match in find(graph_module, pattern, filters=filters).matches:
        nodes = {
            part: renewed.get(node, node) if isinstance(node, fx.Node) else node for part, node in match.nodes.items()
        }
        reports.append(_replace_one(replace(match, nodes=nodes), build))
        renewed[match.anchor] = reports[-1].result
    graph_module.recompile()
    return reports


def _replace_one(match: Match, build: Build) -> Replacement:
    graph, anchor, following = match.graph_module.graph, match.anchor, match.anchor.next
    with graph.inserting_before(following):
        result = build(match)
    inserted, node = (), anchor
    while (node := node.next) is not following:
        inserted += (node,)
    if not isinstance(result, fx.Node):
        for node in reversed(inserted):
            graph.erase_node(node)
        raise ReplacementError(f"the replacement of the match at {anchor} is {result}, and must be one node")
    for node in inserted:
        node.meta.update({key: anchor.meta[key] for key in PROVENANCE if key in anchor.meta and key not in node.meta})
    if result in inserted:
        result.meta.update({key: anchor.meta[key] for key in VALUES if key in anchor.meta})
    anchor.replace_all_uses_with(result, delete_user_cb=lambda user: user not in inserted)
    removed = []
    for node in sorted(match.vanishing, reverse=True):
        if not node.users:
            removed.append(node.name)
            graph.erase_node(node)
    return Replacement(anchor.name, tuple(removed), inserted, result, match.nodes)


def by_function(function: Callable[..., Any] | nn.Module) -> Build:
    """The replacement that a Python function or module describes; its arguments have the names of the pattern's values.

    Submodules, parameters and buffers of `function` are shared with the network under fresh names.
    """
    example = fx.symbolic_trace(function)

    def build(match: Match) -> fx.Node:
        network = match.graph_module
        made = {node: match[node.target] for node in example.graph.find_nodes(op="placeholder")}
        result = network.graph.graph_copy(example.graph, made)
        for old, new in made.items():
            if old.op in ("call_module", "get_attr"):
                part = attribute(example, old.target)
                new.target = free_name(network, old.target.replace(".", "_"), part)
                setattr(network, new.target, part)
        return result

    return build
