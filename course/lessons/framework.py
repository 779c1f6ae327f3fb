"""The pass framework that lesson 02 writes, for the lessons that go on with it."""

from types import SimpleNamespace

import torch
from torch import fx, nn

from helpers.graphs.effects import is_pure
from helpers.graphs.errors import Declined


class UnsupportedCase(ValueError):
    """The graph is fine, but this pass cannot work on it."""


class GraphMismatch(ValueError):
    """The graph is not what it should be."""


def replace(node: fx.Node, other: fx.Node) -> str:
    """Let every user of the node use something else, and erase the node."""
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)
    return f"replaced by {other}"


class Pass:
    """Offers each node to `rewrite`, and notes what was changed and what was declined."""

    name, kind, targets, backward = "", "program", (), False

    def requires(self, graph_module: fx.GraphModule) -> None:
        """Raise Declined if there is nothing to do, UnsupportedCase if this pass cannot do it."""

    def rewrite(self, node: fx.Node, graph_module: fx.GraphModule) -> str | None:
        """Return what was changed; nothing if the pattern does not match.

        Raise Declined if it may not be.
        """

    def ensures(self, graph_module: fx.GraphModule) -> None:
        """Raise GraphMismatch if a promise was not kept."""

    def run(self, graph_module: fx.GraphModule) -> SimpleNamespace:
        """Go through all nodes once."""
        result = SimpleNamespace(changed=[], declined=[])
        for node in list(graph_module.graph.nodes)[:: -1 if self.backward else 1]:
            try:
                if what := self.rewrite(node, graph_module):
                    result.changed.append((node.name, what))
            except Declined as reason:
                result.declined.append((node.name, str(reason)))
        return result


class DropDropout(Pass):
    """Dropout in inference does nothing."""

    name = "drop_dropout"

    def requires(self, graph_module: fx.GraphModule) -> None:
        """There is one, and it is a layer."""
        graph = graph_module.graph
        if graph.find_nodes(op="call_function", target=torch.ops.aten.dropout.default):
            raise UnsupportedCase("dropout is an operator here, and this pass knows only the layer")
        if not any(is_dropout(graph_module, node) for node in graph.nodes):
            raise Declined("there is no dropout in this graph: nothing to do")

    def rewrite(self, node: fx.Node, graph_module: fx.GraphModule) -> str | None:
        """Remove it unless it is in training mode."""
        if is_dropout(graph_module, node):  # match
            if graph_module.get_submodule(node.target).training:  # allowed?
                raise Declined("in training mode it does something")
            return replace(node, node.args[0])
        return None


def is_dropout(graph_module: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node calls a layer of dropout."""
    if node.op != "call_module":
        return False
    return isinstance(graph_module.get_submodule(node.target), nn.Dropout)


class DeadCode(Pass):
    """Nodes that nothing uses, from the last to the first: users come before what they use."""

    name, backward = "dead", True

    def rewrite(self, node: fx.Node, graph_module: fx.GraphModule) -> str | None:
        """Remove one that only computes its result: relu_, += and random numbers stay."""
        if node.op.startswith(("call", "get")) and not node.users:
            if not is_pure(node):
                raise Declined("nothing uses its result, but it does more than compute one")
            graph_module.graph.erase_node(node)
            return "nothing uses it"
        return None
