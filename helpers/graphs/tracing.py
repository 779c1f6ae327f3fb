"""From a model to a graph whose nodes know their shapes: two tracers, one kind of result.

    route="fx"      torch.fx runs the model's Python code on stand-ins; layers stay module calls
    route="export"  torch.export runs it on fake tensors and records ATen operations

Either way parameters keep their names in the module tree, and `node.meta["val"]` holds a tensor without data for each
value: its shape and dtype count, its device does not.
"""

import copy
import inspect
import os
import traceback
import warnings
from typing import Any

import torch
from torch import fx, nn
from torch.export import Dim
from torch.utils._pytree import tree_leaves, tree_map_only

from helpers.graphs import tracer
from helpers.graphs.annotation import annotate
from helpers.graphs.editing import with_tensors
from helpers.graphs.errors import GraphMismatch, PassError, UnsupportedCase

ROUTES = ("fx", "export")
OWN_FILES = (__file__, tracer.__file__)
VMAP = "torch._functorch.predispatch"  # the module of what export writes around the inside of torch.vmap


class UnknownChoice(ValueError):
    """A level or route that does not exist."""


def trace(
    model: nn.Module, example_inputs: tuple[Any, ...], route: str = "fx", any_batch: bool = True
) -> fx.GraphModule:
    """Turn a copy of a model into a graph with shapes.

    Args:
        model: in eval mode; it is not changed.
        example_inputs: the positional arguments of one call.
        route: "fx" or "export".
        any_batch: False leaves the graph as export records it by itself, for the sizes of the example, unchecked.

    Returns:
        A GraphModule that shares nothing with the model.

    Raises:
        UnsupportedCase: the model is in train mode, or cannot be copied or traced.
        GraphMismatch: the model does not accept the example inputs.
    """
    if route not in ROUTES:
        raise UnknownChoice(f"there is no route {route!r}: choose one of {', '.join(ROUTES)}")
    if not isinstance(model, nn.Module):
        raise UnsupportedCase("tracing", f"expected a network (nn.Module), got {type(model).__name__}")
    if not any(isinstance(value, torch.Tensor) for value in tree_leaves(example_inputs)):
        kinds = ", ".join(type(value).__name__ for value in example_inputs)
        raise GraphMismatch("tracing", f"the example inputs must hold a tensor, got {kinds or 'none'}")
    if model.training:
        raise UnsupportedCase("tracing", f"{type(model).__name__} is in train mode: call model.eval() first")
    try:
        copied = _copied(model)
    except Exception as error:
        raise UnsupportedCase("tracing", f"{type(model).__name__} cannot be copied: {error}") from error
    return _trace_fx(copied, example_inputs) if route == "fx" else _trace_export(copied, example_inputs, any_batch)


def _copied(model: nn.Module) -> nn.Module:
    """A deep copy; torch's plain layers, of which most of a network consists, are copied table by table.

    `copy.deepcopy` alone gives the same, but takes as long as all passes together.
    """
    memo: dict[int, Any] = {}
    for module in model.modules():
        others = (value for name, value in vars(module).items() if name not in ("_parameters", "_buffers"))
        if type(module).__module__.startswith("torch.nn.modules.") and all(map(_is_plain, others)):
            new = memo[id(module)] = with_tensors(module)
            for table in (new._parameters, new._buffers):
                table.update({name: copy.deepcopy(tensor, memo) for name, tensor in table.items()})
    return copy.deepcopy(model, memo)


def _is_plain(value: Any) -> bool:
    """Whether a shallow copy is a deep one: numbers, strings, and tables of hooks and children that are empty."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return not value if isinstance(value, (dict, set)) else isinstance(value, (int, float, str, type(None)))


def _trace_fx(model: nn.Module, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    recorder = tracer.Tracer(given=len(example_inputs))
    try:
        graph = recorder.record(model)
    except Exception as error:
        raise _untraceable(model, error) from error
    graph_module = fx.GraphModule(recorder.root, graph, type(model).__name__)
    annotate(graph_module, example_inputs)
    return graph_module


def _trace_export(model: nn.Module, example_inputs: tuple[Any, ...], any_batch: bool) -> fx.GraphModule:
    # A tensor that is given twice would be one input.
    inputs = tree_map_only(torch.Tensor, lambda x: x.detach().clone(), example_inputs)
    try:
        with warnings.catch_warnings():  # an LSTM lists its weights anew, which is no state
            warnings.filterwarnings("ignore", ".*_flat_weights.* assigned during export")
            exported = (any_batch and _export_any_batch(model, inputs)) or torch.export.export(model, inputs).module(
                check_guards=False
            )
        if any(getattr(node.target, "__module__", "") == VMAP for node in exported.graph.nodes):
            raise tracer.Lost("it calls torch.vmap, of which export records the inside")
    except Exception as error:
        raise _untraceable(model, error) from error
    _simplify_signature(exported.graph)
    # What export returns cannot be switched to eval mode; the same graph over the same tensors can.
    graph_module = fx.GraphModule(exported, exported.graph, type(model).__name__).eval()
    if any_batch:
        SameSizes(graph_module.graph, inputs, getattr(exported, "_guards_fn", None)).watch(graph_module)
    _inline_gradient_modes(graph_module)
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return graph_module


def _export_any_batch(model: nn.Module, inputs: tuple[Any, ...]) -> fx.GraphModule | None:
    """Record a graph that takes any number of images; None when the network is written for the example's alone.

    Export takes a size of 1 for a constant. So one image is given twice. Its guards, of which `SameSizes` asks those
    that are left as `_guards_fn`, say which way the network decided by the number of images.
    """
    if not all(isinstance(x, torch.Tensor) and x.dim() > 0 for x in inputs):
        return None
    several = tuple(torch.cat([x, x]) if len(x) == 1 else x for x in inputs)
    first_axes = tuple({0: Dim.AUTO} for _ in inputs)
    names = inspect.signature(model.forward).parameters.values()
    packed = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in names)
    try:
        program = torch.export.export(model, several, dynamic_shapes=(first_axes,) if packed else first_axes)
        exported = program.module()
        exported._guards_fn(*inputs)
    except Exception:  # whatever is wrong with the network itself, the export of the example says it
        return None
    for node in exported.graph.find_nodes(op="call_module", target="_guards_fn"):
        exported.graph.erase_node(node)
    if not program._guards_code:  # it looks at nothing but sizes that are always the same
        exported._guards_fn = None
    return exported


class WrongSize(ValueError):
    """A recorded graph gets other inputs than those it was recorded for."""


class SameSizes:
    """Refuses other inputs than a graph was recorded for; where export left a size open, any will do.

    A number, a flag or None is part of what was recorded, and has to be the same each time.
    """

    def __init__(self, graph: fx.Graph, example_inputs: tuple[Any, ...], guards: nn.Module | None = None):
        self.guards = guards
        values = [node.meta.get("val") for node in graph.find_nodes(op="placeholder")]
        pairs = zip(values, tree_leaves(example_inputs), strict=True)
        self.recorded = [_sizes(value) if isinstance(value, torch.Tensor) else given for value, given in pairs]

    def watch(self, graph_module: fx.GraphModule) -> None:
        """Look at the inputs of each call, of copies too."""
        graph_module.register_forward_pre_hook(self)
        graph_module._register_deepcopy_hook(self.watch)  # fx copies no other hooks

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Raise `WrongSize`."""
        for recorded, got in zip(self.recorded, map(_sizes, tree_leaves(inputs)), strict=False):
            fits = type(got) is type(recorded) and got == recorded
            if isinstance(got, list) and isinstance(recorded, list) and len(got) == len(recorded):
                fits = all(size in ("any", given) for size, given in zip(recorded, got, strict=True))
            if not fits:
                one, other = (
                    f"inputs of shape ({', '.join(map(str, sizes))})" if isinstance(sizes, list) else repr(sizes)
                    for sizes in (recorded, got)
                )
                advice = "optimize with an example like it, or by the route fx"
                raise WrongSize(f"this graph was recorded for {one} and got {other}: {advice}")
        if self.guards is not None and len(tree_leaves(inputs)) == len(self.recorded):
            try:
                self.guards(*tree_leaves(inputs))
            except AssertionError as error:
                reason = "the network decides by the number of images, and this graph was recorded for others"
                raise WrongSize(f"{reason} ({error}): optimize with an example like this one") from error


def _sizes(value: Any) -> Any:
    """The sizes of a tensor, "any" for one that is open; any other value itself."""
    is_tensor = isinstance(value, torch.Tensor)
    return [size if isinstance(size, int) else "any" for size in value.shape] if is_tensor else value


def _inline_gradient_modes(graph_module: fx.GraphModule) -> None:
    """Export makes a subgraph of what runs under `torch.no_grad`, where the answers are the same."""
    graph = graph_module.graph
    for call in graph.find_nodes(op="call_function", target=torch.ops.higher_order.wrap_with_set_grad_enabled):
        _, body, *inputs = call.args
        inner = graph_module.get_submodule(body.target)
        _inline_gradient_modes(inner)
        with graph.inserting_before(call):
            values = dict(zip(inner.graph.find_nodes(op="placeholder"), inputs, strict=True))
            results = graph.graph_copy(inner.graph, values)
        for pick in list(call.users):
            pick.replace_all_uses_with(results[pick.args[1]])
            graph.erase_node(pick)
        graph.erase_node(call)
        graph.erase_node(body)


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
    return filename not in OWN_FILES and f"{os.sep}torch{os.sep}" not in filename and not filename.startswith("<")
