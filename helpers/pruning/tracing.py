"""Read a network: its operations in the order in which they run, and the shape of every value."""

from typing import Any

import torch
from torch import nn

from helpers.graphs.module_tree import modules_by_path
from helpers.pruning.recorder import Node, Recorder
from helpers.pruning.stored import with_tensors


class TraceError(ValueError):
    """The network cannot be read; says where and what to do."""

    position: int = 0  # of the node that fails to run
    cause: str = ""  # in one line


def as_tuple(example_inputs: Any) -> tuple:
    """A lone tensor is accepted wherever a tuple of inputs is expected."""
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    if not inputs or not all(isinstance(x, torch.Tensor) for x in inputs):
        raise TraceError(
            "example_inputs: expected one tensor or a tuple of tensors, as the network's forward takes them"
        )
    return inputs


def on_meta(model: nn.Module) -> nn.Module:
    """A copy in eval mode whose tensors have shapes and no content; nothing large is copied on the way."""
    root = with_tensors(model, lambda name, tensor: torch.empty_like(tensor, device="meta", requires_grad=False))
    return root.eval() if any(module.training for module in modules_by_path(root, each_once=True).values()) else root


def trace(root: nn.Module, example_inputs: Any) -> list[Node]:
    """Read a network that is on the meta device; a forward may leave things in it.

    Args:
        root: the network, in the mode in which it is to be read.
        example_inputs: one tensor or a tuple, only their shapes and types matter.

    Returns:
        One node for each operation.
    """
    recorder, inputs = Recorder(root), as_tuple(example_inputs)
    try:
        recorder.run(inputs)
    except Exception as error:
        raise failed(type(root).__name__, recorder.nodes, error) from error
    return recorder.nodes


def failed(network: str, nodes: list[Node], error: Exception) -> TraceError:
    """The error to raise, with what the trial cut wants to know."""
    cause = (str(error).strip() or repr(error)).splitlines()[0]
    remedy = " (control flow that depends on values has to be rewritten)" if "meta" in cause else ""
    result = TraceError(
        f"{network} does not run without content on inputs of this shape and type, at node {nodes[-1].name}: {cause}"
        f"{remedy}"
    )
    result.position, result.cause = len(nodes) - 1, cause
    return result
