"""Type and shape inference: every node learns the shape, dtype and memory layout of its result; nothing is computed.

The graph runs once on fake tensors, which have everything but data. Passes that move, convert or plan memory read the
answers from `node.meta["val"]`. `tracing.trace` leaves them there for a fresh graph; this pass renews them after a
change.

Example:
    >>> Passer(["type_inference"]).run(graph_module)
    >>> [(node.name, describe(node.meta["val"])) for node in graph_module.graph.nodes]
"""

from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from helpers.passes.errors import GraphMismatch, UnsupportedCase
from helpers.passes.folder import Pass, PassResult
from helpers.passes.registry import register


@register
class TypeInference(Pass):
    """Writes the fake result of every node into its `meta["val"]`, from those of the inputs on."""

    name = "type_inference"
    kind = "statement"

    def requires(self, graph_module: fx.GraphModule) -> None:
        """The inputs must be known; they cannot be inferred."""
        for node in graph_module.graph.find_nodes(op="placeholder"):
            if "val" not in node.meta:
                reason = 'has no fake value to start from: trace with example inputs, or set node.meta["val"]'
                raise UnsupportedCase(self.name, reason, node)

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Annotate every node; only what became known or changed counts as a change."""
        result = PassResult()
        inputs = [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")]
        mode = next((value.fake_mode for value in inputs if isinstance(value, FakeTensor)), None)
        mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
        tensors = (*graph_module.parameters(), *graph_module.buffers())
        device = next((tensor.device for tensor in tensors), torch.get_default_device())
        inference = _Inference(graph_module, result)
        with mode, torch.no_grad():
            inference.run(*(_on_device(value, mode, device) for value in inputs))
        return result

    def ensures(self, graph_module: fx.GraphModule) -> None:
        """No node was left out."""
        for node in graph_module.graph.nodes:
            if "val" not in node.meta:
                raise GraphMismatch(self.name, "was not annotated", node)


class _Inference(fx.Interpreter):
    def __init__(self, graph_module: fx.GraphModule, result: PassResult):
        super().__init__(graph_module)
        self._result = result

    def run_node(self, node: fx.Node) -> Any:
        try:
            value = super().run_node(node)
        except Exception as error:
            reason = f"does not accept what it gets: {error}. Look at the pass that made it or its operands"
            raise GraphMismatch("type_inference", reason, node) from error
        if "val" not in node.meta or describe(node.meta["val"]) != describe(value):
            self._result.change(node, describe(value))
        node.meta["val"] = value
        return value


def _on_device(value: Any, mode: FakeTensorMode, device: torch.device) -> Any:
    """A tensor on the meta device stands for one on the device of the network."""
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return value
    with mode:
        device = device if value.is_meta else value.device
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)


def describe(value: Any) -> str:
    """A value in one line: "float32 1x3x32x32 channels_last", or a tuple of such lines, or the plain value.

    Example:
        >>> describe(torch.zeros(2, 3))
        'float32 2x3'
    """
    if isinstance(value, (list, tuple)):
        return f"({', '.join(describe(item) for item in value)})"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    parts = [str(value.dtype).removeprefix("torch."), "x".join(map(str, value.shape)) or "scalar"]
    if not value.is_contiguous():
        packed = value.is_contiguous(memory_format=torch.channels_last)
        parts.append("channels_last" if packed else f"strides {'x'.join(map(str, value.stride()))}")
    return " ".join(parts)
