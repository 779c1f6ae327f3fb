"""Which parts of a graph can go to an engine: the largest groups of supported nodes that may be cut out.

Support is asked node by node, and supports are combined:

    from_ops(targets)                nodes that call one of these functions, methods or module classes
    from_patterns(gm, patterns)      nodes that belong to a whole match of one of the patterns
    chain(a, b, ...)                 nodes that all of them support
    any_chain(a, b, ...)             nodes that at least one of them supports
    covered_by_both(gm, ops, pats)   whole matches of which the operator support takes every node

Cutting out a group is only allowed if no path leaves it and comes back: the group would need its own result as input.
`torch.fx`'s capability partitioner finds the groups. What it gets wrong is done here: it counts no module call and no
method call as computation, and so throws away good groups as too small.

Example:
    >>> partitions = propose(graph_module, any_chain(from_ops([nn.Conv2d]), from_patterns(graph_module, [silu])))
    >>> extract(graph_module, partitions, prefix="engine_")
    >>> inline(graph_module)
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain, chain, create_op_support
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from helpers.graphs.matching import attribute, find
from helpers.graphs.patterns import Op, Pattern

__all__ = ["any_chain", "chain", "covered_by_both", "extract", "from_ops", "from_patterns", "inline", "propose"]

Partition = tuple[fx.Node, ...]


def from_ops(targets: Iterable[Any]) -> OperatorSupportBase:
    """Support for the nodes that call one of `targets`: functions, method names or module classes."""
    targets = frozenset(targets)
    return create_op_support(lambda modules, node: _callee(modules, node) in targets)


def from_patterns(graph_module: fx.GraphModule, patterns: Iterable[Op | Pattern]) -> OperatorSupportBase:
    """Support for the nodes of `graph_module` that belong to a whole match of one of the patterns."""
    return _from_matches(match for pattern in patterns for match in _matched_nodes(graph_module, pattern))


def covered_by_both(
    graph_module: fx.GraphModule, ops: OperatorSupportBase, patterns: Iterable[Op | Pattern]
) -> OperatorSupportBase:
    """Support for the nodes that both the operators and the patterns cover.

    A match of which the operators miss one node counts for nothing: an engine that knows a pattern needs all of it.
    """
    modules = dict(graph_module.named_modules(remove_duplicate=False))
    return _from_matches(
        match
        for pattern in patterns
        for match in _matched_nodes(graph_module, pattern)
        if all(ops.is_node_supported(modules, node) for node in match)
    )


def propose(
    graph_module: fx.GraphModule,
    support: OperatorSupportBase,
    *,
    allow_single_node: bool = False,
    non_compute: Sequence[Any] = (),
) -> list[Partition]:
    """The largest groups of supported nodes that can be cut out without a dependency cycle.

    Args:
        graph_module: the graph; it is not changed.
        support: which nodes may be in a group.
        allow_single_node: keep groups with one computing node; handing one operation over is seldom worth its price.
        non_compute: targets that do not count as computation, such as `operator.getitem` or "view". A group of
            nothing else is never proposed.

    Returns:
        The groups, in the order of their first nodes; the nodes of each in graph order.
    """
    # The size filter of the base class is the part that overlooks module calls: it is switched off and done below.
    everything = CapabilityBasedPartitioner(graph_module, support, allows_single_node_partition=True)
    modules = dict(graph_module.named_modules(remove_duplicate=False))
    least = 1 if allow_single_node else 2
    partitions = []
    for proposed in everything.propose_partitions():
        nodes = tuple(sorted(proposed.nodes))
        if sum(_callee(modules, node) not in non_compute for node in nodes) >= least:
            partitions.append(nodes)
    return sorted(partitions, key=lambda nodes: nodes[0])


def _callee(modules: Mapping[str, nn.Module], node: fx.Node) -> Any:
    """What a node calls, as patterns name it: a function, a method name or a module class; None if it calls nothing."""
    if node.op == "call_module":
        return type(modules[node.target])
    return node.target if node.op in ("call_function", "call_method") else None


def _matched_nodes(graph_module: fx.GraphModule, pattern: Op | Pattern) -> Iterable[frozenset[fx.Node]]:
    """The operations of each match. A group may hand out an intermediate, but `find` asks that it has no other user."""
    for match in find(graph_module, pattern, allow_overlap=True).matches:
        yield frozenset(node for part, node in match.nodes.items() if isinstance(part, Op))


def _from_matches(matches: Iterable[frozenset[fx.Node]]) -> OperatorSupportBase:
    covered = frozenset().union(*matches)
    return create_op_support(lambda modules, node: node in covered)


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
