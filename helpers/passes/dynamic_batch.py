"""A graph that was recorded with one batch size learns to take any.

`torch.export` writes the sizes that it saw into the graph: `view(x, [8, 1280])` works for batches of 8 and no others.
The first number of such a size list is replaced by a question, `x.size(0)`. How do we know that the 8 is the batch and
not an 8 of its own? The operand has the batch in front and so has the result; and the finished graph is run (on tensors
without data) with another batch size, and must give results of that size, from every node that gave batches before.

Example:
    >>> graph_module = tracing.trace(model, (torch.zeros(8, 3, 32, 32),), route="export")
    >>> Passer(["dynamic_batch"]).run(graph_module)
    >>> graph_module(torch.randn(3, 3, 32, 32)).shape[0]
    3
"""

import operator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers.graphs.replacing import inherit
from helpers.passes.errors import CheckFailed, UnsupportedCase
from helpers.passes.folder import Pass, PassResult
from helpers.passes.registry import register

aten = torch.ops.aten
# Operations whose second argument, or whose arguments from the second on, are the sizes of the result.
SIZED = (
    *(aten.view.default, aten.reshape.default, aten.expand.default, aten._unsafe_view.default),
    *(torch.reshape, "view", "reshape", "expand"),
)


@register
class DynamicBatch(Pass):
    """Replaces the recorded batch size by the one that comes in."""

    name = "dynamic_batch"

    def requires(self, graph_module: fx.GraphModule) -> None:
        """Shapes must be known, and the recorded batch must be more than one: any axis may be 1 long."""
        batch = _batch(graph_module)
        if batch is None or batch == 1:
            reason = (
                f"was recorded with a batch of {batch}: trace with two images or more, so that it can be told apart"
            )
            raise UnsupportedCase(self.name, reason, next(iter(graph_module.graph.nodes)))

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Replace the size in front, wherever operand and result both have the batch in front."""
        result, batch = PassResult(), _batch(graph_module)
        for node in list(graph_module.graph.nodes):
            if node.target not in SIZED or _sizes(node)[:1] != (batch,):
                continue
            source = node.args[0]
            if _first(source) != batch or _first(node) != batch:
                result.decline(node, f"has {batch} in front of its sizes, but its operand has {_first(source)}")
                continue
            with graph_module.graph.inserting_before(node):
                size = graph_module.graph.call_method("size", (source, 0))
            inherit([size], node)
            size.meta["val"] = batch
            sizes = (size, *_sizes(node)[1:])
            packed = isinstance(node.args[1], (list, tuple))
            node.args = (source, list(sizes)) if packed else (source, *sizes)
            result.change(node, f"asks for the batch size instead of assuming {batch}")
        return result

    def ensures(self, graph_module: fx.GraphModule) -> None:
        """With one image more, every node that had the batch in front has one more there, and nothing else differs."""
        batch = _batch(graph_module)
        seen = _Shapes(graph_module, batch + 1).shapes
        for node, shape in seen.items():
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor) or node.op == "get_attr":
                continue
            expected = tuple(value.shape)
            grown = (batch + 1, *expected[1:]) if expected[:1] == (batch,) else None
            if shape not in (expected, grown) or (node.op == "placeholder" and shape != grown):
                reason = f"has shape {shape} for a batch of {batch + 1}, and {expected} for {batch}"
                raise CheckFailed(self.name, reason, node)


class _Shapes(fx.Interpreter):
    """Runs a graph without data at another batch size and keeps all shapes."""

    def __init__(self, graph_module: fx.GraphModule, batch: int):
        super().__init__(graph_module)
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        tensors = (*graph_module.parameters(), *graph_module.buffers())
        device = next((tensor.device for tensor in tensors), torch.get_default_device())
        with mode, torch.no_grad():
            values = [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")]
            self.run(*(torch.empty(batch, *value.shape[1:], dtype=value.dtype, device=device) for value in values))

    def run_node(self, node: fx.Node) -> Any:
        try:
            value = super().run_node(node)
        except Exception as error:
            raise CheckFailed("dynamic_batch", f"does not take another batch size: {error}", node) from error
        if isinstance(value, torch.Tensor):
            self.shapes[node] = tuple(value.shape)
        return value


def _batch(graph_module: fx.GraphModule) -> int | None:
    """The recorded batch size: the first axis of the first input."""
    inputs = graph_module.graph.find_nodes(op="placeholder")
    return _first(next(iter(inputs))) if inputs else None


def _first(node: Any) -> int | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return operator.index(value.shape[0]) if isinstance(value, torch.Tensor) and value.dim() else None


def _sizes(node: fx.Node) -> tuple[Any, ...]:
    rest = node.args[1:]
    return tuple(rest[0]) if rest and isinstance(rest[0], (list, tuple)) else tuple(rest)
