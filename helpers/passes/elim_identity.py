"""What may go without a trace: operations that return their input, and what nobody uses.

    nn.Identity, dropout in eval mode, x.view(x.shape), x.to(x.dtype)     hand on the input itself
    x + 0, x - 0, x * 1, x / 1, padding by nothing, pooling over 1        make a copy

A copy may only go when nobody writes into it or into the input, for then they would write into the other as well. What
has a side effect stays, used or not.
"""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torchvision.ops import stochastic_depth

from helpers.graphs.editing import Editor
from helpers.graphs.effects import is_pure
from helpers.graphs.errors import MustStay
from helpers.graphs.layers import check_same_form, opaque
from helpers.passes import registry
from helpers.passes.canonicalize import fixed_size
from helpers.passes.folder import Pass, PassResult
from helpers.passes.rewriter import NodeRewriter

IDENTITY_MODULES = (nn.Identity, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
# Methods that return the input itself when shape and dtype do not change.
VIEWS = {"view", "reshape", "flatten", "expand", "to", "float", "double", "half", "bfloat16", "type_as"}
VIEWS |= {torch.flatten, torch.reshape}
SIZED = {"view", "reshape", "expand", torch.reshape}  # those that name a size
# The number that changes nothing, and whether it may stand on either side.
NEUTRAL = {operator.add: (0, True), operator.sub: (0, False), operator.mul: (1, True), operator.truediv: (1, False)}


@registry.register
class ElimIdentity(NodeRewriter):
    """Removes nodes that return their input."""

    name = "elim_identity"

    def visit(self, node: fx.Node, editor: Editor) -> str | None:
        """Ask the node what it hands on, and whether its users may have that instead."""
        handed_on, copies = _passed_through(node, editor)
        if handed_on is None:
            return None
        _refuse(node, handed_on, copies, editor)
        editor.replace(node, handed_on)
        return f"it only handed on {handed_on}"


def _passed_through(node: fx.Node, editor: Editor) -> tuple[fx.Node | None, bool]:
    """The input that a node returns (None if it computes something), and whether as a copy."""
    source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
    if node.op == "call_function" and node.target in NEUTRAL:
        return _other_than_neutral(node, editor), True
    if source is None or node.op not in ("call_function", "call_method", "call_module"):
        return None, False
    hands_on = is_copy = False
    if node.op == "call_module":
        module = editor.module(node)
        hands_on = type(module) in IDENTITY_MODULES and not module.training and opaque(module) is None
    elif node.target in (F.dropout, stochastic_depth):
        hands_on = node.kwargs.get("training", node.args[3] if len(node.args) > 3 else True) is False
    elif node.target in VIEWS:
        hands_on = not _asks_for_more(node, editor)
    elif node.target is F.pad:
        hands_on = isinstance(node.args[1], (list, tuple)) and all(amount == 0 for amount in node.args[1])
        is_copy = True
    return (source if hands_on else None), is_copy


def _asks_for_more(node: fx.Node, editor: Editor) -> bool:
    """Whether a view has another shape or dtype, or `to` also names a memory format or asks for a copy."""
    after, before = node.meta.get("val"), node.args[0].meta.get("val")
    known = isinstance(after, torch.Tensor) and isinstance(before, torch.Tensor)
    if known and (after.shape != before.shape or after.dtype != before.dtype):
        return True
    if node.target in SIZED and not _keeps_any_size(node, editor):
        return True
    return bool(node.kwargs.keys() & {"memory_format", "copy"}) or (node.target == "to" and len(node.args) > 2)


def _keeps_any_size(node: fx.Node, editor: Editor) -> bool:
    """Whether a view that does nothing for this input does nothing for any: no input changes its sizes."""
    source, sizes = node.args[0], [*node.args[1:], *node.kwargs.values()]
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (list, tuple, fx.Node)) else sizes
    if isinstance(sizes, fx.Node):
        return sizes.target == "size" and sizes.args == (source,)
    for i, size in enumerate(sizes):
        own = isinstance(size, fx.Node) and size.target == "size" and size.args == (source, i)
        if not own and size != -1 and size != fixed_size(source, i, editor):
            return False
    return True


def _other_than_neutral(node: fx.Node, editor: Editor) -> fx.Node | None:
    """In x + 0, the x."""
    neutral, either_side = NEUTRAL[node.target]
    for position in (1, 0) if either_side else (1,):
        other = node.args[1 - position]
        if isinstance(other, fx.Node) and _is_all(node.args[position], neutral, editor):
            return other
    return None


def _is_all(value: Any, number: int, editor: Editor) -> bool:
    tensor = editor.tensor(value)
    if tensor is not None and editor.storage.is_written(value):
        return False  # a counter that is 0 now
    if tensor is not None:
        return not tensor.is_meta and tensor.numel() > 0 and bool((tensor == number).all())
    return isinstance(value, (int, float)) and value == number


def _refuse(node: fx.Node, handed_on: fx.Node, copies: bool, editor: Editor) -> None:
    """Raise `MustStay` if somebody could tell the difference between a node and the input that it returns."""
    if copies or node.op != "call_module":
        check_same_form(handed_on, node)
    if copies and (editor.storage.is_written(node) or editor.storage.is_written(handed_on)):
        raise MustStay("it is a copy, and somebody writes into it or into the original")
    if copies and handed_on.op in ("placeholder", "get_attr") and any(user.op == "output" for user in node.users):
        raise MustStay(f"it is a copy of {handed_on} that the network returns")


@registry.register
class DeadCode(Pass):
    """Removes unused pure nodes, and the modules, parameters and buffers that no node reads any more."""

    name = "dead_code"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """One walk from the output to the inputs is enough: users come after what they use."""
        result = PassResult()
        editor = Editor(graph_module)
        for node in reversed(graph_module.graph.nodes):
            if node.op in ("placeholder", "output") or node.users:
                continue
            if is_pure(node, editor.module(node)):
                result.change(node, "nobody used it")
                graph_module.graph.erase_node(node)
            elif node.op != "call_module":
                result.decline(node, "nobody uses its result, but it may have a side effect")
        _drop_unread(graph_module, result)
        return result


def _drop_unread(graph_module: fx.GraphModule, result: PassResult) -> None:
    """Take away modules and tensors that no node reads; what is part of a called module goes or stays with it."""
    nodes = [node for node in graph_module.graph.nodes if node.op in ("get_attr", "call_module")]
    called = {node.target for node in nodes if node.op == "call_module"}
    needed = {"", *(prefix for node in nodes for prefix in _prefixes(node.target))}
    for path, module in dict(graph_module.named_modules(remove_duplicate=False)).items():
        if path in needed and called.isdisjoint(_prefixes(path)):
            for table in (module._modules, module._parameters, module._buffers):
                for name in list(table):
                    if (full := f"{path}.{name}".lstrip(".")) not in needed:
                        del table[name]
                        if table is not module._modules:
                            result.change(full, "nobody read it")


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]
