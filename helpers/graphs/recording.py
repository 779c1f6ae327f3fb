"""The one tracer by torch.fx: it records what a call of a network does, and what each step gives.

The value of a node is worked out as soon as the node is there, on copies of what the network holds
that have shapes but no numbers (device "meta"), so a network of a gigabyte takes no longer than a
small one. `node.meta["val"]` keeps it: a tensor without data, a number, or a tuple of these.

Folding records strictly: a forward that decides by a size or a value is refused, since the graph
would hold for that one decision. Pruning follows the decision; it reads the small network again and
compares.

torch.fx alone would lose some things without a word:

    y += 1, y[0] = 1         write into y, and into whatever shares its storage
    torch.rand(3)            draws new numbers in each call
    self.count += 1          writes into a buffer
    forward(x, mask=None)    called without a mask takes the branch without one
    forward(*images)         has as many inputs as the example call
    with torch.autocast()    changes dtypes: refused, and so is torch.vmap

Whether gradients are computed (`torch.no_grad`) is not part of a graph: the answers are the same.
"""

import copy
import inspect
import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn
from torch._C import DisableTorchFunction, _DisableTorchDispatch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from helpers.graphs.effects import address, draws, has_hooks, written_arguments
from helpers.graphs.errors import GraphMismatch
from helpers.graphs.operations import AUGMENTED, KEEPS_SHAPE, attribute, is_in_place, name_of
from helpers.graphs.proxies import Proxy, Sizes, ValueProxy, isinstance_of_value

# Not strict: these functions take no tensor, and are recorded when a size goes into them.
CONSTRUCTORS = (torch.zeros, torch.ones, torch.full, torch.empty, torch.arange, torch.tensor)


class Recorder(fx.Tracer):
    """Records one call.

    Args:
        inputs: the arguments of the call. Without them, as when torch.fx loads a graph that was
            saved, all arguments of forward are inputs and no values are worked out.
        strict: refuse a forward that decides by a size or a value.
        with_data: work out the values on copies that have data, where an operation looks at them.
    """

    proxy_buffer_attributes = True  # or what is done to buffers would happen now, and never again

    def __init__(
        self, inputs: tuple[Any, ...] | None = None, strict: bool = True, with_data: bool = False
    ):
        super().__init__()
        self.values: dict[fx.Node, Any] = {}
        self.strict = strict
        self._inputs = inputs
        self._with_data = with_data
        # The id of a tensor or layer -> what takes its place while values are worked out.
        self._copies: dict[int, Any] = {}
        self._has_data = False
        self._evaluates = False
        self._autocast = _autocast()
        if not strict:
            self._autowrap_search.append(torch)
            self._autowrap_function_ids.update(map(id, CONSTRUCTORS))

    def record(self, model: nn.Module) -> fx.Graph:
        """The graph of a model, which keeps its buffers; an error if it puts another tensor in the
        place of one.
        """
        stored = stored_tensors(model)
        self._has_data = not all(tensor.is_meta for tensor in stored.values())
        if self._has_data and not self._with_data:
            for tensor in stored.values():
                self._copies[id(tensor)] = torch.empty_like(tensor, device="meta")
        ask = nullcontext() if self.strict else patch("builtins.isinstance", isinstance_of_value)
        with ask:
            graph = self.trace(model)
        for path, module in model.named_modules():
            for name, value in module._buffers.items():
                if isinstance(value, fx.Proxy):
                    full_name = f"{path}.{name}".lstrip(".")
                    module._buffers[name] = stored.get(full_name)
                    _check_assignment(full_name, value.node)
        graph.owning_module = model
        return graph

    def trace(self, root: Any, concrete_args: Any = None) -> fx.Graph:
        """The graph of a model, whose tables of buffers may hold proxies afterwards."""
        with KeepTensors(root), _RecordRandom(self):
            return super().trace(root, concrete_args)

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A node of the graph, which is there before its value: the last one is the one that fails.

        An error under an autocast that the call as a whole is not under, and in vmap.
        """
        inside_vmap = torch._C._functorch.peek_interpreter_stack() is not None
        if inside_vmap or _autocast() != self._autocast:
            name = getattr(target, "__name__", target)
            where = "torch.func" if inside_vmap else "torch.autocast"
            raise RuntimeError(
                f"it calls {name} under {where}, which a graph of torch.fx does not record"
            )
        node = super().create_node(kind, target, *args, **kwargs)
        if self._inputs is not None:
            self._note_value(node)
        return node

    def _note_value(self, node: fx.Node) -> None:
        self._evaluates = True
        try:
            with DisableTorchFunction(), _DisableTorchDispatch(), torch.no_grad():
                value = self._value(node)
                without_data = map_tensors(_on_meta, value)
                self.values[node] = value if self._with_data else without_data
                if node.op != "output":
                    # As it is now: an operation in place may change its shape.
                    node.meta["val"] = map_tensors(torch.Tensor.detach, without_data)
        except Exception as error:
            if not self.strict:
                raise
            advice = "Check the example inputs, and that dtypes and devices agree"
            reason = f"does not accept its inputs: {error}. {advice}"
            raise GraphMismatch("tracing", reason, node) from error
        finally:
            self._evaluates = False
        if node.target in AUGMENTED and isinstance(value, (int, float)):
            node.target = AUGMENTED[node.target]  # `n += 1` writes into nothing if n is a number

    def _value(self, node: fx.Node) -> Any:
        """What a node gives."""
        if node.op == "placeholder":
            value = self._inputs[len(self.values)]
            return map_tensors(torch.clone, value) if self._with_data else value
        if node.op == "output":
            return None
        called = node.target
        if node.op in ("get_attr", "call_module"):
            called = attribute(self.root, node.target)
        if node.op == "get_attr":
            return self._copy(called)
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        name = name_of(type(called) if node.op == "call_module" else called)
        if name in KEEPS_SHAPE and kwargs.keys() <= {"inplace"} and not any(self._autocast):
            # Asking torch gives the same answer, and takes up to 20 times as long.
            like = alike(args)
            if like is not None and like.is_meta and not has_hooks(called):
                return like.detach()
        if node.op == "call_module":
            called = self._copy(called)
        return perform(called, args, kwargs)

    def _copy(self, part: Any) -> Any:
        """What stands for a tensor or a layer, so that the network itself stays as it is; without
        data it may change.
        """
        return copy.deepcopy(part, self._copies) if self._has_data else part

    def proxy(self, node: fx.Node) -> Any:
        """What the forward gets for a node.

        Not strict: a tensor or number is followed, and so are those in a tuple; anything else
        (x.dtype) is what it is.
        """
        if self.strict:
            return Proxy(node, self)
        value = self.values[node]
        if isinstance(value, tuple | list):
            whole = ValueProxy(node, self)
            items = [
                self.create_proxy("call_function", operator.getitem, (whole, i), {})
                for i in range(len(value))
            ]
            return (Sizes if isinstance(value, torch.Size) else type(value))(items)
        if isinstance(value, bool) and self._tensors(node):
            return value
        return ValueProxy(node, self) if isinstance(value, torch.Tensor | int | float) else value

    def _tensors(self, node: fx.Node) -> list[fx.Node]:
        """The nodes among the arguments that are tensors."""
        return [n for n in node.all_input_nodes if isinstance(self.values[n], torch.Tensor)]

    def create_arg(self, a: Any) -> Any:
        """Not strict: a named tuple, as some networks return, is a tuple, and so are sizes."""
        if isinstance(a, fx.Proxy | int | float | str | None):
            return a.node if isinstance(a, fx.Proxy) else a
        if isinstance(a, tuple) and not self.strict:
            a = tuple(a)
        return super().create_arg(a)

    def call_module(
        self, m: nn.Module, forward: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        """What a layer does inside is not recorded; so below. One that forward has just made, and
        that has no tensors, is looked into.
        """
        made_in_forward = m not in self.submodule_paths and not stored_tensors(m)
        if self._evaluates or made_in_forward:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict) -> Any:
        """A parameter or buffer of the network is a node, the same each time."""
        if self._evaluates:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """As many proxies as the call has arguments; what is not given takes its default, and is
        no input.
        """
        if self._inputs is None:
            return super().create_args_for_root(root_fn, is_module, concrete_args)
        names = _names_of_inputs(inspect.unwrap(root_fn), len(self._inputs))
        proxies = [self.create_proxy("placeholder", name, (), {}) for name in names]
        return root_fn, [self.root, *proxies]


def _autocast() -> tuple[bool, bool]:
    return torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")


def perform(called: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call a function or module, or the method of this name."""
    if isinstance(called, str):
        return getattr(args[0], called)(*args[1:], **kwargs)
    return called(*args, **kwargs)


def alike(values: tuple[Any, ...]) -> torch.Tensor | None:
    """The first of float tensors of one shape and type, which their sum is like; None for anything
    else.
    """
    first = next(iter(values), None)
    if not isinstance(first, torch.Tensor) or not first.is_floating_point():
        return None
    return first if all(form(value) == form(first) for value in values[1:]) else None


def form(value: Any) -> tuple[torch.Size, torch.dtype] | None:
    """Shape and type of a tensor."""
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else None


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """A value with its tensors replaced."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (tuple, list, dict)) and not isinstance(value, torch.Size):
        return tree_map_only(torch.Tensor, function, value)
    return value


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_meta else torch.empty_like(tensor, device="meta")


def _names_of_inputs(function: Callable, count: int) -> list[str]:
    """x, y, rest_0, rest_1 for forward(self, x, y, *rest) with four arguments."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind("self", *range(count)).arguments
    except TypeError as error:
        reason = f"forward{signature} got {count} example inputs: {error}"
        if any(_has_no_place(parameter) for parameter in signature.parameters.values()):
            reason = "forward takes an input by its name alone: give it a place (no *, before it)"
        raise GraphMismatch("tracing", reason) from error
    names: list[str] = []
    for name, value in bound.items():
        several = isinstance(value, tuple)
        names += [f"{name}_{i}" for i in range(len(value))] if several else [name]
    return names[1:]


def _has_no_place(parameter: inspect.Parameter) -> bool:
    by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return by_name and parameter.default is inspect.Parameter.empty


def _check_assignment(path: str, node: fx.Node) -> None:
    """`self.count += 1` writes into the buffer and puts it where it was; that is all right."""
    source = node
    # A buffer may be called count_, and has no arguments.
    while isinstance(source, fx.Node) and source.args and is_in_place(source.target):
        source = source.args[0]
    if not (isinstance(source, fx.Node) and source.op == "get_attr" and source.target == path):
        name = path.rpartition(".")[2]
        raise RuntimeError(
            f"it assigns the result of {node} to its buffer {path}, and a graph cannot put another"
            f" tensor in its place: write into it instead, self.{name}.copy_(...)"
        )


class _RecordRandom(TorchFunctionMode):
    """torch.fx runs a call without proxies at once.

    That would freeze random numbers, so they are recorded.
    """

    def __init__(self, tracer: fx.Tracer):
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if draws(getattr(function, "__name__", "")):
            return self._tracer.create_proxy("call_function", function, args, kwargs or {})
        return function(*args, **(kwargs or {}))


class KeepTensors(TorchDispatchMode):
    """Refuses what would write into the network's own tensors now, and in no call of the graph."""

    def __init__(self, root: nn.Module):
        super().__init__()
        self._stored = stored_tensors(root)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for tensor in tree_leaves(written_arguments(function, args, kwargs or {})):
            for name, kept in self._stored.items():
                if address(kept) == address(tensor):
                    where = "where torch.fx does not see it"
                    raise RuntimeError(f"it writes into {name} {where}: write into self.{name}")
        return function(*args, **(kwargs or {}))


def stored_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and then every buffer, by every name that it has."""
    return dict(model.named_parameters(remove_duplicate=False)) | dict(
        model.named_buffers(remove_duplicate=False)
    )
