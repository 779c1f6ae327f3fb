"""Which parts of a graph can go to an engine: the largest groups of supported nodes that may be cut
out.

Support is asked node by node: `from_ops`, `from_patterns`, `covered_by_both`. torch's `chain`
combines supports to the nodes that all of them support, `any_chain` to those that at least one of
them does.

Cutting out a group is only allowed if no path leaves it and comes back: the group would need its
own result as input. `torch.fx`'s capability partitioner finds the groups, but counts no call of a
module or method as computation.

Example:
    >>> support = any_chain(from_ops([nn.Conv2d]), from_patterns(graph_module, [silu]))
    >>> partitions = propose(graph_module, support)
    >>> extract(graph_module, partitions, prefix="engine_")
"""

from collections.abc import Callable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import (  # noqa: F401  (offered here, too)
    OperatorSupportBase,
    any_chain,
    chain,
    create_op_support,
)
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from course.lessons.patterns import find
from helpers.graphs.operations import callee
from helpers.graphs.patterns import OpPattern

Partition = tuple[fx.Node, ...]


def from_ops(targets: Iterable[Any]) -> OperatorSupportBase:
    """Support for nodes that call one of `targets`: functions, method names or module classes."""
    targets = frozenset(targets)
    return create_op_support(lambda modules, node: callee(node) in targets)


def from_patterns(
    graph_module: fx.GraphModule,
    patterns: Iterable[OpPattern],
    covers: Callable[[Partition], bool] = bool,
) -> OperatorSupportBase:
    """Support for nodes of `graph_module` that belong to a whole match of one of the patterns."""
    matches = (
        m.operations
        for pattern in patterns
        for m in find(graph_module, pattern, allow_overlap=True).matches
    )
    covered = frozenset().union(*filter(covers, matches))
    return create_op_support(lambda modules, node: node in covered)


def covered_by_both(
    graph_module: fx.GraphModule, ops: OperatorSupportBase, patterns: Iterable[OpPattern]
) -> OperatorSupportBase:
    """Support for whole matches of which the operators support every node; an engine needs all of a
    pattern.
    """
    modules = dict(graph_module.named_modules())
    return from_patterns(
        graph_module, patterns, lambda m: all(ops.is_node_supported(modules, node) for node in m)
    )


def propose(
    graph_module: fx.GraphModule,
    support: OperatorSupportBase,
    *,
    allow_single_node: bool = False,
    non_compute: Sequence[Any] = (),
) -> list[Partition]:
    """The largest groups of supported nodes that can be cut out without a dependency cycle.

    One with a single computing node is left out, since handing one operation over is seldom worth
    its price, unless `allow_single_node`. Targets in `non_compute`, such as `operator.getitem` or
    "view", do not count as computing.
    """
    # The size filter of the base class is the part that overlooks module calls: it is switched off
    # and done below.
    everything = CapabilityBasedPartitioner(
        graph_module, support, allows_single_node_partition=True
    )
    found = [tuple(sorted(proposed.nodes)) for proposed in everything.propose_partitions()]
    counts = [sum(callee(node) not in non_compute for node in nodes) for nodes in found]
    return sorted(
        nodes
        for nodes, count in zip(found, counts, strict=True)
        if count >= (1 if allow_single_node else 2)
    )


def extract(
    graph_module: fx.GraphModule, partitions: Sequence[Partition], prefix: str = "part_"
) -> list[str]:
    """Move each group of nodes into a submodule of its own, in place, and return their names, the
    prefix with 0, 1, ...

    Groups that share a node, or would wait for each other, are refused, and nothing is changed.
    """
    check_acyclic(graph_module, partitions)
    names = [f"{prefix}{i}" for i in range(len(partitions))]
    for name in names:
        if hasattr(graph_module, name):
            raise ValueError(
                f"the network already has a {name!r}: choose another prefix than {prefix!r}"
            )
    fuse_by_partitions(graph_module, [dict.fromkeys(nodes) for nodes in partitions], prefix=prefix)
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return names


def check_acyclic(graph_module: fx.GraphModule, partitions: Sequence[Partition]) -> None:
    """Raise a `ValueError` unless the graph is still acyclic with each group seen as one node."""
    group: dict[fx.Node, Any] = {node: node for node in graph_module.graph.nodes}
    for nodes in map(tuple, partitions):
        for node in nodes:
            if group.get(node) is not node:
                raise ValueError(
                    f"{node} is not in this graph, or in two groups: each node may be in one group"
                )
            group[node] = nodes
    sorter = TopologicalSorter()
    for node, one in group.items():
        sorter.add(one, *({group[source] for source in node.all_input_nodes} - {one}))
    try:
        sorter.prepare()
    except CycleError as error:
        stuck = sorted(
            {
                f"{{{', '.join(map(str, part))}}}"
                for part in error.args[1]
                if isinstance(part, tuple)
            }
        )
        advice = "would wait for their own results: split them, or use propose()"
        raise ValueError(f"{' and '.join(stuck)} {advice}") from error
