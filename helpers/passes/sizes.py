"""Sizes: numbers where the network fixes them, x.size(i) where the input does.

A network that was traced with one image must still take others, so only what a layer fixes becomes a number: the sizes
of parameters, the channels of a layer's output, and how many dimensions there are.
"""

import operator

from torch import fx, nn

from helpers.graphs.editing import Editor
from helpers.graphs.layers import CONVS, TRANSPOSED, rank
from helpers.graphs.opaque import opaque


def simplify(node: fx.Node, editor: Editor, name: str) -> None:
    """Simplify one node that asks for a size or a number of dimensions; any other stays. `name` is its operation."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node):
        return
    if node.target is getattr and node.args[1:] == ("shape",):
        editor.retarget(node, "call_method", "size", (source,), {})
    elif name == "dim" or (node.target is getattr and node.args[1:] == ("ndim",)):
        _to_number(node, editor, rank(source))
    elif len(node.args) == 2 and isinstance(node.args[1], int):
        if name in ("size", "sym_size"):
            _size(node, editor, source, node.args[1])
        elif node.target is operator.getitem and _is_whole_size(source):
            _size(node, editor, source.args[0], node.args[1])


def _is_whole_size(node: fx.Node) -> bool:
    return node.op == "call_method" and node.target == "size" and len(node.args) == 1 and not node.kwargs


def _size(node: fx.Node, editor: Editor, source: fx.Node, dim: int) -> None:
    tensor = editor.tensor(source)
    if tensor is not None:
        _to_number(node, editor, tensor.shape[dim])
    elif (channels := _channels(source, editor, dim)) is not None:
        _to_number(node, editor, channels)
    else:
        editor.retarget(node, "call_method", "size", (source, dim), {})


def _channels(source: fx.Node, editor: Editor, dim: int) -> int | None:
    """The size along the channel axis of a layer's output, which does not depend on the network's input."""
    module, dimensions = editor.module(source), rank(source)
    if dimensions is None or type(module) not in (*CONVS, *TRANSPOSED, nn.Linear) or opaque(module) is not None:
        return None
    if type(module) is nn.Linear:
        return module.out_features if dim % dimensions == dimensions - 1 else None
    axis = dimensions - 1 - len(module.kernel_size)
    return module.out_channels if dim % dimensions == axis else None


def _to_number(node: fx.Node, editor: Editor, number: int | None) -> None:
    if number is None:
        return
    for user in list(node.users):
        user.args = fx.map_arg(user.args, lambda value: number if value is node else value)
        user.kwargs = fx.map_arg(user.kwargs, lambda value: number if value is node else value)
