"""The pattern language: what a piece of graph looks like, written as data.

A pattern is a small tree (or DAG) that is read from its result towards its inputs. Four kinds of node make it up:

    Op(targets, args)   a node that computes: one of `targets`, whose operands look like `args`
    Value(name)         any input; where the pattern ends
    Constant(name)      a number, or a parameter or buffer of the network; `where` may ask for more
    a Python literal    must be equal; `LITERAL` stands for any literal, `...` for any further operands

An operation inside a pattern is an *intermediate*: a rewrite makes it vanish, so nobody outside the match may use it
and the network may not return it. `keep=True` lifts that rule for one node. The outermost operation (the *anchor*) is
what a rewrite replaces, so it may have any number of users.

`matching.find` looks patterns up in a graph, and says in one line why it refused a piece that almost matched.

Example:
    >>> conv = Op([nn.Conv2d], name="conv")
    >>> conv_bias = Op([operator.add, torch.add], (conv, Constant("z")), commutative=True, name="add")
    >>> matching.find(graph_module, conv_bias).matches[0]["conv"]
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx

# A test that a pattern makes beyond its shape. It gets the node (or the constant) and returns None when all is well,
# else one line that says what is wrong.
Condition = Callable[[Any], str | None]


class PatternError(ValueError):
    """A pattern that cannot be meant as it is written."""


class _Literal:
    """Any Python literal: a number, a string, a dtype, None, or a list of those."""

    def __repr__(self) -> str:
        return "LITERAL"


LITERAL = _Literal()


@dataclass(frozen=True, eq=False)
class Value:
    """Any input of a pattern. The same `Value` object in two places must be the same node in the graph.

    Args:
        name: the key under which a match gives the node back.
        where: a further condition on the node (or on the literal that stands there).
    """

    name: str
    where: Condition | None = None


@dataclass(frozen=True, eq=False)
class Constant(Value):
    """An input that does not depend on the network's inputs; `where` gets the number or the tensor itself.

    A Python number counts, and so does a `get_attr` of a tensor that the graph never writes to. A match gives back the
    node or the number, and `Match.constant(name)` gives its value.
    """


class Op:
    """A node that computes.

    Args:
        targets: what it may call: functions and ATen overloads, method names (strings), module classes. A subclass of a
            module class is not that class, for it may compute something else.
        args: patterns of the positional operands, `...` last for 'and any others'; None for any operands at all.
        kwargs: patterns of the keyword operands. Keywords that are not named here must be absent, unless `args` is None
            or ends in `...`.
        name: the key under which a match gives the node back.
        commutative: the first two operands may be swapped.
        keep: the node survives the rewrite, so others may use it too.
        where: a further condition on the node.
    """

    def __init__(
        self,
        targets: Iterable[Any],
        args: tuple[Any, ...] | None = None,
        *,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        commutative: bool = False,
        keep: bool = False,
        where: Condition | None = None,
    ):
        self.targets = frozenset(targets)
        self.open = args is None or (len(args) > 0 and args[-1] is ...)
        self.args = () if args is None else tuple(arg for arg in args if arg is not ...)
        self.kwargs = dict(kwargs or {})
        self.name, self.commutative, self.keep, self.where = name, commutative, keep, where
        if not self.targets:
            raise PatternError(f"operation {name or ''} has no targets: name at least one function, method or class")
        if commutative and len(self.args) < 2:
            raise PatternError(f"{self} is commutative but describes fewer than two operands: give both")

    def __repr__(self) -> str:
        return self.name or "/".join(sorted(_target_name(target) for target in self.targets))

    def orders(self) -> Iterable[tuple[Any, ...]]:
        """The orders in which the operands may stand: one, or two when the operation is commutative."""
        yield self.args
        if self.commutative:
            yield (self.args[1], self.args[0], *self.args[2:])


def _target_name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


@dataclass(frozen=True)
class Pattern:
    """One or several results that are looked for together.

    Args:
        outputs: the anchors. With several, they belong to one match and usually share inputs.

    A lone `Op` may stand wherever a `Pattern` is asked for.
    """

    outputs: tuple[Op, ...]

    def nodes(self) -> list[Any]:
        """Every `Op` and `Value` of the pattern, inputs first, each once."""
        seen: dict[Any, None] = {}

        def visit(part: Any) -> None:
            if isinstance(part, Op) and part not in seen:
                for operand in (*part.args, *part.kwargs.values()):
                    visit(operand)
            if isinstance(part, (list, tuple)):
                for operand in part:
                    visit(operand)
            if isinstance(part, (Op, Value)):
                seen.setdefault(part)

        visit(self.outputs)
        return list(seen)


def as_pattern(pattern: "Op | Pattern") -> Pattern:
    """The pattern itself, or the pattern of one result that a lone `Op` stands for."""
    return pattern if isinstance(pattern, Pattern) else Pattern((pattern,))


COMMUTATIVE_NAMES = {"add", "mul", "maximum", "minimum"}


def traced(function: Callable[..., Any]) -> Pattern:
    """The pattern that a Python function computes: its arguments become values, its operations become `Op`s.

    Module calls match by the class of the module, so `function` may be an `nn.Module` whose submodules are examples.
    Addition and multiplication of two nodes match in either order.

    Args:
        function: a function or module that `torch.fx` can trace.

    Returns:
        A pattern whose anchors are the values that the function returns.

    Example:
        >>> find(graph_module, traced(lambda x: x * torch.sigmoid(x)))
    """
    example = fx.symbolic_trace(function)
    made: dict[fx.Node, Any] = {}
    for node in example.graph.nodes:
        if node.op == "placeholder":
            made[node] = Value(node.name)
        elif node.op == "get_attr":
            made[node] = Constant(node.name)
        elif node.op == "output":
            results = node.args[0] if isinstance(node.args[0], (list, tuple)) else (node.args[0],)
            if not all(isinstance(made.get(result), Op) for result in results):
                raise PatternError("a pattern must return the results of operations, not its own inputs or literals")
            return Pattern(tuple(made[result] for result in results))
        else:
            made[node] = _op_of(example, node, made)
    raise PatternError("the traced function returns nothing: a pattern needs at least one result")


def _op_of(example: fx.GraphModule, node: fx.Node, made: dict[fx.Node, Any]) -> Op:
    """The `Op` that stands for one traced node."""
    target = type(example.get_submodule(node.target)) if node.op == "call_module" else node.target
    args = fx.node.map_arg(node.args, made.__getitem__)
    kwargs = fx.node.map_arg(node.kwargs, made.__getitem__)
    two_nodes = len(node.args) == 2 and all(isinstance(arg, fx.Node) for arg in node.args)
    commutative = two_nodes and _target_name(target).split(".")[0] in COMMUTATIVE_NAMES
    return Op([target], tuple(args), kwargs=dict(kwargs), name=node.name, commutative=commutative)
