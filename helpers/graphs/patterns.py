"""The pattern language: what a piece of graph looks like, written as data.

A pattern is a small tree (or DAG) that is read from its result towards its inputs. Four kinds of
node make it up:

    OpPattern(targets, args)   an operation: a call of one of `targets` with operands like `args`
    Value(name)                any input; where the pattern ends
    Constant(name)             a number, or a parameter or buffer of the network
    a Python literal           must be equal; `...` as the last operand stands for any others

The outermost operation is the *anchor*: a rewrite replaces it, and it may have any number of users.
The others are *intermediates*: a rewrite removes them, so nothing outside the match may use them,
and the network may not return them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from helpers.graphs.operations import target_name


@dataclass(frozen=True, eq=False)
class Value:
    """Any input of a pattern.

    The same `Value` object in two places must be the same node in the graph.

    Args:
        name: the name under which a match gives the node back.
        where: a condition on the node (or on the literal that stands there); raises `Declined`.
    """

    name: str
    where: Callable[[Any], None] | None = None


class Constant(Value):
    """An input that does not depend on the network's inputs; `where` gets its value.

    A Python number counts, and so does a `get_attr` of a tensor that the graph never writes to.
    """


class OpPattern:
    """An operation.

    Args:
        targets: what the node may call: functions, ATen overloads, names of methods, classes of
            modules. A subclass of a module class is not that class: it may compute something else.
        args: patterns of the positional operands, `...` last for 'and any others'; None for any
            operands at all.
        kwargs: patterns of the keyword operands. Keywords that are not named here must be absent,
            unless `args` is None or ends in `...`.
        name: the name under which a match gives the node back.
        commutative: the first two operands may be swapped.
    """

    def __init__(
        self,
        targets: Iterable[Any],
        args: tuple[Any, ...] | None = None,
        *,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        commutative: bool = False,
    ):
        self.targets = frozenset(targets)
        self.allows_others = args is None or args[-1:] == (...,)
        self.args = tuple(arg for arg in args or () if arg is not ...)
        self.kwargs = dict(kwargs or {})
        self.name = name
        self.commutative = commutative
        if not self.targets or (commutative and len(self.args) < 2):
            raise ValueError(
                f"operation {self} needs at least one target, and two operands if it is commutative"
            )

    def __repr__(self) -> str:
        return self.name or "/".join(sorted(target_name(target) for target in self.targets))
