"""What a node does besides computing its result: what it writes to, what it shares storage with,
whether it is random.

    x = torch.tensor([1., 2.])      what is asked                          the answer
    y = x.view(2, 1)                is_fresh: has y storage of its own?    no, it shares that of x
    z = y.add_(1)                   written: where does it write?          into y, so x is [2., 3.]
    r = F.dropout(x, 0.5, True)     is_random: does r differ in each call? yes
    s = F.relu(x)                   is_pure: may it go if nothing uses s?  yes
    torch._assert(x, "...")         is_pure: may it go?                    no, it may raise

A pass that moves, merges or deletes a node asks here first. All answers err on the safe side: a
function or module that is not known to be torch's own may do anything.
"""

import functools
import inspect
from collections.abc import Mapping
from numbers import Number
from typing import Any

import torch
from torch import fx, nn

from helpers.graphs.operations import (
    ARITHMETIC,
    FRESH,
    attribute,
    bare_name,
    called_module,
    is_in_place,
    is_torch_function,
    operation_name,
)

# These write into the arguments after the first, unless a setting is off. Given are the setting's
# position, name and default.
WRITES_STATE = {
    "batch_norm": (5, "training", False),
    "instance_norm": (5, "use_input_stats", True),
    "embedding": (3, "max_norm", None),
    "embedding_bag": (3, "max_norm", None),
}
# These draw random numbers in Python, so no tag of ATen's operators tells of it.
DRAW_IN_PYTHON = (
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "gumbel_softmax",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
)
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def is_torch(node: fx.Node) -> bool:
    """Whether a function or method node calls something of torch, or an operator of Python.

    A method of a list, or of an object that the caller hands in, may do anything.
    """
    if node.op != "call_method":
        return is_torch_function(node.target)
    owner = getattr(node.args[0], "meta", {}).get("val")
    return owner is None or isinstance(owner, (torch.Tensor, tuple, Number, str))


def has_hooks(called: Any) -> bool:
    """Whether calling this module also calls a hook; a function has none."""
    # A loop, because it is faster than any(), and this is asked more often than anything else.
    for name in HOOKS:  # noqa: SIM110
        if getattr(called, name, None):
            return True
    return False


def _is_known(module: nn.Module) -> bool:
    """Whether all of a module is torch's own, or of `helpers` (see `_makes_new`)."""
    for part in module.modules():
        trusted = type(part).__module__.startswith("torch.nn.") or _makes_new(part)
        if not trusted or has_hooks(part):
            return False
    return True


def _makes_new(module: nn.Module) -> bool:
    """Whether a module's operation makes a new tensor. Classes of `helpers` whose operation
    does (`FusedLayer`) have the attribute `only_computes`.
    """
    return operation_name(type(module)) in FRESH or getattr(module, "only_computes", False)


def written(node: fx.Node) -> list[Any]:
    """What a node writes into: nodes, for their values, and tensors of the module that it calls."""
    module = called_module(node)
    if module is not None:
        return _written_by_module(node, module)
    if node.op not in ("call_function", "call_method"):
        return []
    return nodes_in(_written(node)) if is_torch(node) else node.all_input_nodes


def _written_by_module(node: fx.Node, module: nn.Module) -> list[Any]:
    """What a module writes into: its input if it works in place, and all tensors that it holds if
    it updates statistics of the batch, or an embedding's rows above `max_norm`.
    """
    stored = [*module.parameters(), *module.buffers()]
    if not _is_known(module):
        return [*node.all_input_nodes, *stored]
    into = node.all_input_nodes if getattr(module, "inplace", False) else []
    for part in module.modules():
        updates = part.training and isinstance(part, nn.modules.batchnorm._NormBase)
        if updates or getattr(part, "max_norm", None) is not None:
            return [*into, *stored]
    return into


def _written(node: fx.Node) -> Any:
    """The arguments into which a function or method of torch writes."""
    name = bare_name(node.target)
    state = WRITES_STATE.get(name.removeprefix("native_"))
    if state is not None and setting(node, *state) not in (False, None):
        return node.args[1:], node.kwargs
    if isinstance(node.target, torch._ops.OpOverload):
        return written_arguments(node.target, node.args, node.kwargs)
    if is_in_place(node.target) or _has_inplace(node):
        return node.args[:1] or tuple(node.kwargs.values())[:1]
    return node.kwargs.get("out")


def nodes_in(value: Any) -> list[fx.Node]:
    """The nodes inside nested lists, tuples, slices and dicts, in order."""
    nodes: list[fx.Node] = []
    fx.map_arg(value, nodes.append)
    return nodes


def written_arguments(
    function: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any]
) -> list[Any]:
    """Those of the arguments into which an ATen operation writes, by its schema."""
    parameters = function._schema.arguments
    names = [parameter.name for parameter in parameters]
    supplied = dict(zip(names, args, strict=False)) | dict(kwargs)
    return [
        supplied.get(parameter.name)
        for parameter in parameters
        if parameter.alias_info is not None and parameter.alias_info.is_write
    ]


def _has_inplace(node: fx.Node) -> bool:
    """Whether a function is called with `inplace` as anything but False."""
    return setting(node, _inplace_position(node.target), "inplace", False) is not False


def setting(node: fx.Node, position: int | None, name: str, default: Any) -> Any:
    """An argument that may be given by name, and by position if it has one; or its default."""
    if position is not None and position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


@functools.cache
def _inplace_position(function: Any) -> int | None:
    """Where `inplace` stands among the arguments of a function; None if it has no such argument, or
    is a method.
    """
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    return names.index("inplace") if "inplace" in names else None


def is_fresh(node: fx.Node) -> bool:
    """Whether the result is a new tensor that shares storage with none of the node's inputs."""
    module = called_module(node)
    if module is not None:
        in_place = getattr(module, "inplace", False)
        return _makes_new(module) and not has_hooks(module) and not in_place
    name = bare_name(node.target)
    if name in ARITHMETIC and not isinstance(node.meta.get("val"), torch.Tensor):
        return False  # a sum of tuples holds the same tensors
    return name in FRESH and is_torch(node) and not _has_inplace(node) and "out" not in node.kwargs


def is_random(node: fx.Node) -> bool:
    """Whether a call may draw random numbers; a module does if any part of it is in train mode."""
    module = called_module(node)
    if module is not None:
        return any(part.training for part in module.modules())
    name = bare_name(node.target)
    if "dropout" in name:
        return setting(node, 2, "training", True) is not False
    return draws(name)


@functools.cache
def draws(name: str) -> bool:
    """Whether the operation of this name can draw random numbers."""
    if name in DRAW_IN_PYTHON:
        return True
    packet = getattr(torch.ops.aten, name, None)
    overloads = packet.overloads() if packet is not None else []
    return any(
        torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags
        for overload in overloads
    )


def is_pure(node: fx.Node) -> bool:
    """Whether a node only computes its result, so that it may go if no node uses that."""
    if node.op == "get_attr":
        return True
    module = called_module(node)
    if module is not None:
        known = _is_known(module)
    else:
        known = is_torch(node) and not bare_name(node.target).startswith("_assert")
    return known and not written(node) and not is_random(node)


class Storage:
    """Which values of a graph may share storage, which of them the graph writes to, and into which
    the caller may write, because the network returns them.
    """

    def __init__(self, graph_module: fx.GraphModule):
        # A node, or the address of a tensor's storage -> all that share it.
        self._shared: dict[Any, set[Any]] = {}
        targets: list[Any] = []
        returned: list[Any] = []
        self.writers: list[fx.Node] = []  # in graph order
        for node in graph_module.graph.nodes:
            if node.op == "get_attr":
                self._join(node, address(attribute(graph_module, node.target)))
            elif node.op == "output":
                returned = node.all_input_nodes
            elif not is_fresh(node):
                for value in node.all_input_nodes:
                    self._join(node, value)
            into = written(node)
            if into:
                self.writers.append(node)
                targets += into
        addresses = [part if isinstance(part, fx.Node) else address(part) for part in targets]
        self._written = self._reached(addresses)
        self._returned = self._reached(returned)

    def is_written(self, node: fx.Node) -> bool:
        """Whether the graph may write into the value of `node`, directly or through something that
        shares storage.
        """
        return node in self._written

    def is_module_written(self, module: nn.Module) -> bool:
        """Whether the graph may write into a parameter or buffer of a module."""
        stored = (*module.parameters(), *module.buffers())
        return not self._written.isdisjoint(map(address, stored))

    def is_returned(self, node: fx.Node) -> bool:
        """Whether the network returns the value of `node`, or something that shares its storage.
        The caller may write into that.
        """
        return node in self._returned

    def outlives_call(self, node: fx.Node) -> bool:
        """Whether the value of `node` may be an input or a tensor of the network, or a view of one,
        which are still there after the call.
        """
        return any(
            not isinstance(value, fx.Node) or value.op == "placeholder"
            for value in self._reached([node])
        )

    def _reached(self, values: list[Any]) -> set[Any]:
        """All that shares storage with any of the values."""
        return set().union(*(self._shared.get(value, {value}) for value in values))

    def _join(self, one: Any, other: Any) -> None:
        both = [self._shared.setdefault(value, {value}) for value in (one, other)]
        small, large = sorted(both, key=len)
        if small is not large:
            large |= small
            self._shared.update(dict.fromkeys(small, large))


def address(tensor: Any) -> Any:
    """A key that is the same for all tensors on the same storage; for anything else its id."""
    try:
        return tensor.untyped_storage()._cdata
    except (AttributeError, NotImplementedError):  # not a tensor, or sparse, without storage
        return id(tensor)
