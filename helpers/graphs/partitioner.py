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
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import fx, nn
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain, chain, create_op_support

from helpers.graphs.matching import find
from helpers.graphs.module_tree import modules_by_path
from helpers.graphs.patterns import Op, Pattern

__all__ = ["any_chain", "chain", "covered_by_both", "from_ops", "from_patterns", "propose"]

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
    modules = modules_by_path(graph_module)
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
    modules = modules_by_path(graph_module)
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
