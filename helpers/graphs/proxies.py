"""What a forward gets in place of tensors and numbers while it is recorded.

Proxy         stands for any value; knows nothing about it
ValueProxy    stands for a tensor or a number, and knows its value: a forward may decide by it
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from torch import fx

from helpers.graphs.operations import WRITING

NOT_RECORDED = "which no graph records: write into the tensor itself, x.copy_(...)"


class Proxy(fx.Proxy):
    """Stands for a value, and records writing, which torch.fx does not."""

    def __getattr__(self, name: str) -> Any:
        """A method or property, into which one may write as well."""
        return Attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What torch.fx keeps here; nothing else would come into the graph."""
        if name not in ("tracer", "node", "root", "attr", "_node"):
            raise RuntimeError(f"it sets .{name} of a tensor, {NOT_RECORDED}")
        super().__setattr__(name, value)

    def _record(self, function: Callable[..., Any], *args: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, *args), {})


for _function in WRITING:
    setattr(Proxy, f"__{_function.__name__}__", functools.partialmethod(Proxy._record, _function))


class Attribute(Proxy, fx.proxy.Attribute):
    """`x.T` or `x.data`, or the method of a call."""


class ValueProxy(Proxy):
    """Stands for a tensor or a number that the tracer knows."""

    @property
    def _value(self) -> Any:
        return self.tracer.values[self.node]

    def __getattr__(self, name: str) -> Any:
        """A method is in the graph when it is called, a property when it is asked for."""
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

    def __round__(self) -> int:
        return round(self._value)


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

    A proxy cannot say so by `__class__`: C code that believes it would crash.
    """
    return builtin(x, classes) or (type(x) is ValueProxy and builtin(x._value, classes))
