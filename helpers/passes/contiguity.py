"""Who counts on the order of numbers in memory finds the order that the network was written for.

The convolution kernels leave their result in channels_last memory, where y.view(n, -1) is an error and y.flatten(1) a
copy instead of a view. So where the original value was contiguous,

    a view of it                               becomes a reshape
    a view of it that somebody writes into,
    its strides, and a result of the network   get it in contiguous memory again
"""

import torch
from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.effects import is_fresh, op_name
from helpers.passes import registry
from helpers.passes.folder import Pass, PassResult
from helpers.passes.fused_ops import conv_act

RESHAPES = {"view": "reshape", torch.ops.aten.view.default: torch.ops.aten.reshape.default}
# By name: these see the strides; the others return a view or a copy depending on them.
SEES_STRIDES = frozenset({"view", "view_as", "_unsafe_view", "as_strided", "stride", "is_contiguous"})
VIEW_OR_COPY = frozenset({"reshape", "reshape_as", "flatten", "contiguous", "ravel"})


@registry.register
class Contiguity(Pass):
    """Undoes channels_last memory where it would be noticed."""

    name = "contiguity"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Look at each node that may notice; there is none where no fused convolution runs, or all is channels_last."""
        result, editor = PassResult(), Editor(graph_module)
        nodes = list(graph_module.graph.nodes)
        if not any(node.target is conv_act for node in nodes) or _is_channels_last(graph_module):
            return result
        for node in nodes:
            name = op_name(node) if node.op in ("call_function", "call_method") else node.op
            is_shared = name in SEES_STRIDES | VIEW_OR_COPY and editor.storage.is_written(node)
            if node.target in RESHAPES and not is_shared:
                _reshape(node, editor, result)
            elif is_shared or name in SEES_STRIDES or name == "output":
                for source in node.all_input_nodes:
                    _straighten(source, editor, result)
        return result


def _reshape(node: fx.Node, editor: Editor, result: PassResult) -> None:
    """A view as another dtype stays: it does not change the order of axes."""
    if not isinstance(node.args[1], torch.dtype) and _has_order(node.args[0]):
        editor.retarget(node, node.op, RESHAPES[node.target], node.args, node.kwargs)
        result.change(node, "the view became a reshape, which takes any memory format")


def _straighten(node: fx.Node, editor: Editor, result: PassResult) -> None:
    """Put the tensor that a value is a view of into contiguous memory, right after it is made."""
    if not node.op.startswith("call_") or _straightens(node):
        return
    if not is_fresh(node, editor.module(node)):
        for source in node.all_input_nodes:
            _straighten(source, editor, result)
    elif _has_order(node) and not all(_straightens(user) for user in node.users):
        with node.graph.inserting_after(node):
            straight = node.graph.call_method("contiguous", (node,))
        straight.meta.update(node.meta)
        node.replace_all_uses_with(straight, delete_user_cb=lambda user: user is not straight)
        result.change(node, "its result is put into contiguous memory")


def _straightens(node: fx.Node) -> bool:
    return node.op in ("call_method", "call_function") and op_name(node) == "contiguous"


def _is_channels_last(graph_module: fx.GraphModule) -> bool:
    """Whether the network's images or weights come in channels_last memory, so that it knows no other."""
    inputs = [node.meta.get("val") for node in graph_module.graph.nodes if node.op == "placeholder"]
    tensors = [value for value in (*inputs, *graph_module.parameters()) if isinstance(value, torch.Tensor)]
    return any(
        value.dim() == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)
        for value in tensors
    )


def _has_order(node: fx.Node) -> bool:
    """Whether the value was contiguous in the network as it was traced, and may have become something else."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() < 3 or not value.is_contiguous():
        return False
    return value.dim() != 4 or not value.is_contiguous(memory_format=torch.channels_last)
