"""What a node does besides computing its result: what it writes to, what it shares storage with,
whether it is random.

    x = torch.tensor([1., 2.])      what is asked                          the answer
    y = x.view(2, 1)                is_fresh: is it new storage?           no, it shares that of x
    z = y.add_(1)                   written: where does it write?          into y, so x is [2., 3.]
    r = F.dropout(x, 0.5, True)     is_random: is it another in each call? yes
    s = F.relu(x)                   is_pure: may it go if no node uses s?  yes
    torch._assert(x, "...")                                                no, it may raise

A pass that moves, merges or deletes a node asks here first. All answers err on the safe side: a
function or module that is not known to be torch's own may do anything.
"""

import functools
import inspect
from collections.abc import Mapping
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
    name_of,
)

# What writes into the tensors behind its first argument, unless a setting is off: the setting's
# position, its name, its default.
WRITES_STATE = {
    "batch_norm": (5, "training", False),
    "instance_norm": (5, "use_input_stats", True),
    "embedding": (3, "max_norm", None),
    "embedding_bag": (3, "max_norm", None),
}
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def is_torch(node: fx.Node) -> bool:
    """Whether a function or method node calls something of torch, or an operator of Python."""
    return node.op == "call_method" or is_torch_function(node.target)


def has_hooks(called: Any) -> bool:
    """Whether calling this module also calls a hook; a function has none."""
    # A loop, because this is asked more often than anything else.
    for name in HOOKS:  # noqa: SIM110
        if getattr(called, name, None):
            return True
    return False


def _is_known(module: nn.Module) -> bool:
    """Whether all of a module is torch's own, or this package's."""
    for part in module.modules():
        ours = type(part).__module__.startswith("torch.nn.") or _makes_new(part)
        if not ours or has_hooks(part):
            return False
    return True


def _makes_new(module: nn.Module) -> bool:
    """Whether it makes a new tensor and does nothing else; a class of this package, as
    `FusedLayer`, says that it does.
    """
    return name_of(type(module)) in FRESH or getattr(module, "only_computes", False)


def written(node: fx.Node) -> list[Any]:
    """What a node writes into: nodes, for their values, and tensors of the module that it calls."""
    module = called_module(node)
    if module is not None:
        return _written_by_module(node, module)
    if node.op not in ("call_function", "call_method"):
        return []
    return nodes_in(_written(node)) if is_torch(node) else node.all_input_nodes


def _written_by_module(node: fx.Node, module: nn.Module) -> list[Any]:
    """Its own tensors are statistics of the batch, or an embedding's rows above `max_norm`."""
    stored = [*module.parameters(), *module.buffers()]
    if not _is_known(module):
        return [*node.all_input_nodes, *stored]
    into = node.all_input_nodes if getattr(module, "inplace", False) else []
    for part in module.modules():
        measures = part.training and isinstance(part, nn.modules.batchnorm._NormBase)
        if measures or getattr(part, "max_norm", None) is not None:
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
    """The nodes inside of nested lists, tuples, slices and dicts, in order."""
    found: list[fx.Node] = []
    fx.map_arg(value, found.append)
    return found


def written_arguments(
    function: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any]
) -> list[Any]:
    """Those of the arguments into which an ATen operation writes, by its schema."""
    takes = function._schema.arguments
    supplied = dict(zip((one.name for one in takes), args, strict=False)) | dict(kwargs)
    return [
        supplied.get(one.name)
        for one in takes
        if one.alias_info is not None and one.alias_info.is_write
    ]


def _has_inplace(node: fx.Node) -> bool:
    """Whether a function is called with `inplace` as anything but False."""
    return setting(node, _inplace_position(node.target), "inplace", False) is not False


def setting(node: fx.Node, position: int, name: str, default: Any) -> Any:
    """An argument that may be given by position or by name, or its default."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


@functools.cache
def _inplace_position(function: Any) -> int:
    """Where `inplace` stands among the arguments of a function; behind them all if it has none, as
    a method has.
    """
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    return names.index("inplace") if "inplace" in names else 99


def is_fresh(node: fx.Node) -> bool:
    """Whether the result is a new tensor that shares storage with none of the node's inputs."""
    module = called_module(node)
    if module is not None:
        in_place = getattr(module, "inplace", False)
        return _makes_new(module) and not has_hooks(module) and not in_place
    name = bare_name(node.target)
    if name in ARITHMETIC and not isinstance(node.meta.get("val"), torch.Tensor):
        return False  # tuples add, too, and hold the same tensors afterwards
    return name in FRESH and is_torch(node) and not _has_inplace(node) and "out" not in node.kwargs


def is_random(node: fx.Node) -> bool:
    """Whether a call may draw random numbers: that of a module if a part of it is in train mode."""
    module = called_module(node)
    if module is not None:
        return any(part.training for part in module.modules())
    name = bare_name(node.target)
    if "dropout" in name:
        return setting(node, 2, "training", True) is not False
    return draws(name)


@functools.cache
def draws(name: str) -> bool:
    """Whether the operation of this name draws random numbers by its nature (dropout does when
    training).
    """
    if name in ("dropout1d", "dropout2d", "dropout3d", "gumbel_softmax"):  # written in Python
        return True
    packet = getattr(torch.ops.aten, name, None)
    overloads = packet.overloads() if packet is not None else []
    return any(
        torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags
        for overload in overloads
    )


def is_pure(node: fx.Node) -> bool:
    """Whether this node may go, provided that no node uses its result: it has no other effect."""
    if node.op == "get_attr":
        return True
    module = called_module(node)
    if module is not None:
        understood = _is_known(module)
    else:
        understood = is_torch(node) and not bare_name(node.target).startswith("_assert")
    return understood and not written(node) and not is_random(node)


class Storage:
    """Which values of a graph may share storage, and which of them are written to, by the graph or
    by the caller.
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
        """Whether the network returns the value of `node`, or a view of it: the caller may write
        into that.
        """
        return node in self._returned

    def is_kept(self, node: fx.Node) -> bool:
        """Whether `node` may give an input or a tensor of the network, or a view of one."""
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
    """The same for all tensors on the same storage; of anything else its id."""
    try:
        return tensor.untyped_storage()._cdata
    except (AttributeError, NotImplementedError):  # no tensor, or one without storage (sparse)
        return id(tensor)
