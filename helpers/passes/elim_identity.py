"""What may go without a trace: operations that return their input, and what nobody uses.

    nn.Identity, dropout in eval mode                                     hand on the input itself
    x + 0, x - 0, x * 1, x / 1, padding by nothing                        make a copy

A copy may only go when nobody writes into it or into the input, for then they would write into the
other as well; the caller may write into what is returned. What has a side effect stays, used or
not. Views that change nothing stay, too: they cost nothing.
"""

import operator
from typing import Any

import torch.nn.functional as F
from torch import fx, nn
from torchvision.ops import stochastic_depth

from helpers.graphs.editing import Editor, prefixes
from helpers.graphs.effects import Storage, is_pure
from helpers.graphs.errors import MustStay
from helpers.graphs.layers import opaque
from helpers.passes.folder import Pass, PassResult
from helpers.passes.rewriter import NodeRewriter, check_same_form

IDENTITY_MODULES = (
    nn.Identity,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
# The number that changes nothing, and the positions at which it may stand.
NEUTRAL = {
    operator.add: (0, (1, 0)),
    operator.sub: (0, (1,)),
    operator.mul: (1, (1, 0)),
    operator.truediv: (1, (1,)),
}


class ElimIdentity(NodeRewriter):
    """Removes nodes that return their input."""

    name = "elim_identity"

    def visit(self, node: fx.Node, editor: Editor) -> str | None:
        """Ask the node what it hands on, and whether its users may have that instead."""
        handed_on, copies = (
            _passed_through(node, editor),
            node.target in NEUTRAL or node.target is F.pad,
        )
        if not isinstance(handed_on, fx.Node):
            return None
        if node.op != "call_module":
            check_same_form(handed_on, node)
        if node.target in NEUTRAL and all(isinstance(argument, fx.Node) for argument in node.args):
            raise MustStay(
                "a tensor holds the neutral number everywhere, which it need not in the next such"
                " network"
            )
        if copies and (editor.storage.is_written(node) or editor.storage.is_written(handed_on)):
            raise MustStay("it is a copy, and somebody writes into it or into the original")
        if copies and _caller_can_tell(node, handed_on, editor.storage):
            raise MustStay(f"it is a copy of {handed_on} that the network returns")
        editor.replace(node, handed_on)
        if copies:
            del editor.storage  # now they share it
        return f"it only handed on {handed_on}"


def _caller_can_tell(copy: fx.Node, original: fx.Node, storage: Storage) -> bool:
    """Whether whoever writes into the returned copy would write into another result, an input or
    the network.
    """
    return storage.is_returned(copy) and (
        storage.is_returned(original) or storage.is_kept(original)
    )


def _passed_through(node: fx.Node, editor: Editor) -> Any:
    """The input that a node returns, or None if it computes something."""
    if node.op == "call_module":
        module = editor.module(node)
        idle = (
            isinstance(module, nn.Identity) or not module.training
        )  # a fresh one is in train mode
        hands_on = type(module) in IDENTITY_MODULES and idle and opaque(module) is None
    elif node.target in NEUTRAL:
        neutral, positions = NEUTRAL[node.target]
        others = [node.args[1 - at] for at in positions if _is_all(node.args[at], neutral, editor)]
        return next((other for other in others if isinstance(other, fx.Node)), None)
    elif node.target is F.pad:
        hands_on = isinstance(node.args[1], (list, tuple)) and all(
            amount == 0 for amount in node.args[1]
        )
    else:
        place = {F.dropout: 2, stochastic_depth: 3}.get(node.target, 99)  # of `training`
        hands_on = (
            place < 99
            and (*node.args[place : place + 1], node.kwargs.get("training", True))[0] is False
        )
    return node.args[0] if hands_on and node.args else None


def _is_all(value: Any, number: int, editor: Editor) -> bool:
    tensor = editor.tensor(value)
    if tensor is None:
        return isinstance(value, (int, float)) and value == number
    return not tensor.is_meta and tensor.numel() > 0 and bool((tensor == number).all())


class DeadCode(Pass):
    """Removes unused pure nodes, and the modules, parameters and buffers that no node reads any
    more.
    """

    name = "dead_code"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """One walk from the output to the inputs is enough: users come after what they use."""
        result, editor = PassResult(), Editor(graph_module)
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
    """Take away modules and tensors that no node reads; what is part of a called module goes or
    stays with it.
    """
    nodes = [node for node in graph_module.graph.nodes if node.op in ("get_attr", "call_module")]
    called = {node.target for node in nodes if node.op == "call_module"}
    needed = {"", *(prefix for node in nodes for prefix in prefixes(node.target))}
    for path, module in dict(graph_module.named_modules(remove_duplicate=False)).items():
        if path in needed and called.isdisjoint(prefixes(path)):
            for table in (module._modules, module._parameters, module._buffers):
                for name in [name for name in table if f"{path}.{name}".lstrip(".") not in needed]:
                    del table[name]
                    if table is not module._modules:
                        result.change(f"{path}.{name}".lstrip("."), "nobody read it")
