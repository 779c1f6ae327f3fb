"""What a graph looked like at one moment: enough to print it, draw it, and compare it with a later moment.

Passes work in place, so the graph before a pass is gone after it. An outline is plain data that stays.

Example:
    >>> before = outline(graph_module)
    >>> Passer(["conv_bn_folding"]).run(graph_module)
    >>> compare(before, outline(graph_module))
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from helpers.graphs.effects import attribute, target_name

if TYPE_CHECKING:
    import pandas

SAME, MADE, CHANGED, REMOVED = "", "made", "changed", "removed"


@dataclass(frozen=True)
class Box:
    """One node: its name, what it does, the shape and dtype of its result, its operands, and sums over its weights."""

    name: str
    op: str
    what: str
    shape: str
    dtype: str
    inputs: tuple[str, ...]
    weights: tuple[float, ...] = ()


Outline = tuple[Box, ...]


def outline(graph_module: fx.GraphModule) -> Outline:
    """Take down the graph as it is now."""
    return tuple(_box(graph_module, node) for node in graph_module.graph.nodes)


def compare(before: Outline, after: Outline) -> tuple[dict[str, str], dict[str, str]]:
    """What happened to each node between two moments.

    A node is the same if it has the same name and does the same with the same weights, even if an operand of it was
    replaced: that shows at the operand.

    Returns:
        Node name -> "removed" or "" for the boxes before, and "made", "changed" or "" for those after.
    """
    old, new = {box.name: box for box in before}, {box.name: box for box in after}
    stayed = {name for name in old if name in new and new[name].op == old[name].op}
    same = {name for name in stayed if (new[name].what, new[name].weights) == (old[name].what, old[name].weights)}
    came = {name: SAME if name in same else CHANGED if name in stayed else MADE for name in new}
    return {name: SAME if name in stayed else REMOVED for name in old}, came


def table(graph: Outline) -> "pandas.DataFrame":
    """A graph as text, one line per node: columns node, op, what, shape, dtype, inputs."""
    import pandas as pd  # slow to load, and only tables need it

    lines = [(box.name, box.op, box.what, box.shape, box.dtype, ", ".join(box.inputs)) for box in graph]
    return pd.DataFrame(lines, columns=["node", "op", "what", "shape", "dtype", "inputs"])


def _box(graph_module: fx.GraphModule, node: fx.Node) -> Box:
    whose = node.args[0] if node.op == "output" and isinstance(node.args[0], fx.Node) else node
    value, what, tensors = whose.meta.get("val", whose.meta.get("tensor_meta")), node.op, []
    if node.op == "placeholder":
        what = "input"
    elif node.op == "get_attr":
        tensors, what = [attribute(graph_module, node.target)], f"constant {node.target}"
        value = tensors[0] if value is None else value
    elif node.op == "call_module":
        module = graph_module.get_submodule(node.target)
        tensors, what = module.state_dict().values(), _module(module)
    elif node.op != "output":
        number = (bool, int, float, torch.dtype)
        literals = [_literal(value) for value in node.args if isinstance(value, number)]
        literals += [f"{key}={_literal(value)}" for key, value in node.kwargs.items() if isinstance(value, number)]
        what = " ".join([target_name(node.target), *literals])
    known = hasattr(value, "shape") and hasattr(value, "dtype")
    shape = "x".join(map(str, value.shape)) if known else ""
    stored = (tensor for tensor in tensors if isinstance(tensor, torch.Tensor) and not tensor.is_meta)
    weights = tuple(tensor.detach().abs().double().sum().item() for tensor in stored)
    dtype = _literal(value.dtype) if known else ""
    return Box(node.name, node.op, what, shape, dtype, tuple(map(str, node.all_input_nodes)), weights)


def _module(module: nn.Module) -> str:
    """A module in a few characters; for the common layers the numbers that matter."""
    kind, bias = type(module).__name__, "" if getattr(module, "bias", None) is None else " +bias"
    if isinstance(module, nn.modules.conv._ConvNd):
        stride = "" if math.prod(module.stride) == 1 else f" /{module.stride[0]}"
        groups = "" if module.groups == 1 else f" g{module.groups}"
        groups = " depthwise" if 1 < module.groups == module.in_channels else groups
        kernel = "x".join(map(str, module.kernel_size))
        return f"{kind} {kernel}{stride} {module.in_channels}→{module.out_channels}{groups}{bias}"
    if isinstance(module, nn.Linear):
        return f"Linear {module.in_features}→{module.out_features}{bias}"
    return f"{kind} {module.num_features}" if isinstance(module, nn.modules.batchnorm._BatchNorm) else kind


def _literal(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).removeprefix("torch.")
