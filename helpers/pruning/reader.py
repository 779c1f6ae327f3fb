"""Read a network for pruning: the graph of `graphs/recording.py`, recorded on the "meta" device.

A forward may compute with sizes and even decide by them. What it computes is in the graph. How it
decides is not: with another number of channels it could decide otherwise, which only reading it
again shows.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate

from helpers.graphs.editing import quick_copy
from helpers.graphs.operations import attribute
from helpers.graphs.recording import Recorder, stored_tensors
from helpers.graphs.tracing import as_tuple

# What a forward may ask about a tensor without computing with it.
ANSWERS = (bool, str, torch.dtype, torch.device, torch.layout)


class ReadError(ValueError):
    """The network cannot be read; says where and what to do. `position`, that of the node, and
    `cause`, in a few words, are for the trial cut.
    """

    def __init__(self, message: str, position: int = 0, cause: str = "") -> None:
        super().__init__(message)
        self.position = position
        self.cause = cause


def is_question(node: fx.Node) -> bool:
    """Whether a node only asks about one tensor: x.dtype, x.is_cuda."""
    sources = [n for n in node.all_input_nodes if isinstance(n.meta["val"], torch.Tensor)]
    return isinstance(node.meta["val"], ANSWERS) and len(sources) == 1


def is_aten(called: Any) -> bool:
    """Whether this is an operation of ATen, as torch.export records them."""
    return isinstance(called, torch._ops.OpOverload)


def name_of_node(node: fx.Node) -> str:
    """What errors and reports call a node: the layer's path, or the operation and a number."""
    return node.target if node.op == "call_module" else node.name


def content(node: fx.Node) -> Any:
    """The numbers of a constant that the forward has made; the network's own tensors have none."""
    if node.op != "get_attr":
        return None
    tensor = attribute(node.graph.owning_module, node.target)
    return None if tensor.is_meta else tensor.tolist()


def leaves(value: Any) -> list:
    """The values inside nested lists, tuples, slices and dicts, in order."""
    found: list = []
    map_aggregate(value, found.append)
    return found


def on_new_tensors(
    model: nn.Module, replacement: Callable[[str, torch.Tensor], torch.Tensor]
) -> nn.Module:
    """A copy with other tensors, each asked for once; a parameter's replacement becomes a
    parameter.
    """
    memo = quick_copy(model)
    for name, tensor in stored_tensors(model).items():
        if id(tensor) not in memo:
            new = replacement(name, tensor)
            if isinstance(tensor, nn.Parameter):
                new = nn.Parameter(new, tensor.requires_grad)
            memo[id(tensor)] = new
    try:
        return copy.deepcopy(model, memo)
    except RuntimeError as error:  # a weight that is computed, as the old weight_norm does
        cause = str(error).partition(". ")[0]
        raise ReadError(
            f"{type(model).__name__} cannot be copied: take out what keeps a tensor that was"
            f" computed with gradients, as the old weight_norm and caches do: {cause}"
        ) from error


def on_meta(model: nn.Module) -> nn.Module:
    """A copy in eval mode whose tensors have shapes and no content; nothing large is copied on the
    way.
    """
    return on_new_tensors(
        model, lambda _, tensor: torch.empty_like(tensor, device="meta", requires_grad=False)
    ).eval()


def read(root: nn.Module, example_inputs: Any) -> list[fx.Node]:
    """Read a network that is on the meta device, in the mode that it is in. The forward may store
    things in it.

    Returns:
        One node for each operation, with its value in `meta["val"]`.
    """
    inputs = as_tuple(example_inputs)
    if not inputs or not all(isinstance(x, torch.Tensor) for x in inputs):
        raise ReadError(
            "example_inputs: expected one tensor or a tuple of them, as the network's forward takes"
            " them"
        )
    name = type(root).__name__
    if "forward" in vars(root):
        raise ReadError(f"{name}: a forward that was set on it is not read; put it into a class")
    if root._forward_pre_hooks or root._forward_hooks:
        raise ReadError(f"{name}: its hooks are not read; wrap it in nn.Sequential")
    recorder = Recorder(inputs, strict=False)
    try:
        return [*recorder.record(root).nodes]
    except Exception as error:
        nodes = [*getattr(recorder, "graph", fx.Graph()).nodes]
        place = f"at node {name_of_node(nodes[-1])}" if nodes else "before its first node"
        cause = (str(error).strip() or repr(error)).splitlines()[0]
        what = f"{name} does not run without content on inputs of this shape and type"
        message = f"{what}, {place}: {cause}"
        if "meta" in cause:
            message += " (control flow that depends on values has to be rewritten)"
        raise ReadError(message, len(nodes) - 1, cause) from error
