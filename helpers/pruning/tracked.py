"""Numbers that a network works out from the sizes of its tensors, and that remember where they come from.

They are ordinary numbers to everyone else, so that a forward may compute with them, pass them on, and even decide by
them. What it computes is recorded; that it decides (compares, rounds) is recorded as well, because another number of
channels could decide otherwise.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
ONE_SIDED = ("neg", "pos", "abs")
DECISIONS = ("eq", "ne", "lt", "le", "gt", "ge", "bool", "int", "float", "round", "trunc", "floor", "ceil")
DECISIONS += ("divmod", "rdivmod")
# Of whole numbers only.
BITS = ("and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift", "invert")


class Tracked:
    """What whole and other numbers have in common: `source`, the node of the graph, and who records."""

    source: Any
    recorder: Any

    def plain(self) -> int | float:
        """The number alone."""
        return int.__int__(self) if isinstance(self, int) else float.__float__(self)

    def __hash__(self) -> int:
        return hash(self.plain())


class Whole(Tracked, int):
    """A size, or a whole number computed from sizes."""


class Stated(Whole):
    """A size that a layer states, such as its `in_channels`; a node of the graph once somebody computes with it."""

    ask: Callable[[], Any]

    @property
    def source(self) -> Any:
        """A new node each time."""
        return self.ask()


class Real(Tracked, float):
    """Any other number computed from sizes."""


def track(value: float, recorder: Any, source: Any) -> Whole | Real:
    """The number, remembering the node that stands for it."""
    number = Whole(value) if isinstance(value, int) else Real(value)
    number.recorder, number.source = recorder, source
    return number


def state(value: int, recorder: Any, ask: Callable[[], Any]) -> Stated:
    """A number that a layer states; `ask` makes its node."""
    number = Stated(value)
    number.recorder, number.ask = recorder, ask
    return number


def plain(value: Any) -> Any:
    """The number alone; anything else as it is."""
    return value.plain() if isinstance(value, Tracked) else value


def computes(name: str, operands: Callable[..., tuple]) -> Callable[..., Any]:
    """A method that calculates and records."""
    function = getattr(operator, name)

    def method(self: Tracked, *others: Any) -> Any:
        if any(isinstance(other, torch.Tensor) for other in others):
            return NotImplemented  # the tensor's own operator comes next, and is recorded
        inputs = operands(self, *others)
        return self.recorder.computed(name, inputs, function(*map(plain, inputs)))

    return method


def decides(name: str) -> Callable[..., Any]:
    """A method whose plain answer is no longer followed, and is recorded as a decision."""

    def method(self: Tracked, *others: Any) -> Any:
        self.recorder.decided((self, *others))
        value = self.plain()
        return getattr(value, name)(*map(plain, others))

    return method


for _name in ARITHMETIC:
    setattr(Tracked, f"__{_name}__", computes(_name, lambda self, other: (self, other)))
    setattr(Tracked, f"__r{_name}__", computes(_name, lambda self, other: (other, self)))
for _name in ONE_SIDED:
    setattr(Tracked, f"__{_name}__", computes(_name, lambda self: (self,)))
for _name in DECISIONS:
    setattr(Tracked, f"__{_name}__", decides(f"__{_name}__"))
for _name in BITS:
    setattr(Whole, f"__{_name}__", decides(f"__{_name}__"))
for _name in ("bit_length", "bit_count"):
    setattr(Whole, _name, decides(_name))
