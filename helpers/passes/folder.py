"""The interface that every pass shares.

A pass gets a `torch.fx.GraphModule`, works on it in place, and says what it changed and what it
declined:

    requires(graph_module)    refuse, with an error, a graph that the pass was not written for
    run(graph_module)         match -> may I fold? -> fold; returns a `PassResult`
    ensures(graph_module)     look at the resulting graph, and raise if a promise was not kept

A pass that folds never leaves a case out in silence: each near miss is reported as declined, with
its reason. It never writes into a tensor that is already there, because somebody else may read it:
new values go into new tensors.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import fx


@dataclass
class PassResult:
    """What one run of one pass did to the graph, each as (node, what), and what it must not do, as
    (node, reason).
    """

    changed: list[tuple[str, str]] = field(default_factory=list)
    declined: list[tuple[str, str]] = field(default_factory=list)

    def change(self, node: fx.Node | str, what: str) -> None:
        """Note a change at `node`."""
        self.changed.append((str(node), what))

    def decline(self, node: fx.Node | str, reason: str) -> None:
        """Note that `node` was left as it is, and why."""
        self.declined.append((str(node), reason))


class Pass:
    """The base class of all passes.

    Attributes:
        name: under which lists and reports know the pass.

    Example:
        >>> class KeepAll(Pass):
        ...     name = "keep_all"
        ...     def run(self, graph_module):
        ...         return PassResult(declined=[(node.name, "I like it") for node in
        graph_module.graph.nodes])
    """

    name: ClassVar[str]

    def requires(self, graph_module: fx.GraphModule) -> None:
        """Raise a `PassError` if this graph is not one that the pass can work on."""

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Abstract: work on the graph in place."""
        raise NotImplementedError(
            f"pass {type(self).__name__} has no run(): it must work on the graph it is given"
        )

    def ensures(self, graph_module: fx.GraphModule) -> None:
        """Raise a `PassError` if the resulting graph breaks a promise of this pass."""
