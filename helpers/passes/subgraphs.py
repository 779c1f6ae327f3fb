"""Passes that cut parts out of a graph for an engine, and put them back."""

import operator

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.operator_support import OperatorSupportBase

from helpers.graphs.partitioner import from_ops, propose
from helpers.graphs.subgraphs import extract, inline
from helpers.passes.folder import Pass, PassResult
from helpers.passes.registry import register

ONEDNN = (
    nn.Conv2d,
    nn.Linear,
    nn.ReLU,
    nn.ReLU6,
    nn.BatchNorm2d,
    F.relu,
    F.relu6,
    F.hardtanh,
    torch.relu,
    operator.add,
)


@register
class ExtractSubgraphs(Pass):
    """Moves the supported parts of the network into submodules.

    Args:
        support: which nodes may move; by default those that oneDNN has a kernel for.
        allow_single_node: move lone nodes too.
    """

    name = "extract_subgraphs"

    def __init__(self, support: OperatorSupportBase | None = None, allow_single_node: bool = False):
        self.support = support or from_ops(ONEDNN)
        self.allow_single_node = allow_single_node

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Propose partitions and extract them."""
        result = PassResult()
        partitions = propose(graph_module, self.support, allow_single_node=self.allow_single_node)
        described = [", ".join(map(str, nodes)) for nodes in partitions]
        for name, nodes in zip(extract(graph_module, partitions), described, strict=True):
            result.change(name, f"took {nodes} in")
        return result


@register
class InlineSubgraphs(Pass):
    """Puts the nodes of called graph modules back into the network."""

    name = "inline_subgraphs"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Inline every call to a graph module."""
        result = PassResult()
        for name in inline(graph_module):
            result.change(name, "was put back into the network")
        for call in graph_module.graph.find_nodes(op="call_module"):
            if isinstance(graph_module.get_submodule(call.target), fx.GraphModule):
                result.decline(call, "returns several results, and a user takes them all at once")
        return result
