"""One form for each operation, so that the passes that follow have one thing to look for.

    convolution, batch norm, linear   a call of an ordinary nn module (layers.py)
    activations, pooling, ...         a call of one function (operations.py)
    + - * /                           Python's operators
    x.shape[1], x.size(1), x.ndim     numbers, where the network fixes them; x.size(i) otherwise

The form alone never changes an answer, so in-place activations stay in place. In-place arithmetic
becomes ordinary arithmetic if its operand is a new tensor of which no view was taken before; what
reads the operand later reads the result instead.
"""

import operator
from typing import Any

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor
from helpers.graphs.effects import is_fresh, is_torch
from helpers.graphs.errors import Declined
from helpers.graphs.layers import channel_axis, convert, output_channels, rank, why_not_ordinary
from helpers.graphs.operations import (
    ARITHMETIC,
    ATTRIBUTES,
    CONVS,
    FOLDABLE,
    LAYERS,
    OPERATIONS,
    REQUIRED,
    SYNONYMS,
    TRANSPOSED,
    by_name,
    called_module,
    is_in_place,
    operation,
)
from helpers.passes.base import Pass

# Questions about sizes; "getitem" may take one out of x.size().
SIZE_QUESTIONS = ("shape", "size", "sym_size", "ndim", "dim", "getitem")
# The message of the one assertion about the input, by which it is also found again.
RANK = "it takes an input of as many dimensions as the example has"


class Canonicalize(Pass):
    """Brings calls of modules, functions, methods and ATen operators to one form."""

    name = "canonicalize"

    def rewrite(self, node: fx.Node, editor: Editor) -> str | None:
        """Rewrite a node that has a canonical form and is not yet in it."""
        before = node.target
        users = len(node.users)
        if node.op == "get_attr":
            editor.erase_unread([node])
        elif node.op == "call_module":
            _module(node, editor)
        elif isinstance(node.target, torch._ops.HigherOrderOperator):
            raise Declined(f"{node.target.name()} runs a subgraph, into which no pass looks")
        elif node.target is torch._assert:
            return _assert_of_input(node, editor)
        elif node.op in ("call_function", "call_method") and is_torch(node):
            _function(node, editor)
        if node.target is not before:
            return f"{_spelling(before)} became {_spelling(node.target)}"
        if len(node.users) != users:
            return "its users read a number instead, or what it writes"
        return None


def _assert_of_input(node: fx.Node, editor: Editor) -> str | None:
    """Assert the number of dimensions of the input instead of that of another value.

    If the input has as many dimensions as the example, so has the value. Left alone, the assertion
    would read a layer's result, and nothing could be folded into that layer.
    """
    condition = node.args[0]
    if not isinstance(condition, fx.Node) or condition.target is not operator.eq:
        return None
    question = condition.args[0]
    if not isinstance(question, fx.Node) or operation(question) not in ("ndim", "dim"):
        return None
    placeholders = editor.graph.find_nodes(op="placeholder")
    inputs = [tensor for tensor in placeholders if rank(tensor) is not None]
    only_asserted = {*condition.users, *question.users} == {condition, node}
    if question.args[0] in inputs or len(inputs) != 1 or not only_asserted:
        return None
    assertions = editor.graph.find_nodes(op="call_function", target=torch._assert)
    if any(other.args[1:] == (RANK,) for other in assertions):
        editor.erase(node)
        return "it is asserted of the input"
    question.args = (inputs[0], *question.args[1:])
    condition.args = (question, rank(inputs[0]))
    node.args = (condition, RANK)
    return "asserted of the input instead"


def _spelling(target: Any) -> str:
    if isinstance(target, str):
        return target
    return fx.node._get_qualified_name(target).removeprefix("_")


def _module(node: fx.Node, editor: Editor) -> None:
    module = called_module(node)
    reason = why_not_ordinary(module)
    if reason is not None:
        if isinstance(module, FOLDABLE):
            raise Declined(reason)
        return
    if not node.args and type(module).__module__.startswith("torch.nn."):
        named = dict(node.kwargs)
        if "input" in named:
            node.args = (named.pop("input"),)
            node.kwargs = named
    name = _known_name(node)
    if name not in OPERATIONS or len(node.args) != 1 or node.kwargs:
        return
    settings = {}
    for argument in OPERATIONS[name].arguments:
        attribute = ATTRIBUTES.get(argument, argument)
        if hasattr(module, attribute):
            settings[argument] = getattr(module, attribute)
    _write(node, editor, name, node.args[0], settings)


def _known_name(node: fx.Node) -> str:
    name = operation(node)
    return SYNONYMS.get(name, name)


def _function(node: fx.Node, editor: Editor) -> None:
    name = _known_name(node)
    if name in SIZE_QUESTIONS:
        _simplify_size(node, editor, name)
    elif node.target is getattr:
        return
    elif name in LAYERS:
        convert(node, editor)
    elif name in ARITHMETIC:
        in_place = is_in_place(node.target)
        if in_place:
            _read_result_instead(node)
        if not in_place or _write_is_unseen(node):
            _arithmetic(node, editor, name)
    elif name in OPERATIONS:
        _named_operation(node, editor, name)


def _named_operation(node: fx.Node, editor: Editor, name: str) -> None:
    """An operation of the table OPERATIONS, if all its arguments are in the table, too."""
    arguments = OPERATIONS[name].arguments
    settings = by_name(node, ["input", *arguments])
    if is_in_place(node.target):
        settings["inplace"] = True
    required = {"input", *(key for key in arguments if arguments[key] is REQUIRED)}
    fits = required <= settings.keys() <= {"input", *arguments}
    if fits and len(node.args) <= 1 + len(arguments):
        _write(node, editor, name, settings.pop("input"), settings)


def _write(node: fx.Node, editor: Editor, name: str, first: Any, settings: dict[str, Any]) -> None:
    """Call the function of the canonical form: required arguments by position, others by name where
    they are not the default.
    """
    if name == "hardtanh" and settings.get("min_val", -1) == 0 and settings.get("max_val", 1) == 6:
        name, settings = "relu6", {"inplace": settings.get("inplace", False)}
    form = OPERATIONS[name]
    args = [first]
    kwargs = {}
    for key, default in form.arguments.items():
        if default is REQUIRED:
            args.append(settings[key])
        elif key in settings and settings[key] not in (default, [], ()):  # [] is ATen's "no stride"
            kwargs[key] = settings[key]
    editor.retarget(node, "call_function", form.function, tuple(args), kwargs)


def _arithmetic(node: fx.Node, editor: Editor, name: str) -> None:
    """Call Python's operator; the `alpha` of torch's function multiplies the second operand."""
    arguments = by_name(node, ("input", "other"))
    alpha = arguments.pop("alpha", 1)
    if arguments.keys() != {"input", "other"} or len(node.args) > 2:
        return
    first = arguments["input"]
    second = arguments["other"]
    if alpha != 1:
        if name == "rsub" or isinstance(alpha, fx.Node):
            return
        second = _scaled(node, first, second, alpha, editor)
        if second is None:
            return
    operands = (second, first) if name == "rsub" else (first, second)
    editor.retarget(node, "call_function", ARITHMETIC[name], operands, {})


def _scaled(node: fx.Node, first: Any, second: Any, alpha: float, editor: Editor) -> Any:
    """The second operand times alpha, if that is a constant; None otherwise."""
    tensor = editor.tensor(second)
    if tensor is None:
        return second * alpha if isinstance(second, (int, float)) else None
    value = first.meta.get("val") if isinstance(first, fx.Node) else None
    # torch multiplies in the dtype of the sum, which has to be that of the constant.
    if tensor.dtype != getattr(value, "dtype", None):
        return None
    if editor.storage.is_written(second):
        return None
    scaled = tensor.detach() * alpha
    scaled = nn.Parameter(scaled) if tensor.requires_grad else scaled
    return editor.put_tensor(scaled, before=node)


def _read_result_instead(node: fx.Node) -> None:
    """Let what reads x after x += 1 read the result of += instead, which is x itself."""
    target = node.args[0] if node.args else None
    if isinstance(target, fx.Node) and isinstance(target.meta.get("val"), torch.Tensor):
        target.replace_all_uses_with(node, delete_user_cb=lambda user: user > node)


def _write_is_unseen(node: fx.Node) -> bool:
    """Whether an in-place operation may make a new tensor instead: no other node sees its write,
    and the new tensor has the same dtype.
    """
    if len(node.args) != 2 or not isinstance(node.args[0], fx.Node):
        return False
    target, other = node.args
    for related in (target, *(user for user in target.users if user is not node)):
        if related > node or not is_fresh(related):
            return False
    value = target.meta.get("val")
    if isinstance(other, fx.Node):
        other = other.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(other, (torch.Tensor, int, float)):
        return False
    return torch.result_type(value, other) == value.dtype


def _simplify_size(node: fx.Node, editor: Editor, name: str) -> None:
    """A number where the network itself decides a size, x.size(i) where its input does.

    A network that was traced with one image must still take others. So only these become numbers:
    the sizes and dimensions of parameters, and the channels of a layer's output. The dimensions of
    an output do not, because layers take images with and without a batch.

    Args:
        name: of the node's operation, one of SIZE_QUESTIONS.
    """
    if not 1 <= len(node.args) <= 2 or not isinstance(node.args[0], fx.Node):
        return
    source = node.args[0]
    axis = node.args[1] if len(node.args) == 2 else None  # for getattr: the attribute's name
    if name == "shape" and _may_be_tensor(source):
        editor.retarget(node, "call_method", "size", (source,), {})
    elif name in ("dim", "ndim"):
        tensor = editor.tensor(source)
        if tensor is not None and not editor.storage.is_written(source):
            node.replace_all_uses_with(tensor.ndim)
    elif isinstance(axis, int) and name in ("size", "sym_size"):
        _simplify_size_of_axis(node, source, axis, editor)
    elif isinstance(axis, int) and _is_whole_size(source):
        tensor = source.args[0]
        written = editor.storage.is_written(tensor)
        # x.size()[1] is x.size(1), if nothing can have changed the shape in between.
        if not written or not any(source < writer < node for writer in editor.storage.writers):
            _simplify_size_of_axis(node, tensor, axis, editor)


def _is_whole_size(node: fx.Node) -> bool:
    """Whether a node is x.size(), without an axis."""
    is_size = node.op == "call_method" and node.target == "size"
    return is_size and len(node.args) == 1 and not node.kwargs and _may_be_tensor(node.args[0])


def _may_be_tensor(node: fx.Node) -> bool:
    """Not an object that the network gets, with a `shape` of its own; without shapes nothing is
    known.
    """
    return isinstance(node.meta.get("val", torch.empty(0)), torch.Tensor)


def _simplify_size_of_axis(node: fx.Node, source: fx.Node, axis: int, editor: Editor) -> None:
    number = _fixed_size(source, axis, editor)
    if number is None:
        editor.retarget(node, "call_method", "size", (source, axis), {})
    else:
        node.replace_all_uses_with(number)


def _fixed_size(source: fx.Node, axis: int, editor: Editor) -> int | None:
    """A size that no input of the network changes: of a parameter, or of the channels of a layer's
    output; None for any other.
    """
    tensor = editor.tensor(source)
    if tensor is not None:
        return None if editor.storage.is_written(source) else tensor.shape[axis]
    module = called_module(source)
    dimensions = rank(source)
    is_layer = type(module) in (*CONVS, *TRANSPOSED, nn.Linear)
    if dimensions is None or not is_layer or why_not_ordinary(module) is not None:
        return None
    if axis % dimensions != channel_axis(module, dimensions):
        return None
    return output_channels(module)
