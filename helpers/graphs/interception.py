"""What a forward does that torch.fx alone would refuse or silently get wrong, and what catches it:

y += 1, y[0] = 1        writes into y, and into whatever shares its storage   Proxy
if y.shape[1] > 8       decides by a size: its value is known                 ValueProxy
torch.rand(3)           draws new numbers in each call, without a proxy       RecordRandom
self.w.data.add_(1)     writes into the network now, and in no later call     KeepTensors
self.count = y          puts another tensor in the place of a buffer          check_assignment
forward(x, mask=None)   called without a mask takes the branch without one    names_of_inputs
forward(*images)        has as many inputs as the example call                names_of_inputs
"""

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode, is_tensor_method_or_property
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers.graphs.effects import address, draws, written_arguments
from helpers.graphs.errors import GraphMismatch
from helpers.graphs.operations import WRITING, is_in_place

NOT_RECORDED = "which no graph records: write into the tensor itself, x.copy_(...)"


class Proxy(fx.Proxy):
    """Stands for a value, and records writing, which torch.fx does not."""

    def __getattr__(self, name: str) -> Any:
        """A method or property; writing into it is recorded, too."""
        return Attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Allow what torch.fx itself keeps here; any other assignment would not be recorded."""
        if name not in ("tracer", "node", "root", "attr", "_node"):
            raise RuntimeError(f"it sets .{name} of a tensor, {NOT_RECORDED}")
        super().__setattr__(name, value)

    def _record(self, function: Callable[..., Any], *args: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, *args), {})


for _function in WRITING:
    setattr(Proxy, f"__{_function.__name__}__", functools.partialmethod(Proxy._record, _function))


class Attribute(Proxy, fx.proxy.Attribute):
    """`x.T`, `x.data`, or the `view` of `x.view(3)`."""


class ValueProxy(Proxy):
    """Stands for a tensor or a number that the tracer knows."""

    @property
    def _value(self) -> Any:
        return self.tracer.values[self.node]

    def __getattr__(self, name: str) -> Any:
        """A method is recorded when it is called, a property when it is read."""
        if callable(getattr(self._value, name)):
            return super().__getattr__(name)
        return self.tracer.create_proxy("call_function", getattr, (self, name), {})

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __len__(self) -> int:
        return int(self.shape[0])

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    # Where the forward decides, it gets a plain answer.
    def __bool__(self) -> bool:
        return bool(self._value)

    def __int__(self) -> int:
        return int(self._value)

    def __float__(self) -> float:
        return float(self._value)

    def __index__(self) -> int:
        return operator.index(self._value)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._value, digits)

    def __hash__(self) -> int:
        """So that a set or dictionary finds what equals the value."""
        return hash(self._value)

    def __eq__(self, other: Any) -> Any:
        """Nothing equals a value of an earlier recording, which a cache may still hold."""
        return self.tracer.submodule_paths is not None and super().__eq__(other)


class Sizes(tuple):
    """Proxies in place of a torch.Size."""

    def __getitem__(self, i: Any) -> Any:
        part = super().__getitem__(i)
        return Sizes(part) if isinstance(i, slice) else part

    def numel(self) -> Any:
        """How many values there are."""
        return math.prod(self)


def isinstance_of_value(
    x: Any, classes: Any, builtin: Callable[[Any, Any], bool] = isinstance
) -> bool:
    """`isinstance` for a forward that asks: a proxy is what its value is.

    A proxy cannot say so itself, by `__class__`: C code that believed it would crash. This function
    replaces `isinstance`; the real one is `builtin`.
    """
    return builtin(x, classes) or (type(x) is ValueProxy and builtin(x._value, classes))


class RecordRandom(TorchFunctionMode):
    """Records calls that draw random numbers; torch.fx runs a call without proxies at once."""

    def __init__(self, tracer: fx.Tracer):
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if draws(name):
            is_method = is_tensor_method_or_property(function)
            call = ("call_method", name) if is_method else ("call_function", function)
            return self._tracer.create_proxy(*call, args, kwargs or {})
        return function(*args, **(kwargs or {}))


class KeepTensors(TorchDispatchMode):
    """Refuses to write into the network's own tensors while it is recorded."""

    def __init__(self, stored: dict[str, torch.Tensor]):
        super().__init__()
        self._stored = stored

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for tensor in tree_leaves(written_arguments(function, args, kwargs or {})):
            for name, stored in self._stored.items():
                if address(stored) == address(tensor):
                    reason = f"it writes into {name} where torch.fx does not see it"
                    raise RuntimeError(f"{reason}: write into self.{name}")
        return function(*args, **(kwargs or {}))


def names_of_inputs(function: Callable, count: int) -> list[str]:
    """The names of the inputs: x, y, rest_0, rest_1 for forward(self, x, y, *rest) and count 4."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind("self", *range(count)).arguments
    except TypeError as error:
        reason = f"forward{signature} got {count} example inputs: {error}"
        if any(_is_required_keyword(parameter) for parameter in signature.parameters.values()):
            reason = "forward takes an input by its name alone: give it a place (no *, before it)"
        raise GraphMismatch("tracing", reason) from error
    names: list[str] = []
    for name, value in bound.items():
        several = isinstance(value, tuple)
        names += [f"{name}_{i}" for i in range(len(value))] if several else [name]
    return names[1:]


def _is_required_keyword(parameter: inspect.Parameter) -> bool:
    by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return by_name and parameter.default is inspect.Parameter.empty


def check_assignment(path: str, node: fx.Node) -> None:
    """Refuse a forward that puts another tensor in the place of a buffer. `self.count += 1` is all
    right: it writes into the buffer, and puts it where it was.
    """
    source = node
    # A get_attr node has no arguments; its target may look like an operation in place (count_).
    while isinstance(source, fx.Node) and source.args and is_in_place(source.target):
        source = source.args[0]
    if not (isinstance(source, fx.Node) and source.op == "get_attr" and source.target == path):
        name = path.rpartition(".")[2]
        raise RuntimeError(
            f"it assigns the result of {node} to its buffer {path}, and a graph cannot put another"
            f" tensor in its place: write into it instead, self.{name}.copy_(...)"
        )
