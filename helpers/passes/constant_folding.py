"""What depends on parameters alone is computed once.

Left to the graph: random numbers, whatever writes into a tensor or is written to, and results that
the network returns, or returns a view of (the caller could write into them, and would then write
into the network).
"""

from typing import Any

import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.graphs.editing import Editor
from helpers.graphs.effects import is_pure
from helpers.graphs.errors import MustStay
from helpers.passes.rewriter import NodeRewriter


class ConstantFolding(NodeRewriter):
    """Replaces each node whose inputs are all constants by its value; a whole subgraph of them
    collapses in one go.
    """

    name = "constant_folding"

    def visit(self, node: fx.Node, editor: Editor) -> str | None:
        """Compute the node, if only constants go into it."""
        constant = all(source.op == "get_attr" for source in node.all_input_nodes)
        if node.op not in ("call_function", "call_method") or not constant:
            return None
        value = _value(node, editor)
        if value.is_floating_point() and any(
            editor.tensor(one).requires_grad for one in node.all_input_nodes
        ):
            value = nn.Parameter(value)  # what is computed of something that trains, trains
        editor.replace(node, editor.put_tensor(value, f"{node.name}_constant", before=node))
        return f"computed once: {tuple(value.shape)} {value.dtype}"


def _value(node: fx.Node, editor: Editor) -> torch.Tensor:
    """The value of a node, or the reason why it has no value of its own."""
    if not is_pure(node):
        raise MustStay("it is random, or has a side effect")
    if any(editor.storage.is_written(part) for part in (node, *node.all_input_nodes)):
        raise MustStay("the graph writes into it")
    if editor.storage.is_returned(node):
        raise MustStay("the network returns it, and the caller may write into it")
    args, kwargs = fx.map_arg((node.args, node.kwargs), editor.tensor)
    try:
        with torch.no_grad(), _Watch():
            function = (
                getattr(type(args[0]), node.target) if node.op == "call_method" else node.target
            )
            value = function(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise MustStay(f"it cannot be run by itself: {error}") from error
    if not isinstance(value, torch.Tensor):
        raise MustStay(f"it is a {type(value).__name__}, not a tensor")
    if 0 < sum(editor.tensor(one).numel() for one in node.all_input_nodes) < value.numel():
        raise MustStay(f"with its {value.numel()} numbers the network would be larger")
    return value.detach().clone()


class _Watch(TorchDispatchMode):
    """Sees every ATen operation that a call really makes, and stops it before it draws a random
    number.
    """

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in function.tags:
            raise MustStay(f"it draws random numbers ({function})")
        return function(*args, **(kwargs or {}))
