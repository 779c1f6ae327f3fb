"""Notes on each node of a graph which shape and dtype its value has, as a tensor without data in `node.meta["val"]`.

Three ways, the quickest first; the next one is tried where the one before fails:

    on the meta device      when everything is on one device
    on fake tensors         knows devices, and takes five times as long
    by a real call          for shapes that depend on numbers, and for functions that look into tensors
"""

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers.graphs.copying import independent_copy
from helpers.graphs.effects import has_hooks, op_name
from helpers.graphs.errors import GraphMismatch
from helpers.graphs.module_tree import submodule, tensor_tables, tensors
from helpers.graphs.tracer import AUGMENTED

# These return something of their first input's shape and dtype (the sum and the product when both inputs agree). Asking
# torch gives the same answer, but its shape rule for batch_norm takes 20 times as long as that for a convolution.
KEEPS_SHAPE = frozenset(
    (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.Hardsigmoid)
    + (nn.Identity, nn.Dropout, torch.relu, F.relu, F.relu6, F.hardswish, F.silu, operator.add, operator.mul)
)
# After these a value has another shape than before.
RESHAPING = frozenset({"unsqueeze_", "squeeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "resize_", "resize_as_"})


def annotate(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    """Write a tensor without data into each node's `meta["val"]`; plain values, and shapes that change, get none.

    Raises:
        GraphMismatch: a node does not accept what it gets; the node is named.
    """
    inputs = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    one_device = len({tensor.device for tensor in (*tensors(graph_module), *inputs)}) <= 1
    ways = [_on_meta, _exactly, _by_a_real_call] if one_device else [_exactly]
    for way in ways:
        try:
            return way(graph_module, example_inputs)
        except GraphMismatch:
            if way is ways[-1]:
                raise  # before that, perhaps only because of the stand-ins; the last way will tell
    return None


def _on_meta(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    inputs = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in example_inputs]
    with _stand_ins(graph_module, lambda tensor: torch.empty_like(tensor, device="meta")), torch.no_grad():
        _run_and_note(graph_module, graph_module, inputs)


def _exactly(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    inputs = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in example_inputs]
    with _stand_ins(graph_module, mode.from_tensor), mode, torch.no_grad():
        _run_and_note(graph_module, graph_module, inputs)


def _by_a_real_call(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    """On a copy, since the call may write into buffers and inputs."""
    inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in example_inputs]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        _run_and_note(graph_module, independent_copy(graph_module), inputs)
    for node in graph_module.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = torch.empty_like(node.meta["val"], device="meta")


@contextmanager
def _stand_ins(graph_module: fx.GraphModule, make: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """For a moment, every parameter and buffer is a tensor without data, so that nothing is written to the real one."""
    tables = [table for table in tensor_tables(graph_module) if table]
    real = [(table, dict(table)) for table in tables]
    try:
        for table in tables:
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = make(tensor)
        yield
    finally:
        for table, contents in real:
            table.update(contents)


def _run_and_note(graph_module: fx.GraphModule, root: nn.Module, inputs: list[Any]) -> None:
    """Run the graph node by node over the modules of `root`, and note each tensor on its node."""
    nodes = graph_module.graph.nodes
    takes = [node for node in nodes if node.op == "placeholder"]
    if len(inputs) > len(takes):
        raise GraphMismatch("tracing", f"the network takes {len(takes)} input and got {len(inputs)} example inputs")
    calls = [node for node in nodes if node.op in ("call_function", "call_method")]
    reshaping = [node for node in calls if op_name(node) in RESHAPING]
    values: dict[fx.Node, Any] = {}
    given = iter(inputs)
    for node in nodes:
        if node.op == "output":
            return _forget(reshaping, values)
        try:
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            _settle(node, args)
            is_input = node.op == "placeholder"
            values[node] = next(given, *args) if is_input else _value(root, node, args, kwargs, not reshaping)
        except Exception as error:
            what = "an input is missing" if isinstance(error, StopIteration) else f"does not accept its inputs: {error}"
            advice = "Check the example inputs, and that dtypes and devices agree"
            raise GraphMismatch("tracing", f"{what}. {advice}", node) from error
        if isinstance(values[node], torch.Tensor):
            node.meta["val"] = values[node]
    raise GraphMismatch("tracing", "the graph has no output")


def _settle(node: fx.Node, args: tuple[Any, ...]) -> None:
    """`n += 1` writes into nothing when n is a number."""
    if node.target in AUGMENTED and isinstance(args[0], (int, float, torch.SymInt)):
        node.target = AUGMENTED[node.target]


def _forget(reshaping: list[fx.Node], values: dict[fx.Node, Any]) -> None:
    """What a value looks like that is reshaped in place depends on when one asks."""
    reshaped = [values[node.args[0]] for node in reshaping]
    for node in values:
        if any(values[node] is value for value in reshaped):
            node.meta.pop("val", None)


def _value(root: nn.Module, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], shortcut: bool) -> Any:
    if node.op == "get_attr":
        return operator.attrgetter(node.target)(root)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    if node.op == "call_function":
        quick = shortcut and node.target in KEEPS_SHAPE and _agree(args)
        return args[0] if quick else node.target(*args, **kwargs)
    module = submodule(root, node.target)
    quick = shortcut and type(module) in KEEPS_SHAPE and not has_hooks(module) and _agree(args)
    return args[0] if quick else module(*args, **kwargs)


def _agree(args: tuple[Any, ...]) -> bool:
    """Whether all arguments are tensors of one shape and dtype."""
    if not args or not all(isinstance(arg, torch.Tensor) for arg in args):
        return False
    kinds = {(arg.shape, arg.dtype) for arg in args}
    return len(kinds) == 1
