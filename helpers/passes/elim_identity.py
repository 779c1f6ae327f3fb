"""Removes operations that return their input, and what nothing uses.

    nn.Identity, dropout in eval mode                  pass the input itself on
    x + 0, x - 0, x * 1, x / 1, padding by nothing     make a copy

A copy may only go if neither the graph nor the caller writes into it or into the input: without the
copy, such a write would reach both. What has a side effect stays, even if nothing uses its result.
Views that change nothing stay, too, because they cost nothing.
"""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torchvision.ops import stochastic_depth

from helpers.graphs.editing import Editor, prefixes
from helpers.graphs.effects import Storage, is_fresh, is_pure, setting
from helpers.graphs.errors import Declined
from helpers.graphs.layers import why_not_ordinary
from helpers.graphs.operations import called_module
from helpers.graphs.rewriting import Outcome
from helpers.passes.base import Pass, check_same_form

IDENTITY_MODULES = (
    nn.Identity,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
# Where `training` stands among the arguments.
DROPOUTS = {
    stochastic_depth: 3,
    F.dropout: 2,
    F.dropout1d: 2,
    F.dropout2d: 2,
    F.dropout3d: 2,
    F.alpha_dropout: 2,
    F.feature_alpha_dropout: 2,
}
# The number that changes nothing, and the positions at which it may stand.
NEUTRAL = {
    operator.add: (0, (1, 0)),
    operator.sub: (0, (1,)),
    operator.mul: (1, (1, 0)),
    operator.truediv: (1, (1,)),
}


class ElimIdentity(Pass):
    """Removes nodes that return their input."""

    name = "elim_identity"

    def rewrite(self, node: fx.Node, editor: Editor) -> str | None:
        """Find the input that the node returns, and give it to the node's users."""
        source = _returned_input(node)
        if not isinstance(source, fx.Node):
            return None
        if node.op != "call_module":
            check_same_form(source, node)
        is_copy = node.target in NEUTRAL or node.target is F.pad
        if is_copy:
            _check_copy(node, source, editor.storage)
        editor.replace(node, source)
        if is_copy:
            del editor.storage  # it is out of date: now more values share storage
        return f"it only returned {source}"


def _check_copy(copy: fx.Node, original: fx.Node, storage: Storage) -> None:
    """Decline a copy if it matters whether a write reaches the copy or the original or both, or in
    which order the copy lies in memory.
    """
    reorders = copy.meta["val"].stride() != original.meta["val"].stride()
    if reorders and not all(is_fresh(user) for user in copy.users):
        raise Declined("it is a copy in another order of memory, which a view of it may need")
    if storage.is_written(copy) or storage.is_written(original):
        raise Declined("it is a copy, and the graph writes into it or into the original")
    original_is_seen = storage.is_returned(original) or storage.outlives_call(original)
    # The caller could write into the copy, and see the original.
    if storage.is_returned(copy) and original_is_seen:
        raise Declined(f"it is a copy of {original} that the network returns")


def _returned_input(node: fx.Node) -> Any:
    """The input that a node returns, or None if it computes something."""
    if node.target in NEUTRAL:
        neutral, positions = NEUTRAL[node.target]
        for position in positions:
            other = node.args[1 - position]
            if _is_number(node.args[position], neutral) and isinstance(other, fx.Node):
                return other
        return None
    if node.op == "call_module":
        returns_input = _returns_its_input(called_module(node))
    elif node.target in DROPOUTS:
        returns_input = setting(node, DROPOUTS[node.target], "training", None) is False
    else:
        amounts = node.args[1] if node.target is F.pad else None
        returns_input = isinstance(amounts, (list, tuple)) and not any(amounts)
    return node.args[0] if returns_input and node.args else None


def _returns_its_input(module: nn.Module) -> bool:
    """Whether a module does nothing; nn.Identity does nothing in train mode, too."""
    if type(module) not in IDENTITY_MODULES or why_not_ordinary(module) is not None:
        return False
    return isinstance(module, nn.Identity) or not module.training


def _is_number(value: Any, number: int) -> bool:
    """Whether a value is this number. A tensor that holds it everywhere is not: other weights
    may be loaded, and the graph has to come out the same for them.
    """
    return isinstance(value, (int, float)) and value == number


class DeadCode(Pass):
    """Removes unused pure nodes, and the modules, parameters and buffers that no node reads any
    more.
    """

    name = "dead_code"

    def run(self, graph_module: fx.GraphModule) -> Outcome:
        """Go from the output to the inputs, so that users go before what they use."""
        outcome = Outcome()
        for node in reversed(graph_module.graph.nodes):
            if node.op in ("placeholder", "output") or node.users:
                continue
            if is_pure(node):
                outcome.change(node, "nothing used it")
                graph_module.graph.erase_node(node)
            elif node.op != "call_module" and node.target is not torch._assert:
                outcome.decline(node, "nothing uses its result, but it may have a side effect")
        _drop_unread(graph_module, outcome)
        return outcome


def _drop_unread(graph_module: fx.GraphModule, outcome: Outcome) -> None:
    """Take away modules and tensors that no node reads. The parts of a module that is called stay
    as they are.
    """
    nodes = [node for node in graph_module.graph.nodes if node.op in ("get_attr", "call_module")]
    called = {node.target for node in nodes if node.op == "call_module"}
    needed = {"", *(prefix for node in nodes for prefix in prefixes(node.target))}
    for path, module in dict(graph_module.named_modules(remove_duplicate=False)).items():
        if path not in needed or not called.isdisjoint(prefixes(path)):
            continue
        for table in (module._modules, module._parameters, module._buffers):
            for name in list(table):
                full_name = f"{path}.{name}".lstrip(".")
                if full_name in needed:
                    continue
                del table[name]
                module._non_persistent_buffers_set.discard(name)
                if table is not module._modules:
                    outcome.change(full_name, "nothing read it")
