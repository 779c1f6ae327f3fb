"""Subgraph creation: groups of nodes become submodules, and submodules become nodes again.

Example:
    >>> extract(graph_module, propose(graph_module, support), prefix="engine_")
    >>> inline(graph_module)
"""

import operator
from collections.abc import Sequence

import torch
from torch import fx, nn
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from helpers.graphs.match import attribute
from helpers.graphs.partitioner import Partition


class PartitionCycle(ValueError):
    """Groups of nodes that cannot be cut out: one would need its own result as input."""


def extract(graph_module: fx.GraphModule, partitions: Sequence[Partition], prefix: str = "part_") -> list[str]:
    """Move each group of nodes into a submodule of its own, in place.

    Args:
        graph_module: the graph that the groups are part of.
        partitions: groups that share no node.
        prefix: the submodules are called `<prefix>0`, `<prefix>1`, ...

    Returns:
        The names of the submodules.

    Raises:
        PartitionCycle: two groups share a node, or together they would wait for each other. Nothing is changed.
    """
    check_acyclic(graph_module, partitions)
    names = [f"{prefix}{i}" for i in range(len(partitions))]
    taken = next((name for name in names if hasattr(graph_module, name)), None)
    if taken is not None:
        raise ValueError(f"the network already has a {taken!r}: choose another prefix than {prefix!r}")
    fuse_by_partitions(graph_module, [dict.fromkeys(nodes) for nodes in partitions], prefix=prefix)
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return names


def check_acyclic(graph_module: fx.GraphModule, partitions: Sequence[Partition]) -> None:
    """Raise `PartitionCycle` unless the graph is still acyclic with each group seen as one node.

    Nodes are taken off in dependency order (Kahn's algorithm); what is left over at the end waits for itself.
    """
    group: dict[fx.Node, object] = {node: node for node in graph_module.graph.nodes}
    for index, nodes in enumerate(partitions):
        for node in nodes:
            if group.get(node) is not node:
                raise PartitionCycle(f"{node} is not in this graph, or in two groups: each node may be in one group")
            group[node] = index
    waits_for = {key: set() for key in group.values()}
    feeds = {key: set() for key in group.values()}
    for node, key in group.items():
        for source in node.all_input_nodes:
            if group[source] != key:
                waits_for[key].add(group[source])
                feeds[group[source]].add(key)
    ready = [key for key, sources in waits_for.items() if not sources]
    while ready:
        done = ready.pop()
        del waits_for[done]
        for key in feeds[done]:
            waits_for[key].discard(done)
            if not waits_for[key]:
                ready.append(key)
    stuck = [f"{{{', '.join(map(str, partitions[key]))}}}" for key in waits_for if isinstance(key, int)]
    if stuck:
        raise PartitionCycle(f"{' and '.join(stuck)} would wait for their own results: split them, or use propose()")


def inline(graph_module: fx.GraphModule) -> list[str]:
    """Put the nodes of every `GraphModule` that the graph calls in place of the call: the way back from `extract`.

    Modules and tensors get back the names they had, when those are free.

    Returns:
        The names of the submodules that are gone.
    """
    gone = []
    for call in graph_module.graph.find_nodes(op="call_module"):
        inner = graph_module.get_submodule(call.target)
        if isinstance(inner, fx.GraphModule) and _is_taken_apart(call, inner):
            _inline_one(graph_module, call, inner)
            gone.append(call.target)
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return gone


def _is_taken_apart(call: fx.Node, inner: fx.GraphModule) -> bool:
    """Several results can only be inlined where each user picks one of them."""
    several = not isinstance(inner.graph.output_node().args[0], fx.Node)
    return not several or all(user.target is operator.getitem for user in call.users)


def _inline_one(graph_module: fx.GraphModule, call: fx.Node, inner: fx.GraphModule) -> None:
    graph, made = graph_module.graph, {}
    made.update(zip(inner.graph.find_nodes(op="placeholder"), call.args, strict=True))
    with graph.inserting_before(call):
        for node in inner.graph.nodes:
            if node.op not in ("placeholder", "output"):
                made[node] = graph.node_copy(node, made.__getitem__)
                if node.op in ("call_module", "get_attr"):
                    made[node].target = _hand_back(graph_module, call.target, inner, node.target)
    result = fx.node.map_arg(inner.graph.output_node().args[0], made.__getitem__)
    if isinstance(result, fx.Node):
        call.replace_all_uses_with(result)
    for pick in list(call.users):
        pick.replace_all_uses_with(result[pick.args[1]])
        graph.erase_node(pick)
    graph.erase_node(call)


def _hand_back(graph_module: fx.GraphModule, name: str, inner: fx.GraphModule, path: str) -> str:
    """Hang what the submodule holds at `path` at the same place of the network, if nothing else is there."""
    *owners, leaf = path.split(".")
    part, place = attribute(inner, path), graph_module
    for owner in owners:
        if not hasattr(place, owner):
            place.add_module(owner, nn.Module())
        place = getattr(place, owner)
    if hasattr(place, leaf) and getattr(place, leaf) is not part:
        return f"{name}.{path}"
    if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
        place.register_buffer(leaf, part)
    else:
        setattr(place, leaf, part)
    return path
