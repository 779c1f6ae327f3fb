"""torch.fx's tracer, made to record what it would otherwise lose without a word.

y += 1, y[0] = 1          write into y, and into whatever shares its storage; torch.fx makes the
first y = y + 1
torch.rand(3)             draws new numbers in each call; torch.fx draws them once
self.count += 1           writes into a buffer; torch.fx hangs a stand-in into the network
forward(x, mask=None)     called without a mask; torch.fx takes the branch with one, and cannot
decide by a flag
forward(*images)          as many inputs as the example call has; torch.fx cannot say how many there
are
with torch.autocast()     changes dtypes; torch.fx forgets it, so it is refused, and so is
torch.vmap

Whether gradients are computed (`torch.no_grad`) is no part of a graph: the answers are the same.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.graphs.effects import AUGMENTED, WRITING, address, draws, op_name, written_arguments


class _Proxy(fx.Proxy):
    """A stand-in that also records writing."""

    def _record(self, function: Callable[..., Any], *args: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, *args), {})


for _function in WRITING:
    setattr(_Proxy, f"__{_function.__name__}__", functools.partialmethod(_Proxy._record, _function))


def _autocast() -> tuple[bool, bool]:
    return torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")


class Tracer(fx.Tracer):
    """Records one call with `given` positional arguments; None, as in reading a saved graph, gives
    all there are.
    """

    proxy_buffer_attributes = (
        True  # else what the network does to its buffers happens now, and never again
    )

    def __init__(self, given: int | None = None):
        super().__init__()
        self._given = given
        self._autocast = _autocast()

    def record(self, model: nn.Module) -> fx.Graph:
        """The graph of a model, which keeps its buffers; an error if it puts another tensor in the
        place of one.
        """
        tables = [
            (path, module._buffers, dict(module._buffers)) for path, module in model.named_modules()
        ]
        graph = self.trace(model)
        for path, table, before in tables:
            for name, value in list(table.items()):
                if isinstance(value, fx.Proxy):
                    table[name] = before[name]
                    _check_assignment(f"{path}.{name}".lstrip("."), value.node)
        return graph

    def trace(self, root: Any, concrete_args: Any = None) -> fx.Graph:
        """The graph of a model, whose tables of buffers may hold stand-ins afterwards."""
        with _RecordRandom(self):
            return super().trace(root, concrete_args)

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A node of the graph; an error under an autocast that the call as a whole is not under,
        and in vmap.
        """
        inside_vmap = torch._C._functorch.peek_interpreter_stack() is not None
        if inside_vmap or _autocast() != self._autocast:
            name, where = (
                getattr(target, "__name__", target),
                "torch.func" if inside_vmap else "torch.autocast",
            )
            raise RuntimeError(
                f"it calls {name} under {where}, which a graph of torch.fx does not record"
            )
        return super().create_node(kind, target, *args, **kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """A stand-in for the value of a node."""
        return _Proxy(node, self)

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """As many stand-ins as the call has arguments; what is not given takes its default, and is
        no input.
        """
        names = (
            None if self._given is None else _names_of_inputs(inspect.unwrap(root_fn), self._given)
        )
        if names is None:  # whoever reads the graph says that the number is wrong
            return super().create_args_for_root(root_fn, is_module, concrete_args)
        return root_fn, [
            self.root,
            *(self.create_proxy("placeholder", name, (), {}) for name in names),
        ]


def _names_of_inputs(function: Callable, given: int) -> list[str] | None:
    """x, y, rest_0, rest_1 for forward(self, x, y, *rest) with four arguments; None where it does
    not take so many.
    """
    try:
        bound = inspect.signature(function).bind("self", *range(given)).arguments
    except TypeError:
        return None
    rest = {
        name: [f"{name}_{i}" for i in range(len(value))]
        for name, value in bound.items()
        if type(value) is tuple
    }
    return [one for name in bound for one in rest.get(name, [name])][1:]


def _check_assignment(path: str, node: fx.Node) -> None:
    """`self.count += 1` writes into the buffer and puts it where it was; that is all right."""
    source = node
    # A buffer may be called count_, and has no arguments.
    while (
        isinstance(source, fx.Node)
        and source.args
        and (source.target in AUGMENTED or op_name(source)[-1:] == "_")
    ):
        source = source.args[0]
    if not (isinstance(source, fx.Node) and source.op == "get_attr" and source.target == path):
        name = path.rpartition(".")[2]
        raise RuntimeError(
            f"it assigns the result of {node} to its buffer {path}, and a graph cannot put another"
            f" tensor in its place: write into it instead, self.{name}.copy_(...)"
        )


class _RecordRandom(TorchFunctionMode):
    """torch.fx runs a call without traced arguments at once.

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
        self._names = {
            address(tensor): name
            for name, tensor in (*root.named_parameters(), *root.named_buffers())
        }

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        written = torch.utils._pytree.tree_leaves(written_arguments(function, args, kwargs or {}))
        if names := [self._names[one] for one in map(address, written) if one in self._names]:
            raise RuntimeError(
                f"it writes into {names[0]} where torch.fx does not see it: write into"
                f" self.{names[0]}"
            )
        return function(*args, **(kwargs or {}))
