"""The one torch.fx tracer: it records what a call of a network does, and what each step gives.

The value of a node is worked out as soon as the node is made. The parameters and buffers that it
reads are replaced by copies with shapes but no numbers (device "meta"), so a network of a gigabyte
takes no longer than a small one. `node.meta["val"]` keeps the value: a tensor without data, a
number, or a tuple of these.

Folding records strictly: a forward that decides by a size or a value is refused, since the graph
would only hold for that one decision. Pruning follows the decision; after the cut it reads the
network again, and compares.

What torch.fx alone would get wrong is in interception.py. Whether gradients are computed
(`torch.no_grad`) is not part of a graph: the answers are the same.
"""

import copy
import inspect
import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn
from torch._C import DisableTorchFunction, _DisableTorchDispatch
from torch.utils._pytree import tree_leaves, tree_map_only

from helpers.graphs.editing import quick_copy
from helpers.graphs.effects import has_hooks
from helpers.graphs.errors import GraphMismatch
from helpers.graphs.interception import (
    KeepTensors,
    Proxy,
    RecordRandom,
    Sizes,
    ValueProxy,
    check_assignment,
    isinstance_of_value,
    names_of_inputs,
)
from helpers.graphs.operations import (
    AUGMENTED,
    KEEPS_SHAPE,
    attribute,
    operation_name,
    perform,
    target_name,
)

# These functions take no tensor. When not strict, they are recorded if a size goes into them.
CONSTRUCTORS = (torch.zeros, torch.ones, torch.full, torch.empty, torch.arange, torch.tensor)


class Recorder(fx.Tracer):
    """Records one call.

    Args:
        inputs: the arguments of the call. Without them all arguments of forward are inputs, and no
            values are worked out; torch.fx makes such a tracer when it loads a saved graph.
        strict: refuse a forward that decides by a size or a value.
        with_data: work out the values on copies with data, for operations that look at numbers.
    """

    # Otherwise a forward that writes into a buffer would do so now, and not when the graph is
    # called.
    proxy_buffer_attributes = True

    def __init__(
        self, inputs: tuple[Any, ...] | None = None, strict: bool = True, with_data: bool = False
    ):
        super().__init__()
        self.values: dict[fx.Node, Any] = {}
        self.strict = strict
        self._inputs = inputs
        self._with_data = with_data
        # The id of a tensor or layer -> what takes its place while values are worked out. This
        # table is handed to copy.deepcopy as its memo.
        self._copies: dict[int, Any] = {}
        self._network_has_data = False
        self._is_evaluating = False
        self._autocast = _autocast()
        if not strict:
            self._autowrap_search.append(torch)
            self._autowrap_function_ids.update(map(id, CONSTRUCTORS))

    def record(self, model: nn.Module) -> fx.Graph:
        """The graph of a model, which gets its own buffers back; an error if its forward puts
        another tensor in the place of one.
        """
        stored = stored_tensors(model)
        self._network_has_data = not all(tensor.is_meta for tensor in stored.values())
        if self._network_has_data:
            self._copies = quick_copy(model)
            if not self._with_data:
                for tensor in stored.values():
                    self._copies[id(tensor)] = torch.empty_like(tensor, device="meta")
        patched_isinstance = nullcontext()
        if not self.strict:
            patched_isinstance = patch("builtins.isinstance", isinstance_of_value)
        with KeepTensors(stored), patched_isinstance:
            graph = self.trace(model)
        for path, module in model.named_modules():
            for name, value in module._buffers.items():
                if isinstance(value, fx.Proxy):
                    full_name = f"{path}.{name}".lstrip(".")
                    module._buffers[name] = stored.get(full_name)
                    check_assignment(full_name, value.node)
        graph.owning_module = model
        return graph

    def trace(self, root: Any, concrete_args: Any = None) -> fx.Graph:
        """The graph of a model, whose tables of buffers may hold proxies afterwards."""
        with RecordRandom(self):
            return super().trace(root, concrete_args)

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Add a node, then work out its value: if that fails, the last node is the one that failed.

        Raises:
            RuntimeError: inside torch.vmap, or under an autocast that only a part of the network
                is under.
        """
        inside_vmap = torch._C._functorch.peek_interpreter_stack() is not None
        if inside_vmap or _autocast() != self._autocast:
            where = "torch.func" if inside_vmap else "torch.autocast"
            raise RuntimeError(
                f"it calls {target_name(target)} under {where}, which a graph of torch.fx does not"
                " record"
            )
        node = super().create_node(kind, target, *args, **kwargs)
        if self._inputs is not None:
            self._note_value(node)
        return node

    def _note_value(self, node: fx.Node) -> None:
        """Work out what a node gives, and keep it."""
        self._is_evaluating = True
        try:
            with DisableTorchFunction(), _DisableTorchDispatch(), torch.no_grad():
                value = self._value(node)
                without_data = map_tensors(_on_meta, value)
                self.values[node] = value if self._with_data else without_data
                if node.op != "output":
                    # Detached, to keep the present shape: an operation in place may change it.
                    node.meta["val"] = map_tensors(torch.Tensor.detach, without_data)
        except Exception as error:
            if not self.strict:
                raise
            reason = (
                f"does not accept its inputs: {error}. Check the example inputs, and that dtypes"
                " and devices agree"
            )
            raise GraphMismatch("tracing", reason, node) from error
        finally:
            self._is_evaluating = False
        # `n += 1` writes into nothing if n is a number.
        if node.target in AUGMENTED and isinstance(value, (int, float)):
            node.target = AUGMENTED[node.target]

    def _value(self, node: fx.Node) -> Any:
        """What a node gives, from the values of the nodes before it."""
        if node.op == "placeholder":
            value = self._inputs[len(self.values)]
            return map_tensors(torch.clone, value) if self._with_data else value
        if node.op == "output":
            return None
        if node.op == "get_attr":
            return self._copy(attribute(self.root, node.target))
        is_layer = node.op == "call_module"
        called = attribute(self.root, node.target) if is_layer else node.target
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        name = operation_name(type(called) if is_layer else called)
        if name in KEEPS_SHAPE and kwargs.keys() <= {"inplace"} and not any(self._autocast):
            like = _first_of_equal_shape(args)
            known = like is not None and like.is_meta and not has_hooks(called)
            if known and _takes(called, like):
                return like.detach()
        if is_layer:  # not by its __call__, in which torch.fx records
            return self._copy(called)._call_impl(*args, **kwargs)
        return perform(called, args, kwargs)

    def _copy(self, part: Any) -> Any:
        """What stands for a tensor or a layer, so that no call changes the network's numbers. A
        network without data has none, and stands for itself.
        """
        if not self._network_has_data:
            return part
        return copy.deepcopy(part, self._copies)

    def proxy(self, node: fx.Node) -> Any:
        """What the forward gets for a node.

        When not strict, proxies stand for tensors and numbers, also for those in a tuple; anything
        else, such as x.dtype, is handed out as it is.
        """
        if self.strict:
            return Proxy(node, self)
        value = self.values[node]
        if isinstance(value, tuple | list):
            whole = ValueProxy(node, self)
            items = [
                self.create_proxy("call_function", operator.getitem, (whole, i), {})
                for i in range(len(value))
            ]
            return (Sizes if isinstance(value, torch.Size) else type(value))(items)
        # A bool about a tensor is handed out as it is; one about sizes stays a proxy, for pruning.
        if isinstance(value, bool) and any(
            isinstance(self.values[source], torch.Tensor) for source in node.all_input_nodes
        ):
            return value
        return ValueProxy(node, self) if isinstance(value, torch.Tensor | int | float) else value

    def create_arg(self, a: Any) -> Any:
        """When not strict, a named tuple (some networks return one) or sizes become a tuple."""
        if isinstance(a, fx.Proxy):
            return a.node
        if isinstance(a, tuple) and not self.strict:
            a = tuple(a)
        return super().create_arg(a)

    def call_module(
        self, m: nn.Module, forward: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        """A layer becomes one node, and what it does inside is not recorded. Only a layer that
        forward has just made, without tensors, has no name and is looked into.
        """
        if self._is_evaluating or (m not in self.submodule_paths and not stored_tensors(m)):
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict) -> Any:
        """A parameter or buffer of the network is a node, the same each time."""
        if self._is_evaluating:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """A proxy for each argument of the call; parameters of forward without an argument take
        their defaults.
        """
        if self._inputs is None:
            return super().create_args_for_root(root_fn, is_module, concrete_args)
        names = names_of_inputs(inspect.unwrap(root_fn), len(self._inputs))
        proxies = [self.create_proxy("placeholder", name, (), {}) for name in names]
        return root_fn, [self.root, *proxies]


def _autocast() -> tuple[bool, bool]:
    return torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")


def _takes(layer: Any, x: torch.Tensor) -> bool:
    """Whether a norm has the size of this tensor; an error if it takes other dimensions."""
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        layer._check_input_dim(x)
        return x.shape[1] == layer.num_features
    last = getattr(layer, "normalized_shape", ())
    return x.shape[x.dim() - len(last) :] == last


def _first_of_equal_shape(values: tuple[Any, ...]) -> torch.Tensor | None:
    """The first of some values, if all are float tensors of one shape and dtype; else None."""
    first = next(iter(values), None)
    if not isinstance(first, torch.Tensor) or not first.is_floating_point():
        return None
    for other in values[1:]:
        if not isinstance(other, torch.Tensor):
            return None
        if (other.shape, other.dtype) != (first.shape, first.dtype):
            return None
    return first


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """A value with its tensors replaced."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (tuple, list, dict)) and not isinstance(value, torch.Size):
        return tree_map_only(torch.Tensor, function, value)
    return value


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_meta else torch.empty_like(tensor, device="meta")


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors inside nested lists, tuples and dicts, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def first_names(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    """For each name the first name of the same tensor, since a tensor may have several."""
    first = {id(tensor): name for name, tensor in reversed(tensors.items())}
    return {name: first[id(tensor)] for name, tensor in tensors.items()}


def stored_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and then every buffer, by every name that it has."""
    modules = [*model.named_modules(remove_duplicate=False)]  # once, since it takes long
    return {
        f"{path}.{name}".lstrip("."): tensor
        for kind in ("_parameters", "_buffers")
        for path, module in modules
        for name, tensor in vars(module)[kind].items()
        if tensor is not None
    }
