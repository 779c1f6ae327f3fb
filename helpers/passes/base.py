"""The interface that every pass shares.

A pass gets a `torch.fx.GraphModule`, works on it in place, and says what it changed and what it
declined:

    requires(graph_module)    raise an error for a graph that the pass was not written for
    rewrite(node, editor)     for one node: match -> may I? -> rewrite
    run(graph_module)         offer every node to `rewrite`; returns an `Outcome`
    ensures(graph_module)     look at the resulting graph, and raise an error if a promise is broken

A `RulePass` has a table of patterns and rules instead of `rewrite` (graphs/rewriting.py).

A near miss of a fold or fusion is never left out silently: it is reported as declined, with its
reason. A pass never writes into a tensor that is already there, because others may read it: new
values go into new tensors.
"""

from typing import ClassVar

import torch
from torch import fx

from helpers.graphs import rewriting
from helpers.graphs.editing import Editor
from helpers.graphs.errors import Declined
from helpers.graphs.rewriting import Outcome, Rules


class Pass:
    """The base class of all passes.

    Attributes:
        name: what lists and reports call the pass.

    Example:
        >>> class KeepSigmoids(Pass):
        ...     name = "keep_sigmoids"
        ...     def rewrite(self, node, editor):
        ...         if node.target is torch.sigmoid:
        ...             raise Declined("I like it")
    """

    name: ClassVar[str]

    def requires(self, graph_module: fx.GraphModule) -> None:
        """Raise a `PassError` if this graph is not one that the pass can work on."""

    def rewrite(self, node: fx.Node, editor: Editor) -> str | None:
        """Rewrite one node and say what was done; None if the node is not a case for this pass.

        Raises:
            Declined: the node must stay as it is; the message says why.
        """
        raise NotImplementedError(
            f"pass {type(self).__name__} has no rewrite(): it must say what becomes of a node"
        )

    def run(self, graph_module: fx.GraphModule) -> Outcome:
        """Work on the graph in place: node by node, in order."""
        outcome = Outcome()
        editor = Editor(graph_module)
        for node in list(graph_module.graph.nodes):
            try:
                what = self.rewrite(node, editor)
            except Declined as reason:
                outcome.decline(node, reason)
                continue
            if what is not None:
                outcome.change(node, what)
        return outcome

    def ensures(self, graph_module: fx.GraphModule) -> None:
        """Raise a `PassError` if the resulting graph breaks a promise of this pass."""


class RulePass(Pass):
    """A pass that is a table of rules."""

    rules: ClassVar[Rules]

    def run(self, graph_module: fx.GraphModule) -> Outcome:
        """Rule by rule, in one walk each."""
        return rewriting.rewrite(graph_module, self.rules)


def check_same_form(first: fx.Node, second: fx.Node) -> None:
    """Decline unless the values of two nodes have one shape and dtype."""
    one, other = first.meta.get("val"), second.meta.get("val")
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        raise Declined("shapes are not known: trace with example inputs")
    both = f"{first} and {second} have different"
    if one.shape != other.shape:
        raise Declined(f"{both} shapes: {tuple(one.shape)} and {tuple(other.shape)}")
    if one.dtype != other.dtype:
        raise Declined(f"{both} dtypes: {one.dtype} and {other.dtype}")
