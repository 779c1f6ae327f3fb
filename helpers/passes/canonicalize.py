"""One form for each operation, so that the passes that follow have one thing to look for.

    convolution, batch norm, linear   a call of an ordinary nn module (layers.py)
    activations, pooling, ...         a call of one function (operations.py)
    + - * /                           Python's operators
    x.shape[1], x.size(1), x.ndim     numbers, where the network fixes them; x.size(i) otherwise

Writing the same thing differently never changes an answer, so in-place activations stay in place.
In-place arithmetic becomes ordinary arithmetic when nobody else can see the difference: its operand
is a new tensor that only it uses.
"""

from typing import Any

import torch
from torch import fx, nn

from helpers.graphs import effects, operations
from helpers.graphs.editing import Editor
from helpers.graphs.errors import MustStay
from helpers.graphs.layers import channel_axis, convert, opaque, output_channels, rank
from helpers.graphs.operations import CONVS, FOLDABLE, REQUIRED, TRANSPOSED
from helpers.passes.rewriter import NodeRewriter


class Canonicalize(NodeRewriter):
    """Brings module calls, functions, methods and ATen operators to one form."""

    name = "canonicalize"

    def visit(self, node: fx.Node, editor: Editor) -> str | None:
        """Rewrite a node that has a canonical form and is not yet in it."""
        before, readers = node.target, len(node.users)
        if node.op == "get_attr":
            editor.forget([node])
        elif node.op == "call_module":
            _module(node, editor)
        elif isinstance(node.target, torch._ops.HigherOrderOperator):
            raise MustStay(
                f"{node.target.name()} runs a graph of its own, into which no pass looks"
            )
        elif node.op in ("call_function", "call_method") and effects.is_torch(node):
            _function(node, editor)
        if node.target is not before:
            return f"{_spelling(before)} became {_spelling(node.target)}"
        return (
            None
            if len(node.users) == readers
            else "a number stands for it, or others read what it returns"
        )


def _spelling(target: Any) -> str:
    return (
        target if isinstance(target, str) else fx.node._get_qualified_name(target).removeprefix("_")
    )


def _module(node: fx.Node, editor: Editor) -> None:
    module = editor.module(node)
    reason = opaque(module)
    if reason is not None:
        if isinstance(module, FOLDABLE):
            raise MustStay(reason)
        return
    if (
        len(node.args) == 0
        and "input" in node.kwargs
        and type(module).__module__.startswith("torch.nn.")
    ):
        node.args, node.kwargs = (
            (node.kwargs["input"],),
            {k: v for k, v in node.kwargs.items() if k != "input"},
        )
    name = operations.operation(node)
    name = operations.SYNONYMS.get(name, name)
    if name in operations.OPERATIONS and len(node.args) == 1 and not node.kwargs:
        attributes = {
            key: operations.ATTRIBUTES.get(key, key)
            for key in operations.OPERATIONS[name].arguments
        }
        settings = {
            key: getattr(module, its) for key, its in attributes.items() if hasattr(module, its)
        }
        _write(node, editor, name, node.args[0], settings)


def _function(node: fx.Node, editor: Editor) -> None:
    name = operations.operation(node)
    name = operations.SYNONYMS.get(name, name)
    in_place = operations.is_in_place(node.target)
    if name in operations.LAYERS:
        convert(node, editor)
    elif name in operations.ARITHMETIC:
        if in_place:
            _read_result_instead(node)
        if not in_place or _only_it_can_see(node, editor):
            _arithmetic(node, editor, name)
    elif (form := operations.OPERATIONS.get(name)) is not None:
        names = ["input", *form.arguments]
        settings = operations.by_name(node, names) | ({"inplace": True} if in_place else {})
        required = {
            "input",
            *(key for key, default in form.arguments.items() if default is REQUIRED),
        }
        if required <= settings.keys() <= set(names) and len(node.args) <= len(names):
            _write(node, editor, name, settings.pop("input"), settings)
    elif node.target is getattr or name in ("size", "sym_size", "dim", "getitem"):
        _simplify_size(node, editor, name)


def _write(node: fx.Node, editor: Editor, name: str, first: Any, settings: dict[str, Any]) -> None:
    """Call the form's function, required settings by position, the others by name when they are not
    the default.
    """
    if name == "hardtanh" and settings.get("min_val", -1) == 0 and settings.get("max_val", 1) == 6:
        name, settings = "relu6", {"inplace": settings.get("inplace", False)}
    form = operations.OPERATIONS[name]
    optional = {key: default for key, default in form.arguments.items() if default is not REQUIRED}
    args = [settings[key] for key in form.arguments if key not in optional]
    given = {key: settings[key] for key in optional if key in settings}
    kwargs = {
        key: value for key, value in given.items() if value not in (optional[key], [], ())
    }  # ATen's "no stride"
    editor.retarget(node, "call_function", form.function, (first, *args), kwargs)


def _arithmetic(node: fx.Node, editor: Editor, name: str) -> None:
    """x + y for any spelling of it.

    `alpha`, the factor of the second operand, becomes a multiplication of its own.
    """
    given = operations.by_name(node, ("input", "other"))
    alpha = given.pop("alpha", 1)
    if given.keys() != {"input", "other"} or len(node.args) > 2:
        return
    operands = [given["input"], given["other"]]
    if alpha != 1:
        tensor = editor.tensor(operands[1])
        if name == "rsub" or isinstance(alpha, fx.Node):
            return
        like = operands[0].meta.get("val") if isinstance(operands[0], fx.Node) else None
        if tensor is not None and tensor.dtype != getattr(like, "dtype", None):
            return  # the product has the type of the sum
        if tensor is not None and not editor.storage.is_tensor_written(tensor):
            operands[1] = editor.put_tensor(
                tensor.detach() * alpha, f"{node.name}_constant", before=node
            )
        elif isinstance(operands[1], (int, float)):
            operands[1] *= alpha
        else:
            return
    function = operations.ARITHMETIC[name]
    editor.retarget(
        node, "call_function", function, tuple(operands[::-1] if name == "rsub" else operands), {}
    )


def _read_result_instead(node: fx.Node) -> None:
    """Whoever reads x after x += 1 gets what += returns, which is x itself."""
    target = node.args[0] if node.args else None
    if isinstance(target, fx.Node) and isinstance(target.meta.get("val"), torch.Tensor):
        target.replace_all_uses_with(node, delete_user_cb=lambda user: user > node)


def _only_it_can_see(node: fx.Node, editor: Editor) -> bool:
    """Whether an in-place operation could as well make a new tensor, which must have the dtype of
    the old one.
    """
    if len(node.args) != 2 or not isinstance(node.args[0], fx.Node):
        return False
    target, other = node.args
    readers = [target, *(user for user in target.users if user is not node)]
    if any(
        reader > node or not effects.is_fresh(reader, editor.module(reader)) for reader in readers
    ):
        return False
    before, other = (
        value.meta.get("val") if isinstance(value, fx.Node) else value for value in (target, other)
    )
    known = isinstance(before, torch.Tensor) and isinstance(other, (torch.Tensor, int, float))
    return known and torch.result_type(before, other) == before.dtype


def _simplify_size(node: fx.Node, editor: Editor, name: str) -> None:
    """Numbers where the network fixes them, x.size(i) where the input does; `name` is the node's
    operation.

    A network that was traced with one image must still take others, so only what a layer fixes
        becomes a number: the
    sizes and dimensions of parameters, and the channels of a layer's output.
    """
    source, asked = (*node.args, None, None)[:2]
    if not isinstance(source, fx.Node) or len(node.args) > 2:
        return
    number, is_size = (
        None,
        source.op == "call_method" and source.target == "size" and len(source.args) == 1,
    )
    if node.target is getattr and asked == "shape":
        editor.retarget(node, "call_method", "size", (source,), {})
    elif name == "dim" or (node.target is getattr and asked == "ndim"):
        tensor = editor.tensor(source)  # layers take images with and without a batch
        number = None if editor.storage.is_tensor_written(tensor) else getattr(tensor, "ndim", None)
    elif isinstance(asked, int) and (
        name in ("size", "sym_size") or (is_size and not source.kwargs)
    ):
        if name == "getitem":
            whole, source = source, source.args[0]
            if editor.storage.is_written(source) and any(
                whole < one < node for one in editor.storage.writers
            ):
                return  # its shape may change in between
        number = _fixed_size(source, asked, editor)
        if number is None:
            editor.retarget(node, "call_method", "size", (source, asked), {})
    if number is not None:
        for user in list(node.users):
            user.args, user.kwargs = fx.map_arg(
                (user.args, user.kwargs), lambda one: number if one is node else one
            )


def _fixed_size(source: fx.Node, dim: int, editor: Editor) -> int | None:
    """The size of a parameter, or along the channel axis of a layer's output: no input of the
    network changes it.
    """
    tensor, module, dimensions = editor.tensor(source), editor.module(source), rank(source)
    if tensor is not None:
        return None if editor.storage.is_tensor_written(tensor) else tensor.shape[dim]
    if (
        dimensions is None
        or type(module) not in (*CONVS, *TRANSPOSED, nn.Linear)
        or opaque(module) is not None
    ):
        return None
    return output_channels(module) if dim % dimensions == channel_axis(module, dimensions) else None
