"""Reads and changes the modules and tensors that the nodes of a graph name.

Every pass that folds edits through this. Nothing that exists is overwritten: a module with new
weights is a new module, and takes over the old name only if no other node uses that name.
"""

import functools
import itertools
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx, nn

from helpers.graphs.effects import Storage
from helpers.graphs.operations import attribute


class Editor:
    """The modules and tensors of one graph."""

    def __init__(self, graph_module: fx.GraphModule):
        self.graph_module = graph_module
        self.graph = graph_module.graph
        # Calls of the same tensors with the same settings share a layer (layers.py): tensors and
        # settings -> the layer's path.
        self.layers: dict[Any, str] = {}
        # The same for folding: a layer and what is folded into it -> the new layer's path, and that
        # layer.
        self.folded: dict[Any, tuple] = {}

    @functools.cached_property
    def storage(self) -> Storage:
        """Which values share storage and which are written to; made at the first question."""
        return Storage(self.graph_module)

    def tensor(self, value: Any) -> torch.Tensor | None:
        """The tensor that a get_attr node reads; None for anything else."""
        if not isinstance(value, fx.Node) or value.op != "get_attr":
            return None
        stored = attribute(self.graph_module, value.target)
        return stored if isinstance(stored, torch.Tensor) else None

    def swap_module(self, node: fx.Node, module: nn.Module) -> None:
        """Make a call_module node call another module, under the old name if no other node uses
        that module, a part of it or a module around it.
        """
        path = node.target
        users = [n for n in self.graph.nodes if n.op in ("call_module", "get_attr")]
        others = {user.target for user in users if user is not node}
        inside = [other for other in others if other.startswith(f"{path}.")]
        if inside or not others.isdisjoint(prefixes(path)):
            path = self.free_name(path)
        self.graph_module.set_submodule(path, module)
        node.target = path

    def retarget(
        self, node: fx.Node, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Make a node do something else; it keeps its users, its name and its source line."""
        node.op, node.target, node.args, node.kwargs = op, target, args, kwargs

    def put_tensor(self, tensor: torch.Tensor, before: fx.Node) -> fx.Node:
        """A new get_attr node that reads a new constant of the network: a buffer, or a parameter if
        the tensor is one.

        Args:
            before: the node that follows the new one, and gives the constant its name.
        """
        name = self.free_name(f"{before.name}_constant")
        stored = tensor if isinstance(tensor, nn.Parameter) else nn.Buffer(tensor)
        setattr(self.graph_module, name, stored)
        with self.graph.inserting_before(before):
            node = self.graph.get_attr(name)
        node.meta["val"] = torch.empty_like(tensor, device="meta")
        return node

    def free_name(self, path: str) -> str:
        """`path`, or the first of path_1, path_2, ... that is not in use."""
        owner = path.rpartition(".")[0]
        holder = attribute(self.graph_module, owner)
        free = path
        count = 0
        while hasattr(holder, free.removeprefix(f"{owner}.")):
            count += 1
            free = f"{path}_{count}"
        return free

    def replace(self, node: fx.Node, value: Any) -> None:
        """Give all users of a node something else, and take the node away."""
        node.replace_all_uses_with(value)
        self.erase(node)

    def erase(self, node: fx.Node) -> None:
        """Take away a node without users, and the constants that only it read."""
        inputs = node.all_input_nodes
        self.graph.erase_node(node)
        self.erase_unread(inputs)

    def erase_unread(self, nodes: Iterable[fx.Node]) -> None:
        """Take away those of the nodes that read a constant and have no users any more."""
        for node in nodes:
            if node.op == "get_attr" and not node.users:
                self.graph.erase_node(node)


def prefixes(path: str) -> list[str]:
    """The path and the paths around it: "a", "a.b" and "a.b.c" for "a.b.c"."""
    return list(itertools.accumulate(path.split("."), "{}.{}".format))


def call_after(node: fx.Node, method: str) -> None:
    """Let all users of a node read what a method makes of its value."""
    with node.graph.inserting_after(node):
        made = node.graph.call_method(method, (node,))
    made.meta.update(node.meta)
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)


def with_tensors(module: nn.Module, **tensors: torch.Tensor | None) -> nn.Module:
    """A new module with the same settings and other parameters; the old one stays as it is.

    None removes a parameter. A new one is trained if the one in its place was, or, where there was
    none, if any parameter of the module is.
    """
    new = object.__new__(type(module))  # the constructor would draw random weights
    for name, value in vars(module).items():
        vars(new)[name] = value.copy() if isinstance(value, (dict, list, set)) else value
    any_trains = any(parameter.requires_grad for parameter in module.parameters(recurse=False))
    for name, tensor in tensors.items():
        if tensor is not None and not isinstance(tensor, nn.Parameter):
            old = module._parameters.get(name)
            trains = any_trains if old is None else old.requires_grad
            has_slope = tensor.is_floating_point() or tensor.is_complex()
            tensor = nn.Parameter(tensor, requires_grad=trains and has_slope)
        # A weight may have been a buffer, and would take the place of the new one in a state dict.
        new._buffers.pop(name, None)
        new._non_persistent_buffers_set.discard(name)
        new._parameters[name] = tensor
    return new


def quick_copy(network: nn.Module) -> dict[int, Any]:
    """A memo for `copy.deepcopy`, which then takes half the time: `deepcopy(network, memo)`.

    Each module has a dozen tables of hooks. Nearly all are empty, and `deepcopy` spends most of its
    time on them. In the memo each has its copy already: another empty one.
    """
    memo = {}
    for module in network.modules():
        for table in vars(module).values():
            if type(table) in (dict, OrderedDict, set) and not table:
                memo[id(table)] = type(table)()
    return memo
