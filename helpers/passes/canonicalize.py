"""One form for each operation, so that the passes that follow have one thing to look for.

    convolution, batch norm, linear   a call of an ordinary nn module (layers.py)
    activations, pooling, ...         a call of one function (operations.py)
    + - * /                           Python's operators
    x.shape[1], x.size(1), x.ndim     numbers, where the network fixes them; x.size(i) otherwise

Writing the same thing differently never changes an answer, so in-place activations stay in place. In-place arithmetic
becomes ordinary arithmetic when nobody else can see the difference: its operand is a new tensor that only it uses.
"""

import operator
from typing import Any

import torch
from torch import fx, nn

from helpers.graphs import effects, operations
from helpers.graphs.editing import Editor
from helpers.graphs.errors import MustStay
from helpers.graphs.layers import Layers, opaque, rank
from helpers.graphs.operations import CONVS, FOLDABLE, TRANSPOSED
from helpers.passes import registry
from helpers.passes.folder import Pass, PassResult


@registry.register
class Canonicalize(Pass):
    """Brings module calls, functions, methods and ATen operators to one form."""

    name = "canonicalize"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite each node that has a canonical form and is not yet in it."""
        result = PassResult()
        editor = Editor(graph_module)
        editor.forget(list(graph_module.graph.nodes))
        layers = Layers(editor)
        for node in list(graph_module.graph.nodes):
            before = node.target
            if node.op == "call_module":
                _module(node, editor, result)
            elif isinstance(node.target, torch._ops.HigherOrderOperator):
                result.decline(node, f"{node.target.name()} runs a graph of its own, into which no pass looks")
            elif node.op in ("call_function", "call_method") and effects.is_torch(node):
                _function(node, editor, layers, result)
            if node.target is not before:
                result.change(node, f"{_spelling(before)} became {_spelling(node.target)}")
        return result


def _spelling(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _module(node: fx.Node, editor: Editor, result: PassResult) -> None:
    module = editor.module(node)
    reason = opaque(module)
    if reason is not None:
        if isinstance(module, FOLDABLE):
            result.decline(node, reason)
        return
    if len(node.args) == 0 and "input" in node.kwargs:
        node.args, node.kwargs = (node.kwargs["input"],), {k: v for k, v in node.kwargs.items() if k != "input"}
    name = operations.MODULES.get(type(module))
    if name is not None and len(node.args) == 1 and not node.kwargs:
        attributes = {key: operations.ATTRIBUTES.get(key, key) for key in operations.OPERATIONS[name].arguments}
        settings = {
            key: getattr(module, attribute) for key, attribute in attributes.items() if hasattr(module, attribute)
        }
        _write(node, editor, name, node.args[0], settings)


def _function(node: fx.Node, editor: Editor, layers: Layers, result: PassResult) -> None:
    name = effects.op_name(node)
    name = operations.SYNONYMS.get(name, name)
    in_place = name.endswith("_") and not name.endswith("__")
    if name in operations.LAYERS:
        try:
            layers.convert(node)
        except MustStay as reason:
            result.decline(node, str(reason))
    elif name in operations.ARITHMETIC:
        _arithmetic(node, editor, name)
    elif name in operations.ARITHMETIC_IN_PLACE:
        _read_result_instead(node)
        if _only_it_can_see(node, editor):
            _arithmetic(node, editor, operations.ARITHMETIC_IN_PLACE[name])
    elif (form := operations.OPERATIONS.get(name.rstrip("_") if in_place else name)) is not None:
        settings = _bind(node, form.arguments)
        if settings is not None and (not in_place or "inplace" in form.arguments):
            first = settings.pop("input")
            _write(node, editor, name.rstrip("_"), first, settings | ({"inplace": True} if in_place else {}))
    elif node.target is getattr or name in ("size", "sym_size", "dim", "getitem"):
        _simplify_size(node, editor, name)


def _bind(node: fx.Node, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments by name, the input among them; None when some are not part of the form."""
    names = ["input", *arguments]
    given = {operations.ARGUMENT_SYNONYMS.get(key, key): value for key, value in node.kwargs.items()}
    given |= dict(zip(names, node.args, strict=False))
    complete = "input" in given and all(
        key in given for key, default in arguments.items() if default is operations.REQUIRED
    )
    return given if complete and len(node.args) <= len(names) and given.keys() <= set(names) else None


def _write(node: fx.Node, editor: Editor, name: str, first: Any, settings: dict[str, Any]) -> None:
    """Call the form's function, required settings by position, the others by name when they are not the default."""
    if name == "hardtanh" and settings.get("min_val", -1) == 0 and settings.get("max_val", 1) == 6:
        name, settings = "relu6", {"inplace": settings.get("inplace", False)}
    form = operations.OPERATIONS[name]
    args = [settings[key] for key, default in form.arguments.items() if default is operations.REQUIRED]
    kwargs = {
        key: settings[key]
        for key, default in form.arguments.items()
        if default is not operations.REQUIRED and key in settings and not _same(settings[key], default)
    }
    editor.retarget(node, "call_function", form.function, (first, *args), kwargs)


def _same(value: Any, default: Any) -> bool:
    if default is None:
        return value is None or value in ([], ())  # ATen writes "no stride" as an empty list
    return value == default


def _arithmetic(node: fx.Node, editor: Editor, name: str) -> None:
    """x + y for any spelling of it. `alpha`, the factor of the second operand, becomes a multiplication of its own."""
    alpha = node.kwargs.get("alpha", 1)
    operands = [*node.args, *(node.kwargs[key] for key in ("input", "self", "other") if key in node.kwargs)]
    if len(operands) != 2 or not node.kwargs.keys() <= {"alpha", "input", "self", "other"}:
        return
    if alpha != 1 and name == "rsub":
        return
    if alpha != 1:
        operands[1] = _scaled(node, editor, operands[1], alpha)
    if operands[1] is None:
        return
    function, swapped = operations.ARITHMETIC[name]
    editor.retarget(node, "call_function", function, tuple(operands[::-1] if swapped else operands), {})


def _scaled(node: fx.Node, editor: Editor, operand: Any, alpha: Any) -> Any:
    """alpha * operand for a constant operand; None, that is leave it, for anything else."""
    if isinstance(operand, (int, float)) and not isinstance(alpha, fx.Node):
        return operand * alpha
    tensor = editor.tensor(operand)
    if tensor is None or isinstance(alpha, fx.Node):
        return None
    return editor.put_tensor(tensor.detach() * alpha, f"{node.name}_constant", before=node)


def _read_result_instead(node: fx.Node) -> None:
    """Whoever reads x after x += 1 gets what += returns, which is x itself."""
    target = node.args[0] if node.args else None
    if isinstance(target, fx.Node) and isinstance(target.meta.get("val"), torch.Tensor):
        for user in [user for user in target.users if user > node]:
            user.replace_input_with(target, node)


def _only_it_can_see(node: fx.Node, editor: Editor) -> bool:
    """Whether an in-place operation could as well make a new tensor, which must have the dtype of the old one."""
    target = node.args[0] if node.args else None
    if not isinstance(target, fx.Node) or not effects.is_fresh(target, editor.module(target)):
        return False
    others = [user for user in target.users if user is not node]
    if not all(user < node and effects.is_fresh(user, editor.module(user)) for user in others):
        return False
    before, after = target.meta.get("val"), (node.args[1] if len(node.args) == 2 else None)
    other = after.meta.get("val") if isinstance(after, fx.Node) else after
    if not isinstance(before, torch.Tensor) or not isinstance(other, (torch.Tensor, int, float)):
        return False
    return torch.result_type(before, other) == before.dtype


def _simplify_size(node: fx.Node, editor: Editor, name: str) -> None:
    """Numbers where the network fixes them, x.size(i) where the input does; `name` is the node's operation.

    A network that was traced with one image must still take others, so only what a layer fixes becomes a number: the
    sizes of parameters, the channels of a layer's output, and how many dimensions there are.
    """
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
