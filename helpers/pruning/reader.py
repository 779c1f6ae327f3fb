"""Read a network: the graph of torch.fx, with the value of each node worked out while it is
recorded.

Values are tensors of torch's "meta" device, which have a shape and no content, so that a network of
a gigabyte is read as quickly as a small one. A forward may compute with sizes and even decide by
them: its numbers are stand-ins, too, that know their value. What it computes is in the graph. How
it decides is not: with another number of channels it could decide otherwise, which a graph that is
read again shows.
"""

import copy
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate

from helpers.graphs.annotation import alike
from helpers.graphs.effects import AUGMENTED, is_torch
from helpers.graphs.operations import KEEPS_SHAPE
from helpers.graphs.tracer import Tracer, _Proxy
from helpers.passes.optimizer import as_tuple

CONSTRUCTORS = (
    torch.zeros,
    torch.ones,
    torch.full,
    torch.empty,
    torch.arange,
    torch.tensor,
)  # ask for no stand-ins
# Their result is like their inputs, if these agree; torch's own rule is slow.
SAME_SHAPE = KEEPS_SHAPE | {nn.LayerNorm, nn.GELU, nn.Sigmoid, operator.iadd, operator.imul}


class TraceError(ValueError):
    """The network cannot be read; says where and what to do, and for a trial the node's position
    and a short cause.
    """

    def __init__(self, message: str, position: int = 0, cause: str = "") -> None:
        super().__init__(message)
        self.position, self.cause = position, cause


class Proxy(_Proxy):
    """A stand-in for a tensor or a number that knows its value."""

    def __getattr__(self, name: str) -> Any:
        """A method is in the graph when it is called, a property when it is asked for."""
        if callable(getattr(self.node.meta["value"], name)):
            return super().__getattr__(name)
        return self.tracer.create_proxy("call_function", getattr, (self, name), {})

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __len__(self) -> int:
        return int(self.shape[0])

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other


def plainly(kind: Callable[[Any], Any]) -> Callable[[Proxy], Any]:
    """A method that answers with a plain number, as where the forward decides."""
    return lambda self: kind(self.node.meta["value"])


Proxy.__bool__, Proxy.__int__, Proxy.__float__, Proxy.__index__ = map(
    plainly, (bool, int, float, operator.index)
)
Proxy.__round__ = plainly(round)


class Sizes(tuple):
    """Stand-ins for a torch.Size."""

    def __getitem__(self, i: Any) -> Any:
        return Sizes(super().__getitem__(i)) if isinstance(i, slice) else super().__getitem__(i)

    def numel(self) -> Any:
        """How many values there are."""
        return math.prod(self)


def isinstance_of_value(
    x: Any, kinds: Any, plainly: Callable[[Any, Any], bool] = isinstance
) -> bool:
    """`isinstance` for a forward that asks.

    (C code that takes `__class__`'s word for a tensor would crash.)
    """
    return plainly(x, kinds) or (type(x) is Proxy and plainly(x.node.meta["value"], kinds))


class Reader(Tracer):
    """Records a network that is on the meta device."""

    def __init__(self, root: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        super().__init__(len(inputs))
        self.root, self.inputs, self.inside = root, iter(inputs), type(root)
        self._autowrap_search.append(torch)
        self._autowrap_function_ids.update(map(id, CONSTRUCTORS))

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """The node is there before its value, so that the last one is the one that fails."""
        node = super().create_node(kind, target, *args, **kwargs)
        with torch._C.DisableTorchFunction():
            value = self.value_of(node)
        is_stored = isinstance(value, torch.Tensor) and not value.is_meta
        node.meta["value"] = value.to("meta") if is_stored else value
        if kind == "get_attr" and is_stored:
            node.meta["content"] = value.tolist()  # of a constant that the forward has made
        node.meta["inside"] = self.inside  # the class of the module whose forward does this
        return node

    def value_of(self, node: fx.Node) -> Any:
        """What a node gives."""
        if node.op == "placeholder":
            return next(self.inputs)
        if node.op == "get_attr":
            return operator.attrgetter(node.target)(self.root)
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["value"])
        kind = node.target
        if node.op == "call_module":
            node.meta["module"] = self.root.get_submodule(kind)
            kind = type(node.meta["module"])
        if kind in SAME_SHAPE and not kwargs and (like := alike(args)) is not None:
            return like.detach()
        return None if node.op == "output" else perform(node, args, kwargs)

    def proxy(self, node: fx.Node) -> Any:
        """A tensor or number is followed, and so are those in a tuple; anything else (x.dtype) is
        what it is.
        """
        value = node.meta["value"]
        if isinstance(value, tuple | list):
            whole = Proxy(node, self)
            items = [
                self.create_proxy("call_function", operator.getitem, (whole, i), {})
                for i in range(len(value))
            ]
            return (Sizes if isinstance(value, torch.Size) else type(value))(items)
        followed = isinstance(value, torch.Tensor | int | float) and not (
            isinstance(value, bool) and tensors_of(node)
        )
        return Proxy(node, self) if followed else value

    def create_arg(self, a: Any) -> Any:
        """A named tuple, as some networks return, is a tuple, and so are sizes."""
        if isinstance(a, Proxy | int | float | str | None):
            return a.node if isinstance(a, Proxy) else a
        return super().create_arg(tuple(a) if isinstance(a, tuple) else a)

    def call_module(
        self, m: nn.Module, forward: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        """What a layer does inside is its own business; so below."""
        if torch._C._is_torch_function_all_disabled():
            return forward(*args, **kwargs)
        if self.is_leaf_module(m, path := self.path_of_module(m)):
            return self.create_proxy("call_module", path, args, kwargs)
        outside, self.inside = self.inside, type(m)
        result = forward(*args, **kwargs)
        self.inside = outside
        return result

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict) -> Any:
        """A parameter or buffer of the network is a node, the same each time."""
        inside = torch._C._is_torch_function_all_disabled()
        return attr_val if inside else super().getattr(attr, attr_val, parameter_proxy_cache)


def perform(node: fx.Node, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What an operation of the graph makes of these arguments."""
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.meta.get("module", node.target)(*args, **kwargs)


def tensors_of(node: fx.Node) -> list[fx.Node]:
    """The nodes among the arguments that are tensors."""
    return [n for n in node.all_input_nodes if isinstance(n.meta["value"], torch.Tensor)]


def operation(node: fx.Node) -> str:
    """One name for each operation, however it is written: `x + y`, `x += y`, `torch.add`, `x.add_`
    are all "add".
    """
    if "module" in node.meta:
        return type(node.meta["module"]).__name__
    value = node.meta["value"]
    if (
        isinstance(value, bool | torch.dtype | torch.device | torch.layout | str)
        and len(tensors_of(node)) == 1
    ):
        return "ndim"  # or another question about a tensor: x.dtype
    if node.target is getattr:
        return node.args[1]
    target = AUGMENTED.get(node.target, node.target)
    name = (target if isinstance(target, str) else target.__name__).strip("_")
    plain = is_torch(node) and not isinstance(target, torch._ops.OpOverload)
    return name if plain else f"{target.__module__}.{name}"


def name_of(node: fx.Node) -> str:
    """For people: the layer's path, or the operation and a number."""
    return node.target if node.op == "call_module" else node.name


def leaves(value: Any) -> list:
    """The values inside nested lists, tuples, slices and dicts, in order."""
    found: list = []
    map_aggregate(value, found.append)
    return found


def stored_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and then every buffer, by every name that it has."""
    return dict(model.named_parameters(remove_duplicate=False)) | dict(
        model.named_buffers(remove_duplicate=False)
    )


def on_new_tensors(
    model: nn.Module, replacement: Callable[[str, torch.Tensor], torch.Tensor]
) -> nn.Module:
    """A copy with other tensors, each asked for once; a parameter's replacement becomes a
    parameter.
    """
    memo: dict[int, Any] = {}
    for name, tensor in stored_tensors(model).items():
        if id(tensor) not in memo:
            new = replacement(name, tensor)
            memo[id(tensor)] = (
                nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new
            )
    try:
        return copy.deepcopy(model, memo)
    except RuntimeError as error:  # a weight that is computed, as the old weight_norm does
        cause, name = str(error).partition(". ")[0], type(model).__name__
        raise TraceError(
            f"{name} cannot be copied, remove what computes its weights: {cause}"
        ) from error


def on_meta(model: nn.Module) -> nn.Module:
    """A copy in eval mode whose tensors have shapes and no content; nothing large is copied on the
    way.
    """
    return on_new_tensors(
        model, lambda _, tensor: torch.empty_like(tensor, device="meta", requires_grad=False)
    ).eval()


def read(root: nn.Module, example_inputs: Any) -> list[fx.Node]:
    """Read a network that is on the meta device, in the mode in which it is; a forward may leave
    things in it.

    Returns:
        One node for each operation, with its value in `meta["value"]`.
    """
    inputs = as_tuple(example_inputs)
    if not inputs or not all(isinstance(x, torch.Tensor) for x in inputs):
        raise TraceError(
            "example_inputs: expected one tensor or a tuple of them, as the network's forward takes"
            " them"
        )
    if root._forward_pre_hooks or root._forward_hooks or "forward" in vars(root):
        raise TraceError(
            f"{type(root).__name__}: hooks or a forward set on it are not read; wrap it in"
            " nn.Sequential"
        )
    reader = Reader(root, inputs)
    try:
        with torch.no_grad(), patch("builtins.isinstance", isinstance_of_value):
            return [*reader.record(root).nodes]
    except Exception as error:
        nodes = [*getattr(reader, "graph", fx.Graph()).nodes]
        place = f"at node {name_of(nodes[-1])}" if nodes else "before its first node"
        cause = (str(error).strip() or repr(error)).splitlines()[0]
        remedy = (
            " (control flow that depends on values has to be rewritten)" if "meta" in cause else ""
        )
        what = (
            f"{type(root).__name__} does not run without content on inputs of this shape and type"
        )
        raise TraceError(f"{what}, {place}: {cause}{remedy}", len(nodes) - 1, cause) from error
