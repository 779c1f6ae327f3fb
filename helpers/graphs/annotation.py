"""Notes on each node of a graph which shape and dtype its value has, as a tensor without data in `node.meta["val"]`.

The graph runs on the meta device, where nothing is computed. Where that fails (devices differ, a shape depends on
numbers, a function looks into tensors) one real call on copies tells.
"""

import copy
import itertools
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.stateless import _reparametrize_module

from helpers.graphs.effects import attribute, called_modules, has_hooks, op_name
from helpers.graphs.errors import GraphMismatch
from helpers.graphs.operations import KEEPS_SHAPE
from helpers.graphs.tracer import AUGMENTED

# After these a value has another shape than before.
RESHAPING = frozenset({"unsqueeze_", "squeeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "resize_", "resize_as_"})


def annotate(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    """Write a tensor without data into each node's `meta["val"]`; plain values, and shapes that change, get none.

    Raises:
        GraphMismatch: a node does not accept what it gets; the node is named.
    """
    tensors = (*graph_module.parameters(), *graph_module.buffers(), *example_inputs)
    if len({tensor.device for tensor in tensors if isinstance(tensor, torch.Tensor)}) <= 1:
        try:
            inputs = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in example_inputs]
            stored = (
                *graph_module.named_parameters(remove_duplicate=False),
                *graph_module.named_buffers(remove_duplicate=False),
            )
            stand_ins = {name: torch.empty_like(tensor, device="meta") for name, tensor in stored}
            # For a moment, every parameter and buffer is a tensor without data, so nothing is written to the real one.
            with _reparametrize_module(graph_module, stand_ins), torch.no_grad():
                return _run_and_note(graph_module, graph_module, inputs)
        except GraphMismatch:
            pass  # perhaps only because of the stand-ins; a real call will tell
    else:
        _refuse_missing_data(graph_module, example_inputs)
    inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in example_inputs]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        _run_and_note(graph_module, copy.deepcopy(graph_module), inputs)
    for node in graph_module.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = torch.empty_like(node.meta["val"], device="meta")
    return None


def _refuse_missing_data(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    """torch computes with tensors on the meta device and on others at once, and the result has no data."""
    given = next((value.device for value in example_inputs if isinstance(value, torch.Tensor)), torch.device("cpu"))
    modules = called_modules(graph_module)
    for node in graph_module.graph.nodes:
        read = [attribute(graph_module, node.target)] if node.op == "get_attr" else []
        read += modules[node.target].parameters() if node.op == "call_module" else []
        if any(isinstance(tensor, torch.Tensor) and tensor.is_meta for tensor in read) and given.type != "meta":
            raise GraphMismatch("tracing", f"reads tensors without data (device meta), the inputs are on {given}", node)


def _run_and_note(graph_module: fx.GraphModule, root: nn.Module, inputs: list[Any]) -> None:
    """Run the graph node by node over the modules of `root`, and note each tensor on its node."""
    nodes = graph_module.graph.nodes
    takes = graph_module.graph.find_nodes(op="placeholder")
    if len(inputs) > len(takes):
        raise GraphMismatch("tracing", f"the network takes {len(takes)} input and got {len(inputs)} example inputs")
    calls = [node for node in nodes if node.op in ("call_function", "call_method")]
    reshaping = [node for node in calls if op_name(node) in RESHAPING]
    values: dict[fx.Node, Any] = {}
    given, interpreter = iter(inputs), fx.Interpreter(root, graph=graph_module.graph)
    for node in itertools.takewhile(lambda node: node.op != "output", nodes):
        try:
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            if node.target in AUGMENTED and isinstance(args[0], (int, float, torch.SymInt)):
                node.target = AUGMENTED[node.target]  # `n += 1` writes into nothing when n is a number
            is_input = node.op == "placeholder"
            values[node] = next(given, *args) if is_input else _value(interpreter, node, args, kwargs, not reshaping)
        except Exception as error:
            what = "an input is missing" if isinstance(error, StopIteration) else f"does not accept its inputs: {error}"
            advice = "Check the example inputs, and that dtypes and devices agree"
            raise GraphMismatch("tracing", f"{what}. {advice}", node) from error
        if isinstance(values[node], torch.Tensor):
            node.meta["val"] = values[node]
    # What a value looks like that is reshaped in place depends on when one asks.
    reshaped = {id(values[node.args[0]]) for node in reshaping}
    for node in values:
        if id(values[node]) in reshaped:
            node.meta.pop("val", None)


def _value(root: fx.Interpreter, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], shortcut: bool) -> Any:
    called = root.fetch_attr(node.target) if node.op == "call_module" else node.target
    kind = type(called) if node.op == "call_module" else called
    plain = shortcut and kind in KEEPS_SHAPE and not (isinstance(called, nn.Module) and has_hooks(called))
    return args[0] if plain and _agree(args) else getattr(root, node.op)(node.target, args, kwargs)


def _agree(args: tuple[Any, ...]) -> bool:
    """Whether all arguments are tensors of one shape and dtype."""
    kinds = {(arg.shape, arg.dtype) if isinstance(arg, torch.Tensor) else None for arg in args}
    return len(kinds) == 1 and None not in kinds
