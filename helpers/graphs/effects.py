"""What a node does besides computing its result: what it writes to, what it shares storage with,
whether it is random.

Whoever moves, merges or deletes a node asks here first. All answers err on the safe side: a
function or module that is not known to be torch's own may do anything.
"""

import functools
import inspect
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from helpers.graphs.operations import ARITHMETIC, FRESH, FRESH_MODULES

# What an augmented assignment does to a tensor, into which it writes, and what it does to a number.
_NAMES = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
)
AUGMENTED = {getattr(operator, f"i{name}"): getattr(operator, f"__{name}__") for name in _NAMES}
WRITING = {*AUGMENTED, operator.setitem, operator.delitem}
# What writes into the tensors behind its first argument, unless a setting is off: its place, its
# name, its default.
KEEPING_COUNT = {
    "batch_norm": (5, "training", False),
    "instance_norm": (5, "use_input_stats", True),
}
KEEPING_COUNT |= {"embedding": (3, "max_norm", None), "embedding_bag": (3, "max_norm", None)}

_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def op_name(node: fx.Node) -> str:
    """The bare name of what a function or method node calls: "add_" for `x.add_(y)`,
    `aten.add_.Tensor`, ...
    """
    if isinstance(node.target, _OPERATORS):
        return (
            str(node.target).removeprefix("aten.").split(".")[0]
        )  # of another library its name: it may do anything
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return (
        name.rstrip("_") if hasattr(operator, name) else name
    )  # operator.and_ writes into nothing


def target_name(target: Any) -> str:
    """What a node calls, in a word: "relu" for `F.relu`, "conv1" for the module of that name."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def attribute(root: nn.Module, path: str) -> Any:
    """What the dotted `path` of a `get_attr` node names; the network itself at the empty one."""
    return operator.attrgetter(path)(root) if path else root


def called_modules(graph_module: fx.GraphModule) -> dict[str, nn.Module]:
    """The modules that a graph calls, by path."""
    paths = {node.target for node in graph_module.graph.find_nodes(op="call_module", sort=False)}
    return {path: attribute(graph_module, path) for path in paths}


def callee(node: fx.Node, modules: Mapping[str, nn.Module]) -> Any:
    """What a node calls, as patterns name it: a function, a method name or a module class; None if
    it calls nothing.
    """
    if node.op == "call_module":
        return type(modules.get(node.target))
    return node.target if node.op in ("call_function", "call_method") else None


def is_torch(node: fx.Node) -> bool:
    """Whether a function or method node calls something of torch, or an operator of Python."""
    return node.op == "call_method" or _is_torch_function(node.target)


@functools.cache
def _is_torch_function(function: Any) -> bool:
    if isinstance(function, torch._ops.HigherOrderOperator):
        return False  # it runs a graph of its own, which may do anything
    if isinstance(function, _OPERATORS):
        return str(function).startswith(("aten.", "prims."))
    origin = (getattr(function, "__module__", None) or "").split(".")[0]
    return origin in ("torch", "_operator", "math") or function is getattr


def has_hooks(module: nn.Module) -> bool:
    """Whether calling this module also calls somebody's hook."""
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return any(getattr(module, kind, None) for kind in kinds)


def _is_known(module: nn.Module | None) -> bool:
    parts = [] if module is None else [*module.modules()]
    ours = (
        type(part).__module__.startswith("torch.nn.") or _is_fresh_class(type(part))
        for part in parts
    )
    return bool(parts) and all(ours) and not any(map(has_hooks, parts))


def _is_fresh_class(cls: type) -> bool:
    """Whether it makes a new tensor and does nothing else; a class of our own, as `FusedLayer`,
    says that it does.
    """
    return cls in FRESH_MODULES or getattr(cls, "only_computes", False)


def written_inputs(node: fx.Node, module: nn.Module | None = None) -> list[fx.Node]:
    """The nodes into whose values this one writes; `module` is what a call_module node calls."""
    name, first, written = (
        op_name(node),
        node.args[:1] or tuple(node.kwargs.values())[:1],
        node.kwargs.get("out"),
    )
    if node.op == "call_module":
        if not _is_known(module):
            return node.all_input_nodes
        written = first if getattr(module, "inplace", False) else None
    elif node.op not in ("call_function", "call_method"):
        return []
    elif not is_torch(node):
        return node.all_input_nodes
    elif (how := KEEPING_COUNT.get(name.removeprefix("native_"))) and _setting(node, *how) not in (
        False,
        None,
    ):
        written = (node.args[1:], node.kwargs)
    elif isinstance(node.target, torch._ops.OpOverload):
        written = written_arguments(node.target, node.args, node.kwargs)
    elif (
        node.target in WRITING
        or (name.endswith("_") and not name.endswith("__"))
        or _is_in_place(node)
    ):
        written = first
    return nodes_in(written)


def nodes_in(value: Any) -> list[fx.Node]:
    """The nodes inside of nested lists, tuples, slices and dicts, in order."""
    found: list[fx.Node] = []
    fx.map_arg(value, found.append)
    return found


def writes_own(module: nn.Module | None) -> bool:
    """Whether a call of this module may write into its own tensors: statistics of the batch, rows
    above `max_norm`.
    """
    if module is None or not _is_known(module):
        return module is not None
    norms = (part for part in module.modules() if isinstance(part, nn.modules.batchnorm._NormBase))
    limits = (getattr(part, "max_norm", None) for part in module.modules())
    return any(norm.training for norm in norms) or any(limit is not None for limit in limits)


def written_arguments(
    function: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any]
) -> list[Any]:
    """Those of the arguments into which an ATen operation writes, by its schema."""
    takes = function._schema.arguments
    given = dict(zip((one.name for one in takes), args, strict=False)) | dict(kwargs)
    return [
        given.get(one.name)
        for one in takes
        if one.alias_info is not None and one.alias_info.is_write
    ]


def _is_in_place(node: fx.Node) -> bool:
    """Whether a function is called with `inplace` as anything but False."""
    position = _inplace_position(node.target) if node.op == "call_function" else len(node.args)
    return _setting(node, position, "inplace", False) is not False


def _setting(node: fx.Node, position: int, name: str, default: Any) -> Any:
    return (*node.args[position : position + 1], node.kwargs.get(name, default))[0]


@functools.cache
def _inplace_position(function: Any) -> int:
    """Where `inplace` stands among the arguments of a function; behind them all when there is none."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    return names.index("inplace") if "inplace" in names else 99


def is_fresh(node: fx.Node, module: nn.Module | None = None) -> bool:
    """Whether the result is a new tensor that shares storage with none of the node's inputs."""
    if node.op == "call_module":
        return (
            _is_fresh_class(type(module))
            and not has_hooks(module)
            and not getattr(module, "inplace", False)
        )
    if op_name(node) in ARITHMETIC and not isinstance(node.meta.get("val"), torch.Tensor):
        return False  # tuples add, too, and hold the same tensors afterwards
    return (
        is_torch(node)
        and op_name(node) in FRESH
        and not _is_in_place(node)
        and "out" not in node.kwargs
    )


def is_random(node: fx.Node, module: nn.Module | None = None) -> bool:
    """Whether a call may draw random numbers: that of a module while a part of it is in train mode."""
    if module is not None:
        return any(part.training for part in module.modules())
    name = op_name(node)
    if "dropout" in name:
        flags = [
            value
            for value in (*node.args[2:], *node.kwargs.values())
            if isinstance(value, (bool, fx.Node))
        ]
        return flags[:1] != [False]
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


def is_pure(node: fx.Node, module: nn.Module | None = None) -> bool:
    """Whether nobody would notice if this node were not run, provided that its result is not used."""
    if node.op == "call_module":
        return not (writes_own(module) or is_random(node, module) or written_inputs(node, module))
    if node.op == "get_attr":
        return True
    return is_torch(node) and not (
        written_inputs(node) or is_random(node) or op_name(node).startswith("_assert")
    )


class Storage:
    """Which values of a graph may share storage, and which of them somebody writes to, the caller
    among them.
    """

    def __init__(self, graph_module: fx.GraphModule):
        self._shared: dict[
            Any, set[Any]
        ] = {}  # a node, or the address of a tensor's storage -> all that share it
        modules, written, returned = called_modules(graph_module), [], []
        self.writers: list[fx.Node] = []  # in graph order
        for node in graph_module.graph.nodes:
            module = modules.get(node.target) if node.op == "call_module" else None
            if node.op == "get_attr":
                self._join(node, address(attribute(graph_module, node.target)))
            elif node.op == "output":
                returned = node.all_input_nodes
            elif not is_fresh(node, module):
                for value in node.all_input_nodes:
                    self._join(node, value)
            into: list[Any] = written_inputs(node, module)
            if writes_own(module):
                into = [*into, *map(address, (*module.parameters(), *module.buffers()))]
            self.writers += [node] if into else []
            written += into
        self._written, self._returned = map(self._reached, (written, returned))

    def is_written(self, node: fx.Node) -> bool:
        """Whether the graph may write into the value of `node`, directly or through something that
        shares storage.
        """
        return node in self._written

    def is_tensor_written(self, tensor: torch.Tensor | None) -> bool:
        """The same for a parameter or buffer of the network."""
        return tensor is not None and address(tensor) in self._written

    def is_returned(self, node: fx.Node) -> bool:
        """Whether the network returns the value of `node`, or a view of it: the caller may write
        into that.
        """
        return node in self._returned

    def is_kept(self, node: fx.Node) -> bool:
        """Whether the value of `node` may be, or be a view of, an input or a tensor of the network."""
        return any(
            not isinstance(one, fx.Node) or one.op == "placeholder" for one in self._reached([node])
        )

    def _reached(self, values: list[Any]) -> set[Any]:
        """All that shares storage with any of the values."""
        return set().union(*(self._shared.get(value, {value}) for value in values))

    def _join(self, one: Any, other: Any) -> None:
        small, large = sorted(
            (self._shared.setdefault(key, {key}) for key in (one, other)), key=len
        )
        if small is not large:
            large |= small
            self._shared.update(dict.fromkeys(small, large))


def address(tensor: Any) -> Any:
    """The same for all tensors on the same storage; anything else is its own."""
    try:
        return tensor.untyped_storage()._cdata
    except (
        AttributeError,
        NotImplementedError,
    ):  # no tensor, or one without a storage of its own, as a sparse one
        return id(tensor)
