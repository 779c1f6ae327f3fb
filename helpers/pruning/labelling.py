"""Carry atoms through a graph: which channel sits at each index of each axis of each value.

One rule per operation (rules_*.py) says which atoms its result holds and which it ties. There is no
rule for any architecture. An operation without a rule pins every channel that reaches it: nothing
is ever guessed.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch
from torch import fx, nn

from helpers.graphs.operations import operation
from helpers.graphs.recording import stored_tensors
from helpers.pruning.reader import called_module, is_question, leaves, name_of
from helpers.pruning.ties import Labels, Ties


@dataclass
class LabelledTensor:
    """A value of the graph: `axes[d]` holds the atom at each index of axis d, None if the axis
    cannot be cut.

    The axes of a parameter are filled in by the first operation that uses them as channels; until
    then Ellipsis.
    """

    shape: tuple[int, ...]
    axes: list[Labels | EllipsisType | None]
    name: str | None = None  # of a parameter or buffer


@dataclass
class Number:
    """A number that the network computed from sizes of axes that hold channels: it changes when
    they are cut.
    """

    value: Any
    axes: list[Labels]


class Call:
    """One operation: its arguments are Tensors, Numbers and plain values, in the nesting that the
    graph gives them.
    """

    def __init__(self, node: fx.Node, args: tuple, kwargs: dict[str, Any]) -> None:
        self.node, self.kwargs = node, kwargs
        self.args = args[:1] if node.target is getattr else args
        self.op = "ndim" if is_question(node) else operation(node)
        self.module = called_module(node)
        what = self.op if self.module is None else type(self.module).__name__
        self.name = f"{name_of(node)} ({what})"  # for people: "layer1.0.add (add)", "0 (Conv2d)"
        self.output = node.meta["val"]  # a meta tensor, a tuple of them or a number
        found = leaves((args, kwargs))
        self.tensors = [a for a in found if isinstance(a, LabelledTensor)]
        self.numbers = [a for a in found if isinstance(a, Number)]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, given by position or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(
            name, self.kwargs.get("axis", default) if name == "dim" else default
        )  # as in NumPy


class Labelling:
    """Everything that is known about the channels of one network."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.ties = model, Ties()
        self.tensors: dict[str, LabelledTensor] = {}  # parameters and buffers, by canonical name
        self.loses_whole_groups: set[str] = set()  # convolutions that lose whole groups
        self.output_axes: set[tuple[str, int]] = set()  # (weight, axis) with the outputs of a layer
        self.input_axes: dict[
            tuple[str, int], dict[str, fx.Node]
        ] = {}  # and with its inputs; the calls, by name
        self.shared: list[Labels] = []  # atoms that meet in an addition or concatenation
        self.blocks: set[type] = set()  # classes whose forward has such a place
        stored = stored_tensors(model)
        first = {id(tensor): name for name, tensor in reversed(stored.items())}
        self.canonical = {name: first[id(tensor)] for name, tensor in stored.items()}
        self.shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
        self.learned = {
            first[id(tensor)] for tensor in stored.values() if isinstance(tensor, nn.Parameter)
        }

    def label(self, nodes: list[fx.Node], apply: "Rule") -> None:
        """Go through the network once, in order, and label every value."""
        for node in nodes:
            if node.op == "output":
                self.pin_all(fx.map_arg(node.args, self.known), "it is an output of the network")
            elif node.op not in ("placeholder", "get_attr"):
                node.meta["labels"] = apply(
                    self, Call(node, *fx.map_arg((node.args, node.kwargs), self.known))
                )

    def known(self, node: fx.Node) -> Any:
        """What is known about the value of a node.

        What comes from outside is labelled when somebody uses it.
        """
        if "labels" not in node.meta:
            stored = node.op == "get_attr" and node.target in self.canonical
            node.meta["labels"] = self.parameter(node.target) if stored else uncut(node.meta["val"])
        return node.meta["labels"]

    def parameter(self, name: str) -> LabelledTensor:
        """The one LabelledTensor of a parameter or buffer, whatever name it is reached by."""
        name, shape = self.canonical[name], self.shapes[name]
        return self.tensors.setdefault(name, LabelledTensor(shape, [...] * len(shape), name))

    def axis(self, tensor: LabelledTensor, dim: int) -> Labels | None:
        """The atoms of an axis; new ones at a parameter's first use. Buffers have none to give."""
        if tensor.axes[dim] is ...:
            gives = tensor.shape[dim] > 1 and tensor.name in self.learned
            tensor.axes[dim] = self.ties.fresh(tensor.shape[dim]) if gives else None
        return tensor.axes[dim]

    def like(self, x: LabelledTensor) -> LabelledTensor:
        """A result with the channels of its input."""
        return LabelledTensor(x.shape, [self.axis(x, d) for d in range(len(x.shape))])

    def bind(self, tensor: LabelledTensor, dim: int, labels: Labels | None, why: str) -> None:
        """Axis `dim` of the tensor is cut together with `labels`."""
        if tensor.axes[dim] is ...:
            tensor.axes[dim] = labels
        else:
            self.tie(tensor.axes[dim], labels, why)

    def tie(self, first: Labels | None, second: Labels | None, why: str) -> None:
        """Two axes are cut together; if one of them cannot be cut, neither can the other."""
        if first is None or second is None:
            self.ties.pin(
                first if second is None else second, f"{why}: meets an axis that cannot be cut"
            )
        else:
            self.ties.tie(first, second)

    def tie_parts(self, labels: Labels, rows: int) -> Labels:
        """Split the labels into equal rows that lose the same positions; returns one row."""
        table = labels.reshape(rows, -1)
        self.ties.tie(table[:1].repeat(rows - 1, 0).ravel(), table[1:].ravel())
        return table[0]

    def join(self, call: Call, labels: list[Labels | None]) -> None:
        """Activations meet here, so their channels belong to a trunk, and the module is a block."""
        self.shared += [atoms for atoms in labels if atoms is not None]
        modules = [*call.node.meta.get("nn_module_stack", {}).values()]
        self.blocks.add(modules[-1][1] if modules else type(self.model))

    def pin_all(self, values: Any, why: str, keep: Container[int] = ()) -> None:
        """No axis of these tensors may be cut, except those numbered in `keep`."""
        for value in leaves(values):
            if isinstance(value, Number):
                for labels in value.axes:
                    self.ties.pin(labels, why)
            elif isinstance(value, LabelledTensor):
                for dim, labels in enumerate(value.axes):
                    if labels is ...:
                        value.axes[dim] = None
                    elif dim not in keep:
                        self.ties.pin(labels, why)


Rule = Callable[[Labelling, Call], Any]


def uncut(output: Any) -> Any:
    """The label of a result about which nothing is known: no axis can be cut."""
    if isinstance(output, list | tuple):
        return [*map(uncut, output)]
    return (
        LabelledTensor(tuple(output.shape), [None] * output.dim())
        if isinstance(output, torch.Tensor)
        else output
    )
