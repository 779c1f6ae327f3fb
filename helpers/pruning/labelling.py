"""Carry atoms through a graph: which channel sits at each index of each axis of each value.

One rule per operation (rules_*.py) says which atoms its result holds and which it ties. There is no rule for any
architecture. An operation without a rule pins every channel that reaches it: nothing is ever guessed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import EllipsisType
from typing import Any

import torch
from torch import fx, nn

from helpers.pruning.atoms import Atoms, Labels
from helpers.pruning.reader import name_of, operation, stored_tensors

Axes = list[Labels | None]
NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}  # PyTorch takes both


def leaves(value: Any) -> list:
    """The values inside nested lists, tuples, slices and dicts, in order."""
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    if isinstance(value, dict):
        value = [*value.values()]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list | tuple) else [value]


@dataclass
class Tensor:
    """A value of the graph: `axes[d]` holds the atom at each index of axis d, None if the axis cannot be cut.

    The axes of a parameter are filled in by the first operation that uses them as channels; until then Ellipsis.
    """

    shape: tuple[int, ...]
    axes: list[Labels | EllipsisType | None]
    name: str | None = None  # of a parameter or buffer


@dataclass
class Number:
    """A number that the network computed from sizes of axes that hold channels: it changes when they are cut."""

    value: Any
    axes: Axes


@dataclass
class Call:
    """One operation: its arguments are Tensors, Numbers and plain values, in the nesting that the graph gives them."""

    node: fx.Node
    name: str  # for people: "layer1.0.add (add)"
    op: str  # the operation's one name, or the layer's class
    args: tuple
    kwargs: dict[str, Any]
    output: Any  # a meta tensor, a tuple of them or a number
    module: nn.Module | None = None
    path: str = ""  # of the module
    inside: type = nn.Module  # the class of the module whose forward this call is in

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, given by position or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, self.kwargs.get(NUMPY_NAMES.get(name), default))

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Every tensor among the arguments, in order."""
        return [a for a in leaves((self.args, self.kwargs)) if isinstance(a, Tensor)]

    @cached_property
    def numbers(self) -> list[Number]:
        """Every number among the arguments that depends on a channel count."""
        return [a for a in leaves((self.args, self.kwargs)) if isinstance(a, Number)]


@dataclass(frozen=True)
class Layer:
    """One multiplication by a weight: a convolution or a linear layer, each time that it is called."""

    weight: str
    out_dim: int
    in_dim: int
    places: int  # how often an evaluation uses each weight: multiply-adds = places * elements of the weight


Rule = Callable[["Labelling", Call], Any]


@dataclass
class Labelling:
    """Everything that is known about the channels of one network."""

    model: nn.Module
    atoms: Atoms = field(default_factory=Atoms)
    tensors: dict[str, Tensor] = field(default_factory=dict)  # parameters and buffers, by canonical name
    # (module, attribute) -> (labels, divisor): the attribute counts the labels that are left, over the divisor.
    sizes: dict[tuple[str, str], tuple[Labels, int]] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    joined: list[Labels] = field(default_factory=list)  # atoms that meet in an addition or concatenation
    joins: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        stored = stored_tensors(self.model)
        first = {id(tensor): name for name, tensor in reversed(stored.items())}
        self.canonical = {name: first[id(tensor)] for name, tensor in stored.items()}
        self.shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
        self.learned = {first[id(tensor)] for tensor in stored.values() if isinstance(tensor, nn.Parameter)}

    def parameter(self, name: str) -> Tensor:
        """The one Tensor of a parameter or buffer, whatever name it is reached by."""
        name = self.canonical[name]
        shape = self.shapes[name]
        return self.tensors.setdefault(name, Tensor(shape, [...] * len(shape), name))

    def axis(self, tensor: Tensor, dim: int) -> Labels | None:
        """The atoms of an axis; new ones at a parameter's first use. Buffers have none to give."""
        if tensor.axes[dim] is ...:
            gives = tensor.shape[dim] > 1 and tensor.name in self.learned
            tensor.axes[dim] = self.atoms.fresh(tensor.shape[dim]) if gives else None
        return tensor.axes[dim]

    def like(self, x: Tensor) -> Tensor:
        """A result with the channels of its input."""
        return Tensor(x.shape, [self.axis(x, d) for d in range(len(x.shape))])

    def bind(self, tensor: Tensor, dim: int, labels: Labels | None, why: str) -> None:
        """Axis `dim` of the tensor is cut together with `labels`."""
        if tensor.axes[dim] is ...:
            tensor.axes[dim] = labels
        else:
            self.tie(tensor.axes[dim], labels, why)

    def tie(self, first: Labels | None, second: Labels | None, why: str) -> None:
        """Two axes are cut together; if one of them cannot be cut, neither can the other."""
        if first is None or second is None:
            self.atoms.pin(first if second is None else second, f"{why}: meets an axis that cannot be cut")
        else:
            self.atoms.tie(first, second)

    def tie_rows(self, labels: Labels, rows: int) -> Labels:
        """Split the labels into equal rows that lose the same positions; returns one row."""
        table = labels.reshape(rows, -1)
        for row in table[1:]:
            self.atoms.tie(table[0], row)
        return table[0]

    def pin_all(self, values: Any, why: str, keep: tuple[int, ...] = ()) -> None:
        """No axis of these tensors may be cut, except those numbered in `keep`."""
        for value in leaves(values):
            if isinstance(value, Number):
                for labels in value.axes:
                    self.atoms.pin(labels, why)
            elif isinstance(value, Tensor):
                for dim, labels in enumerate(value.axes):
                    if labels is ...:
                        value.axes[dim] = None
                    elif dim not in keep:
                        self.atoms.pin(labels, why)


def uncut(output: Any) -> Any:
    """The label of a result about which nothing is known: no axis can be cut."""
    if isinstance(output, torch.Tensor):
        return Tensor(tuple(output.shape), [None] * output.dim())
    if isinstance(output, list | tuple):
        return type(output)(map(uncut, output)) if type(output) in (list, tuple) else tuple(map(uncut, output))
    return output


def label(labelling: Labelling, nodes: list[fx.Node], apply: Rule) -> None:
    """Go through the network once, in order, and label every value."""
    for node in nodes:
        if node.op == "output":
            held = fx.map_arg(node.args, lambda n: labels_of(labelling, n))
            labelling.pin_all(held, "it is an output of the network")
        elif node.op not in ("placeholder", "get_attr"):
            node.meta["labels"] = apply(labelling, as_call(labelling, node))


def labels_of(labelling: Labelling, node: fx.Node) -> Any:
    """What is known about the value of a node. What comes from outside is labelled when somebody uses it."""
    if "labels" not in node.meta:
        stored = node.op == "get_attr" and node.target in labelling.canonical
        node.meta["labels"] = labelling.parameter(node.target) if stored else uncut(node.meta["value"])
    return node.meta["labels"]


def as_call(labelling: Labelling, node: fx.Node) -> Call:
    """A node with the labels of its arguments."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: labels_of(labelling, n))
    module, op = node.meta.get("module"), operation(node)
    around = [type(labelling.model), *(kind for _, kind in node.meta.get("nn_module_stack", {}).values())]
    return Call(
        node=node,
        name=f"{name_of(node)} ({op})",
        op=op,
        args=args[:1] if node.target is getattr else args,
        kwargs=kwargs,
        output=node.meta["value"],
        module=module,
        path=node.target if module else "",
        inside=around[-1],
    )
