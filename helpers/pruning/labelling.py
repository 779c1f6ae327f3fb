"""Carry labels through a graph: which channel sits at each index of each axis of each value.

One rule per operation (rules_*.py) says which labels its result holds and which it ties. There is
no rule for any architecture. An operation without a rule pins every channel that reaches it:
nothing is ever guessed.

Example: a(x) + b(x), with a = Conv2d(3, 4, 1), b = Conv2d(3, 4, 1), flattened before a Linear.
Images are 2 x 2, so flatten gives 16 numbers, four for each channel.

    operation   what its rule does                           labels on axis 1 of the result
    a(x)        new labels for a.weight (axis 0), a.bias     0 1 2 3
    b(x)        new labels for b.weight (axis 0), b.bias     4 5 6 7
    add         ties 4 to 0, 5 to 1, 6 to 2, 7 to 3          0 1 2 3
    flatten     sees where each channel goes                 0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3
    Linear      gives these to axis 1 of its weight,         8 9
                and makes new ones for axis 0 and its bias
    output      pins 8 and 9
"""

from collections import defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from helpers.graphs.operations import called_module, operation
from helpers.graphs.recording import first_names, stored_tensors
from helpers.pruning.reader import is_question, leaves, name_of_node
from helpers.pruning.ties import Labels, Ties


@dataclass
class LabelledTensor:
    """A value of the graph: `axes[d]` holds the label at each index of axis d, None if the axis
    cannot be cut.

    The axes of a parameter are Ellipsis until the first operation that uses them as channels fills
    them in.
    """

    shape: tuple[int, ...]
    axes: list[Labels | EllipsisType | None]
    name: str | None = None  # of a parameter or buffer


@dataclass
class Number:
    """A number that the network computed from sizes of axes with labels: it changes when they are
    cut.
    """

    value: Any
    axes: list[Labels]


class Labelling:
    """Everything that is known about the channels of one network."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.ties = Ties()
        self.tensors: dict[str, LabelledTensor] = {}  # parameters and buffers, by canonical name
        self.loses_whole_groups: set[str] = set()  # convolutions of which whole groups go
        self.output_axes: set[tuple[str, int]] = set()  # (weight, axis) with the outputs of a layer
        # (weight, axis) with the inputs of a layer -> the calls, by name
        self.input_axes: dict[tuple[str, int], dict[str, fx.Node]] = defaultdict(dict)
        self.shared: list[Labels] = []  # labels that meet in an addition, concatenation or stack
        self.blocks: set[type] = set()  # classes whose forward has such a place
        stored = stored_tensors(model)
        self.canonical = first_names(stored)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
        self.parameter_names = {name for name, _ in model.named_parameters()}  # by canonical name

    def label(self, nodes: list[fx.Node], apply: "Rule") -> None:
        """Go through the network once, in order, and label every value."""
        for node in nodes:
            if node.op in ("placeholder", "get_attr"):
                continue
            args, kwargs = fx.map_arg((node.args, node.kwargs), self.labelled)
            if node.op == "output":
                self.pin(args, "it is an output of the network")
            else:
                node.meta["labels"] = apply(Call(self, node, args, kwargs))

    def labelled(self, node: fx.Node) -> Any:
        """The value of a node with its labels; inputs and stored tensors get theirs here."""
        if "labels" not in node.meta:
            stored = node.op == "get_attr" and node.target in self.canonical
            node.meta["labels"] = (
                self.parameter(node.target) if stored else no_axis_cut(node.meta["val"])
            )
        return node.meta["labels"]

    def parameter(self, name: str) -> LabelledTensor:
        """The one tensor of a parameter or buffer, whatever name it is reached by."""
        name = self.canonical[name]
        shape = self.shapes[name]
        return self.tensors.setdefault(name, LabelledTensor(shape, [...] * len(shape), name))

    def axis(self, tensor: LabelledTensor, dim: int) -> Labels | None:
        """The labels of an axis. An axis of a parameter gets new ones at its first use. An axis of
        length 1 has none, and no axis of a buffer.
        """
        if tensor.axes[dim] is ...:
            tensor.axes[dim] = None
            if tensor.shape[dim] > 1 and tensor.name in self.parameter_names:
                tensor.axes[dim] = self.ties.fresh(tensor.shape[dim])
        return tensor.axes[dim]

    def pin(self, values: Any, why: str, keep: Container[int] = ()) -> None:
        """Pin labels, the labels behind a Number, and those of a tensor on all axes but `keep`."""
        for value in leaves(values):
            if isinstance(value, np.ndarray):
                self.ties.pin(value, why)
            elif isinstance(value, Number):
                self.pin(value.axes, why)
            elif isinstance(value, LabelledTensor):
                stay = [axis for dim, axis in enumerate(value.axes) if dim not in keep]
                value.axes = [
                    None if axis is ... and dim not in keep else axis
                    for dim, axis in enumerate(value.axes)
                ]
                self.pin(stay, why)


class Call:
    """One operation, and what its rule may do.

    Its arguments are labelled tensors, Numbers and plain values, in the nesting of the graph.
    """

    def __init__(self, labelling: Labelling, node: fx.Node, args: tuple, kwargs: dict) -> None:
        self.labelling = labelling
        self.ties = labelling.ties
        self.node = node
        self.args = args[:1] if node.target is getattr else args  # not the name that it asks for
        self.kwargs = kwargs
        # The answer to a question is the same whatever is cut, as that of x.ndim is.
        self.op = "ndim" if is_question(node) else operation(node)
        self.module = called_module(node)
        what = self.op if self.module is None else type(self.module).__name__
        self.name = (
            f"{name_of_node(node)} ({what})"  # for people: "layer1.0.add (add)", "0 (Conv2d)"
        )
        self.output = node.meta["val"]  # a meta tensor, a tuple of them or a number
        arguments = leaves((args, kwargs))
        self.tensors = [a for a in arguments if isinstance(a, LabelledTensor)]
        self.numbers = [a for a in arguments if isinstance(a, Number)]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, given by position or by name; `dim` may be called `axis`, as in NumPy."""
        if position < len(self.args):
            return self.args[position]
        if name == "dim":
            default = self.kwargs.get("axis", default)
        return self.kwargs.get(name, default)

    def setting(self, position: int, name: str, default: Any = None) -> Any:
        """An argument of a function, or the attribute of this name of a layer."""
        if self.module is not None:
            return getattr(self.module, name, default)
        return self.argument(position, name, default)

    def axes(self, tensor: LabelledTensor) -> list[Labels | None]:
        """The labels of all axes."""
        return [self.labelling.axis(tensor, dim) for dim in range(len(tensor.shape))]

    def result(self, axes: list[Labels | None]) -> LabelledTensor:
        """The result, with these labels."""
        return LabelledTensor(tuple(self.output.shape), axes)

    def bind(self, tensor: LabelledTensor, dim: int, labels: Labels | None) -> None:
        """Tie axis `dim` of a tensor to `labels`, which a parameter without labels takes over."""
        if tensor.axes[dim] is ...:
            tensor.axes[dim] = labels
        else:
            self.tie(tensor.axes[dim], labels)

    def tie(self, first: Labels | None, second: Labels | None) -> None:
        """Two axes are cut together; if one of them cannot be cut, neither can the other."""
        if first is not None and second is not None:
            self.ties.tie(first, second)
        else:
            self.pin([first, second], "meets an axis that cannot be cut")

    def tie_parts(self, labels: Labels, parts: int) -> Labels:
        """Split the labels into equal parts that lose the same; returns the first one."""
        table = labels.reshape(parts, -1)
        self.ties.tie(table[:1].repeat(parts - 1, 0).ravel(), table[1:].ravel())
        return table[0]

    def share(self, axes: list[Labels | None]) -> None:
        """Record that activations are added or joined here; the module that does so is a block."""
        self.labelling.shared += [labels for labels in axes if labels is not None]
        modules = list(self.node.meta.get("nn_module_stack", {}).values())
        self.labelling.blocks.add(modules[-1][1] if modules else type(self.labelling.model))

    def pin(self, values: Any, why: str, keep: Container[int] = ()) -> None:
        """As `Labelling.pin`, with the name of the operation in the reason."""
        self.labelling.pin(values, f"{self.name}: {why}", keep)


Rule = Callable[[Call], Any]


def no_axis_cut(output: Any) -> Any:
    """The labels of a result about which nothing is known: no axis can be cut."""
    if isinstance(output, list | tuple):
        return [no_axis_cut(part) for part in output]
    if isinstance(output, torch.Tensor):
        return LabelledTensor(tuple(output.shape), [None] * output.dim())
    return output
