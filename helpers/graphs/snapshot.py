"""A graph and its module tree as they were, to go back to when a pass fails.

Passes write new tensors instead of changing old ones, so it is enough to remember which object stood where: no tensor
is copied. A "statement" pass that writes into tensors must do so only after everything that can fail.
"""

from torch import fx


class Snapshot:
    """Remembers the nodes of a graph and what each module of the tree holds.

    Example:
        >>> before = Snapshot(graph_module)
        >>> graph_module.graph.erase_node(node)
        >>> before.restore()
    """

    def __init__(self, graph_module: fx.GraphModule):
        self._graph_module = graph_module
        self._codegen = graph_module.graph._codegen
        self._copies: dict[fx.Node, fx.Node] = {}
        self._graph = fx.Graph()
        result = self._graph.graph_copy(graph_module.graph, self._copies, return_output_node=True)
        if result is not None:
            value, output = result
            self._copies[output] = self._graph.output(value, output.type)
            self._copies[output].meta = dict(output.meta)
        self._tables = [
            (table, dict(table))
            for module in graph_module.modules()
            for table in (module._modules, module._parameters, module._buffers)
        ]

    def restore(self) -> None:
        """Put everything back. The graph is a copy: nodes that the caller still holds are no longer part of it."""
        for table, contents in self._tables:
            table.clear()
            table.update(contents)
        self._graph.set_codegen(self._codegen)
        self._graph_module.graph = self._graph
        self._graph_module.recompile()
