"""From a model to a graph whose nodes know their shapes: two tracers, one kind of result.

    route="fx"      torch.fx runs the model's Python code on stand-ins; layers stay module calls
    route="export"  torch.export runs it on fake tensors and records ATen operations

Either way parameters keep their names in the module tree, and `node.meta["val"]` holds a tensor without data for each
value: its shape and dtype count, its device does not.
"""

import operator
import os
import traceback
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from helpers.passes.copying import independent_copy, structural_copy
from helpers.passes.editing import submodule
from helpers.passes.effects import draws, has_hooks
from helpers.passes.errors import GraphMismatch, PassError, UnsupportedCase

ROUTES = ("fx", "export")

# These return something of their first input's shape and dtype (the sum and the product when both inputs agree). Asking
# torch gives the same answer, but its shape rule for batch_norm takes 20 times as long as that for a convolution.
KEEPS_SHAPE = frozenset(
    (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.Hardsigmoid)
    + (nn.Identity, nn.Dropout, torch.relu, F.relu, F.relu6, F.hardswish, F.silu, operator.add, operator.mul)
)


class UnknownChoice(ValueError):
    """A level or route that does not exist."""


def trace(model: nn.Module, example_inputs: tuple[Any, ...], route: str = "fx", owned: bool = True) -> fx.GraphModule:
    """Turn a copy of a model into a graph with shapes.

    Args:
        model: in eval mode; it is not changed.
        example_inputs: the positional arguments of one call.
        route: "fx" or "export".
        owned: False leaves tensors shared with the model, for a caller that replaces most of them, writes into none,
            and calls `copying.own_tensors` at the end.

    Returns:
        A GraphModule that shares nothing with the model (but see `owned`).

    Raises:
        UnsupportedCase: the model is in train mode, or cannot be copied or traced.
        GraphMismatch: the model does not accept the example inputs.
    """
    if route not in ROUTES:
        raise UnknownChoice(f"there is no route {route!r}: choose one of {', '.join(ROUTES)}")
    if model.training:
        raise UnsupportedCase("tracing", f"{type(model).__name__} is in train mode: call model.eval() first")
    try:
        model = independent_copy(model) if owned else structural_copy(model)
    except Exception as error:
        raise UnsupportedCase("tracing", f"{type(model).__name__} cannot be copied: {error}") from error
    return _trace_fx(model, example_inputs) if route == "fx" else _trace_export(model, example_inputs)


def _trace_fx(model: nn.Module, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    tracer = fx.Tracer()
    tracer.proxy_buffer_attributes = True  # else what the network does to its buffers happens now, and never again
    try:
        with _RecordRandom(tracer):
            graph = tracer.trace(model)
    except Exception as error:
        raise _untraceable(model, error) from error
    graph_module = fx.GraphModule(tracer.root, graph, type(model).__name__)
    annotate(graph_module, example_inputs)
    return graph_module


class _RecordRandom(TorchFunctionMode):
    """torch.fx runs a call without traced arguments at once. That would freeze random numbers, so they are recorded."""

    def __init__(self, tracer: fx.Tracer):
        super().__init__()
        self._tracer = tracer

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if draws(getattr(function, "__name__", "")) and not types:
            return self._tracer.create_proxy("call_function", function, args, kwargs or {})
        return function(*args, **(kwargs or {}))


def _trace_export(model: nn.Module, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    try:
        exported = torch.export.export(model, example_inputs).module(check_guards=False)
    except Exception as error:
        raise _untraceable(model, error) from error
    _simplify_signature(exported.graph)
    # What export returns cannot be switched to eval mode; the same graph over the same tensors can.
    return fx.GraphModule(exported, exported.graph, type(model).__name__).eval()


def _simplify_signature(graph: fx.Graph) -> None:
    """Export packs inputs and results into trees; where these are plain positional tensors, so is the signature."""
    info = graph._codegen.pytree_info
    args, kwargs = info.in_spec.children()
    if kwargs.num_children == 0 and all(spec.is_leaf() for spec in args.children()) and info.out_spec.is_leaf():
        graph.set_codegen(fx.graph.CodeGen())
        output = graph.output_node()
        output.args = (output.args[0][0],)


def _untraceable(model: nn.Module, error: Exception) -> PassError:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_the_model(frame.filename)]
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    advice = "mark the part that cannot be traced with torch.fx.wrap, or try the other route"
    return UnsupportedCase("tracing", f"{type(model).__name__} cannot be traced{place}: {error} ({advice})")


def _is_of_the_model(filename: str) -> bool:
    """Whether a line of code belongs neither to torch nor to this tracer."""
    return filename != __file__ and f"{os.sep}torch{os.sep}" not in filename and not filename.startswith("<")


def annotate(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    """Write a tensor without data (or the plain value) into each node's `meta["val"]`. Nothing is computed.

    Raises:
        GraphMismatch: a node does not accept what it gets; the node is named.
    """
    tensors = [*graph_module.parameters(), *graph_module.buffers()]
    tensors += [value for value in example_inputs if isinstance(value, torch.Tensor)]
    if len({tensor.device for tensor in tensors}) <= 1:
        try:
            return _annotate_on_meta(graph_module, example_inputs)
        except GraphMismatch:
            pass  # perhaps only because the graph itself makes tensors on a device; the exact way will tell
    return _annotate_exactly(graph_module, example_inputs)


def _annotate_on_meta(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    """The quick way, when everything is on one device: the "meta" device stands in for it."""
    inputs = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in example_inputs]
    with _parameters_on_meta(graph_module), torch.no_grad():
        _run_and_note(graph_module, inputs)


def _annotate_exactly(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    """The way that knows devices, and takes five times as long."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    inputs = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in example_inputs]
    with mode, torch.no_grad():
        _run_and_note(graph_module, inputs)


@contextmanager
def _parameters_on_meta(graph_module: fx.GraphModule):
    """For a moment, every parameter and buffer is a tensor without data."""
    tables = [table for module in graph_module.modules() for table in (module._parameters, module._buffers)]
    real = [(table, dict(table)) for table in tables]
    try:
        for table in tables:
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = torch.empty_like(tensor, device="meta")
        yield
    finally:
        for table, contents in real:
            table.update(contents)


def _run_and_note(graph_module: fx.GraphModule, inputs: list[Any]) -> None:
    """Run the graph node by node, as `fx.Interpreter` would, and note each tensor on its node."""
    takes = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    if len(inputs) > len(takes):
        raise GraphMismatch("tracing", f"the network takes {len(takes)} input and got {len(inputs)} example inputs")
    values: dict[fx.Node, Any] = {}
    given = iter(inputs)
    for node in graph_module.graph.nodes:
        if node.op == "output":
            return
        try:
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = next(given, *args) if node.op == "placeholder" else _value(graph_module, node, args, kwargs)
        except Exception as error:
            what = "an input is missing" if isinstance(error, StopIteration) else f"does not accept its inputs: {error}"
            advice = "Check the example inputs, and that dtypes and devices agree"
            raise GraphMismatch("tracing", f"{what}. {advice}", node) from error
        if isinstance(values[node], torch.Tensor):
            node.meta["val"] = values[node]
    raise GraphMismatch("tracing", "the graph has no output")


def _value(graph_module: fx.GraphModule, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if node.op == "get_attr":
        return operator.attrgetter(node.target)(graph_module)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    if node.op == "call_function":
        return args[0] if node.target in KEEPS_SHAPE and _agree(args) else node.target(*args, **kwargs)
    module = submodule(graph_module, node.target)
    quick = type(module) in KEEPS_SHAPE and not module.training and not has_hooks(module) and _agree(args)
    return args[0] if quick else module(*args, **kwargs)


def _agree(args: tuple[Any, ...]) -> bool:
    """Whether all arguments are floating-point tensors of one shape and dtype."""
    if not args or not all(isinstance(arg, torch.Tensor) for arg in args):
        return False
    kinds = {(arg.shape, arg.dtype) for arg in args}
    return len(kinds) == 1 and args[0].is_floating_point()
