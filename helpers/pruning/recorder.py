"""Write down what a network does while it runs on tensors that have a shape and no content.

Tensors of PyTorch's "meta" device hold nothing, so that a network of a gigabyte runs as quickly as a small one. PyTorch
asks a `TorchFunctionMode` before it carries out any function of tensors; a call of one of PyTorch's own layers is one
operation. Sizes are numbers that are followed, too (tracked.py).
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from helpers.pruning.nesting import leaves, mapped
from helpers.pruning.operations import opaque_functions, operation_name
from helpers.pruning.output_shapes import function_output, layer_output
from helpers.pruning.stored import stored_tensors
from helpers.pruning.tracked import Stated, Tracked, plain, state, track

# How a layer states the sizes of its weight. What it is cut to is written there, so a forward could decide by it.
SIZES = ("in_channels", "out_channels", "in_features", "out_features", "num_features", "num_channels")


@dataclass(eq=False, slots=True)
class Node:
    """One step of the network. Arguments are nodes and plain values, in the nesting that the call gives them."""

    kind: str  # input, stored (a parameter or buffer), constant, layer, function, output
    op: str  # the layer's class, the operation, or the name of what is stored
    name: str  # for people: the layer's path, or the operation and a number
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    value: Any = None  # a meta tensor, a number, or a tuple of them
    module: nn.Module | None = None
    inside: type = nn.Module  # the class of the module whose forward this is in
    labels: Any = None  # the channels of the value


class Recorder(TorchFunctionMode):
    """Runs a network once and keeps the nodes."""

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.root = root
        self.nodes: list[Node] = []
        self.names: Counter[str] = Counter()
        self.inside = type(root)
        # Tensors are known by their id, and kept, so that no other tensor gets the same.
        self.sources: dict[int, tuple[torch.Tensor, Node]] = {}
        self.stored = {id(tensor): name for name, tensor in reversed(stored_tensors(root).items())}
        self.constants: dict[int, torch.Tensor] = {}

    def run(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """Run the network on inputs of these shapes and types."""
        given = [self.result(self.add("input", "input"), torch.empty_like(x, device="meta")) for x in inputs]
        with torch.no_grad(), self.reporting(), opaque_functions(self.whole), self:
            output = self.root(*given)
        self.add("output", "output", (opened(output),))

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """While the block runs, modules tell of their calls."""
        replaced = []
        for path, module, layer in reporters(self.root):
            attributes, report = vars(module), self.layer if layer else self.enter
            changed = {"forward": functools.partial(report, path, module, module.forward)} | self.stated(module)
            replaced.append((attributes, {name: attributes.get(name) for name in changed}))
            attributes.update(changed)
        try:
            yield
        finally:
            for attributes, before in replaced:
                attributes.update(before)
                if before["forward"] is None:
                    del attributes["forward"]

    def stated(self, module: nn.Module) -> dict[str, Stated]:
        """The sizes that a layer states, as numbers that are followed."""
        attributes = vars(module)
        weight = attributes.get("_parameters", {}).get("weight")
        if weight is None:
            return {}
        ask = functools.partial(self.add, "function", "stated", (weight,))
        return {name: state(attributes[name], self, ask) for name in SIZES if type(attributes.get(name)) is int}

    def enter(self, path: str, module: nn.Module, forward: Callable, *args: Any, **kwargs: Any) -> Any:
        """Run a module that is made of others."""
        outside, self.inside = self.inside, type(module)
        try:
            return forward(*args, **kwargs)
        finally:
            self.inside = outside

    def layer(self, path: str, module: nn.Module, forward: Callable, *args: Any, **kwargs: Any) -> Any:
        """Run one of PyTorch's layers."""
        with torch._C.DisableTorchFunction():
            node = self.add("layer", type(module).__name__, args, kwargs, path, module)
            args, kwargs = mapped(self.content, args), mapped(self.content, kwargs)
            return self.result(node, layer_output(module, forward, args, kwargs))

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run a function of tensors. What works on nothing but constants is a constant, and no node."""
        kwargs = kwargs or {}
        if not any(self.is_followed(leaf) for leaf in leaves((args, kwargs))):
            value = func(*args, **kwargs)
            self.constants |= {id(leaf): leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)}
            return value
        node = self.add("function", operation_name(func), args, kwargs)
        value = function_output(func, mapped(self.content, args), mapped(self.content, kwargs))
        if value is not None and not any(has_source(leaf) for leaf in leaves(value)):
            self.answered(node, value)
            return value
        return self.result(node, value)

    def answered(self, node: Node, value: Any) -> None:
        """A question such as x.dtype is no operation; one about two tensors (x.is_same_size(y)) decides by sizes."""
        if isinstance(value, bool) and sum(isinstance(leaf, Node) for leaf in leaves((node.args, node.kwargs))) > 1:
            node.op = "question"  # one rule for all of them, whatever they are called
        else:
            self.nodes.pop()

    def whole(self, func: Callable) -> Callable:
        """The function as one operation, whatever it does inside."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if torch._C._is_torch_function_all_disabled():  # inside another one
                return func(*args, **kwargs)
            with torch._C.DisableTorchFunction():
                return self.__torch_function__(func, (), args, kwargs)

        return call

    def computed(self, op: str, operands: tuple, value: Any) -> Any:
        """Arithmetic on sizes has given this value; what a layer does inside is its own business."""
        if torch._C._is_torch_function_all_disabled():
            return value
        return self.result(self.add("function", op, operands), value)

    def decided(self, operands: tuple) -> None:
        """The forward has looked at a size."""
        if not torch._C._is_torch_function_all_disabled():
            self.add("function", "decision", operands)

    def add(
        self, kind: str, op: str, args: Any = (), kwargs: Any = None, path: str = "", module: nn.Module | None = None
    ) -> Node:
        """The next node; it is there before its value, so that the last one is the one that fails."""
        args, kwargs = mapped(self.described, args), mapped(self.described, kwargs or {})
        number, self.names[op] = self.names[op], self.names[op] + 1
        name = path or (f"{op}_{number}" if number else op)
        self.nodes.append(Node(kind, op, name, args, kwargs, module=module, inside=self.inside))
        return self.nodes[-1]

    def result(self, node: Node, value: Any) -> Any:
        """Note the value of a node; its tensors are known from now on, and its numbers followed."""
        node.value = value
        if isinstance(value, torch.Tensor):
            self.sources[id(value)] = value, node
        elif isinstance(value, list | tuple):
            items = [self.result(self.add("function", "getitem", (node, i)), v) for i, v in enumerate(value)]
            return type(value)(items)
        return track(value, self, node) if type(value) in (int, float) else value

    def described(self, value: Any) -> Any:
        """A node in the place of a tensor or of a number that is followed."""
        if isinstance(value, Tracked):
            return value.source
        return self.source(value) if isinstance(value, torch.Tensor) else value

    def source(self, tensor: torch.Tensor) -> Node:
        """The node that a tensor comes from: an operation, what is stored in the network, or a constant.

        Or nobody knows (torch.vmap computes out of sight): then it may come from everything before it.
        """
        if id(tensor) not in self.sources:
            name = self.stored.get(id(tensor))
            if name:
                node = self.add("stored", name)
            elif tensor.is_meta and id(tensor) not in self.constants:
                node = self.add("function", "unseen", tuple(self.nodes))
            else:
                node = self.add("constant", "constant")
            node.value = torch.empty_like(tensor, device="meta")
            self.sources[id(tensor)] = tensor, node
        return self.sources[id(tensor)][1]

    def content(self, value: Any) -> Any:
        """What an operation is really run on: constants are without content, too."""
        if isinstance(value, torch.Tensor) and not value.is_meta:
            return torch.empty_like(self.source(value).value, device="meta")
        return plain(value)

    def is_followed(self, value: Any) -> bool:
        """Whether it may have channels: what the network has computed, and what is stored in it."""
        if isinstance(value, torch.Tensor):
            return id(value) in self.sources or id(value) in self.stored
        return isinstance(value, Tracked)


def opened(output: Any) -> Any:
    """What a network returns, as nests of tensors; an object of a class of its own stands for its attributes."""
    if output is None or isinstance(output, torch.Tensor | Tracked | nn.Module | str | int | float):
        return output
    if isinstance(output, Mapping):
        return [opened(value) for value in output.values()]
    if isinstance(output, Iterable):
        return [opened(value) for value in output]
    names = [*getattr(output, "__dict__", ()), *getattr(type(output), "__slots__", ())]
    return [opened(getattr(output, name)) for name in names if hasattr(output, name)]


def has_source(value: Any) -> bool:
    """What the value of a node can be."""
    return isinstance(value, torch.Tensor) or type(value) in (int, float)


def is_layer(module: nn.Module) -> bool:
    """One of PyTorch's own, which computes what its class says."""
    containers = nn.Sequential | nn.ModuleList | nn.ModuleDict
    own = type(module).__module__.startswith("torch.nn") and not isinstance(module, containers)
    return own and "forward" not in vars(module)


def reporters(root: nn.Module) -> Iterator[tuple[str, nn.Module, bool]]:
    """All modules below the root, each once, and whether it is a layer; a layer with all that it is made of is one."""
    seen, ahead = set(), [("", root)]
    while ahead:
        path, module = ahead.pop()
        for name, child in module._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                place, layer = f"{path}.{name}" if path else name, is_layer(child)
                yield place, child, layer
                if not layer:
                    ahead.append((place, child))
