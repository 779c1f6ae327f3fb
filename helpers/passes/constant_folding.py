"""What functions compute from parameters alone is computed once.

Not folded are calls of modules, random numbers, what writes into a tensor or is written to, and
what the network returns, or returns a view of: a caller that wrote into that would write into the
network.
"""

from typing import Any

import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.graphs.editing import Editor
from helpers.graphs.effects import is_pure
from helpers.graphs.errors import Declined
from helpers.graphs.operations import perform
from helpers.passes.base import Pass


class ConstantFolding(Pass):
    """Replaces each node whose inputs are all constants by its value; a whole subgraph of them
    collapses in one go.
    """

    name = "constant_folding"

    def rewrite(self, node: fx.Node, editor: Editor) -> str | None:
        """Compute the node, if only constants go into it."""
        sources = node.all_input_nodes
        if node.op not in ("call_function", "call_method"):
            return None
        if any(source.op != "get_attr" for source in sources):
            return None
        _check_constant(node, editor)
        value = _computed(node, editor)
        tensors = [editor.tensor(source) for source in sources]
        if 0 < sum(tensor.numel() for tensor in tensors) < value.numel():
            raise Declined(f"with its {value.numel()} numbers the network would be larger")
        has_slope = value.is_floating_point() or value.is_complex()
        if has_slope and any(tensor.requires_grad for tensor in tensors):
            value = nn.Parameter(value)  # a parameter was trained, so what replaces it is, too
        editor.replace(node, editor.put_tensor(value, before=node))
        return f"computed once: {tuple(value.shape)} {value.dtype}"


def _check_constant(node: fx.Node, editor: Editor) -> None:
    """Decline a node that has another value in each call, or may be written to."""
    if not is_pure(node):
        raise Declined("it is random, or has a side effect")
    if any(editor.storage.is_written(part) for part in (node, *node.all_input_nodes)):
        raise Declined("the graph writes into it")
    if editor.storage.is_returned(node):
        raise Declined("the network returns it, and the caller may write into it")


def _computed(node: fx.Node, editor: Editor) -> torch.Tensor:
    """What a node gives whose inputs are all constants; declined if it does not run alone."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), editor.tensor)
    try:
        with torch.no_grad(), _NoRandomNumbers():
            value = perform(node.target, args, kwargs)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise Declined(f"it cannot be run by itself: {error}") from error
    if not isinstance(value, torch.Tensor):
        raise Declined(f"it is a {type(value).__name__}, not a tensor")
    return value.detach().clone()


class _NoRandomNumbers(TorchDispatchMode):
    """Sees every ATen operation that a call makes inside, and stops it before it draws."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in function.tags:
            raise Declined(f"it draws random numbers ({function})")
        return function(*args, **(kwargs or {}))
