"""From a model to a graph whose nodes know their shapes: two routes, one kind of result.

    route="fx"      torch.fx runs the model's Python code on proxies; layers stay module calls
    route="export"  torch.export runs it on fake tensors and records ATen operations

Either way parameters keep their names in the module tree, and `node.meta["val"]` holds what the
node gives, with tensors that have no data: shape and dtype count, the device does not.
"""

import contextlib
import copy
import inspect
import io
import logging
import operator
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.export import Dim
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from helpers.graphs.errors import GraphMismatch, PassError, UnsupportedCase
from helpers.graphs.proxies import NOT_RECORDED
from helpers.graphs.recording import Recorder, stored_tensors

ROUTES = ("fx", "export")
# the module of what export writes around the inside of torch.vmap
VMAP = "torch._functorch.predispatch"
# names that no layer or tensor of the network can have
TAKEN = frozenset(dir(fx.GraphModule(nn.Module(), fx.Graph())))
# what an exported graph says of inputs for which it does not hold
OTHER_INPUTS = "this graph was recorded for other inputs"
ADVICE = "optimize with an example like these, or by the route fx"


class Graph(fx.GraphModule):
    """A graph whose copies know what was noted on it: how it is made, how its images look."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Graph":
        copied = super().__deepcopy__(memo)
        for name in vars(self).keys() - vars(copied).keys():
            setattr(copied, name, vars(self)[name])
        return copied


def trace(
    model: nn.Module, example_inputs: tuple[Any, ...], route: str = "fx", any_batch: bool = True
) -> fx.GraphModule:
    """Turn a copy of a model into a graph with shapes.

    Args:
        model: in eval mode; it is not changed.
        example_inputs: the positional arguments of one call.
        route: "fx" or "export".
        any_batch: False leaves the graph as export records it by itself, for the sizes of the
            example, unchecked.

    Returns:
        A GraphModule that shares nothing with the model.

    Raises:
        UnsupportedCase: the model is in train mode, or cannot be copied or traced.
        GraphMismatch: the model does not accept the example inputs; the node is named.
    """
    if route not in ROUTES:
        raise ValueError(f"there is no route {route!r}: choose one of {', '.join(ROUTES)}")
    _check(model, example_inputs)
    if route == "export":
        own = _copied(model)
        try:
            return _export(own, example_inputs, any_batch)
        except Exception as error:
            raise _untraceable(model, error) from error
    if _on_one_device(model, example_inputs):
        try:
            return _record(model, example_inputs, with_data=False)
        except GraphMismatch:
            pass  # perhaps only for want of data; a real call will tell
    return _record(model, example_inputs, with_data=True)


def _check(model: nn.Module, example_inputs: tuple[Any, ...]) -> None:
    """What must hold on both routes."""
    if not isinstance(model, nn.Module):
        raise UnsupportedCase(
            "tracing", f"expected a network (nn.Module), got {type(model).__name__}"
        )
    given = _tensors(example_inputs)
    if not given:
        types = ", ".join(type(value).__name__ for value in example_inputs)
        raise GraphMismatch(
            "tracing", f"the example inputs must hold a tensor, got {types or 'none'}"
        )
    if model.training:
        raise UnsupportedCase(
            "tracing", f"{type(model).__name__} is in train mode: call model.eval() first"
        )
    without = [name for name, tensor in stored_tensors(model).items() if tensor.is_meta]
    if without and not any(tensor.is_meta for tensor in given):
        raise GraphMismatch(
            "tracing", f"{without[0]} has no data (device meta), and the inputs have some"
        )
    for name in TAKEN.intersection((*model._modules, *model._parameters, *model._buffers)):
        raise UnsupportedCase(
            "tracing", f"a graph has a {name!r} of its own: rename what the network calls so"
        )


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise UnsupportedCase(
            "tracing", f"{type(model).__name__} cannot be copied: {error}"
        ) from error


def _on_one_device(model: nn.Module, example_inputs: tuple[Any, ...]) -> bool:
    """Whether nothing but the numbers can tell a call without data from a real one."""
    tensors = [*_tensors(example_inputs), *stored_tensors(model).values()]
    return len({tensor.device for tensor in tensors}) == 1


def _tensors(example_inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    return [value for value in tree_leaves(example_inputs) if isinstance(value, torch.Tensor)]


def _record(model: nn.Module, example_inputs: tuple[Any, ...], with_data: bool) -> fx.GraphModule:
    """The route by torch.fx, with values that are worked out without data, or with."""
    own = _copied(model)
    recorder = Recorder(tuple(example_inputs), with_data=with_data)
    try:
        with torch.random.fork_rng(devices=[]):
            graph = recorder.record(own)
    except GraphMismatch:
        raise
    except Exception as error:
        raise _untraceable(model, error) from error
    for node, value in recorder.values.items():
        # What was reshaped in place has another shape now: it depends on when one asks.
        if isinstance(value, torch.Tensor) and value.shape != node.meta["val"].shape:
            del node.meta["val"]
    return Graph(own, graph, type(model).__name__)


def _export(model: nn.Module, example_inputs: tuple[Any, ...], any_batch: bool) -> fx.GraphModule:
    # A tensor that is given twice would be one input.
    inputs = tree_map_only(torch.Tensor, lambda x: x.detach().clone(), example_inputs)
    # What the network itself runs under `no_grad` would become a subgraph.
    with (
        torch.no_grad(),
        _KeepData(),
        _without_drafts(),
        warnings.catch_warnings(),
    ):  # an LSTM lists its weights anew, which is no state
        warnings.filterwarnings("ignore", ".*_flat_weights.* assigned during export")
        exported = any_batch and _for_any_batch(model, inputs)
        if not exported:
            exported = torch.export.export(model, inputs).module()
            if any_batch:
                _write_guards(exported, inputs)
    graph = exported.graph
    if any(getattr(node.target, "__module__", "") == VMAP for node in graph.nodes):
        raise RuntimeError("it calls torch.vmap, of which export records the inside")
    for node in graph.find_nodes(op="call_module", target="_guards_fn"):
        graph.erase_node(node)
    _simplify_signature(graph)
    graph._tracer_cls = fx.Tracer  # a pickle names it, and torch 2.11 cannot start export's own
    # What export returns cannot be switched to eval mode; the same graph over the same tensors can.
    graph_module = Graph(exported, graph, type(model).__name__).eval()
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return graph_module


@contextlib.contextmanager
def _without_drafts() -> Iterator[None]:
    """Keep back what torch prints of a network that export refuses; the error names the line."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    printed = io.StringIO()
    logger.disabled = True
    try:
        with contextlib.redirect_stderr(printed):
            yield
        sys.stderr.write(printed.getvalue())
    finally:
        logger.disabled = False


class _KeepData(TorchFunctionMode):
    """Refuses `x.data = y`, which export leaves out without a word."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function == torch.Tensor.data.__set__:
            raise RuntimeError(f"it sets .data of a tensor, {NOT_RECORDED}")
        return function(*args, **(kwargs or {}))


def _for_any_batch(model: nn.Module, inputs: tuple[Any, ...]) -> fx.GraphModule | None:
    """Record a graph that takes any number of images; None when the network is written for the
    example's alone.

    Export takes a size of 1 for a constant. So one image is given twice; the guards of the graph
    say whether it stands for one image, too, which it does not where the network decides by their
    number.
    """
    if not all(isinstance(x, torch.Tensor) and x.dim() > 0 for x in inputs):
        return None
    several = tuple(torch.cat([x, x]) if len(x) == 1 else x for x in inputs)
    first_axes = tuple({0: Dim.AUTO} for _ in inputs)
    names = inspect.signature(model.forward).parameters.values()
    packed = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in names)
    try:
        exported = torch.export.export(
            model, several, dynamic_shapes=(first_axes,) if packed else first_axes
        ).module()
        exported._guards_fn(*tree_leaves(inputs))
        _write_guards(exported, inputs)
    except (
        Exception
    ):  # whatever is wrong with the network itself, the export of the example says it
        return None
    return exported


def _write_guards(exported: fx.GraphModule, example: tuple[Any, ...]) -> None:
    """Write the guards of an export into its graph, as assertions that go wherever the graph goes.

    Where export left a size open, any will do. That an argument was None is no guard of export's,
    and is asked here, of all but the first.
    """
    (call,) = exported.graph.find_nodes(op="call_module", target="_guards_fn")
    tracer = fx.Tracer()
    tracer.graph, tracer.root = exported.graph, exported
    given = [fx.Proxy(node, tracer) for node in call.args]
    with exported.graph.inserting_before(call):
        for argument, value in list(zip(given, tree_leaves(example), strict=True))[1:]:
            same = operator.is_ if value is None else operator.is_not
            asked = tracer.create_proxy("call_function", same, (argument, None), {})
            torch._assert(asked, "what was None has to stay None, and nothing else becomes None")
        exported._guards_fn(*given)
    for node in exported.graph.find_nodes(op="call_function", target=torch._assert):
        if node < call:
            node.args = (node.args[0], f"{OTHER_INPUTS}: {node.args[1]} ({ADVICE})")


def _simplify_signature(graph: fx.Graph) -> None:
    """Export packs inputs and results into trees; where these are plain positional tensors, so is
    the signature.
    """
    info = graph._codegen.pytree_info
    args, kwargs = info.in_spec.children()
    if (
        kwargs.num_children == 0
        and all(spec.is_leaf() for spec in args.children())
        and info.out_spec.is_leaf()
    ):
        graph.set_codegen(fx.graph.CodeGen())
        output = graph.output_node()
        output.args = (output.args[0][0],)


def _untraceable(model: nn.Module, error: Exception) -> PassError:
    """The error with the line of the model, which belongs neither to torch nor to this folder."""
    names = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    others = (f"{os.sep}torch{os.sep}", os.path.dirname(__file__))
    own = [
        name
        for name in names
        if not any(other in name[0] for other in others) and not name[0].startswith("<")
    ]
    place = f" at {own[-1][0]}:{own[-1][1]}" if own else ""
    advice = "mark the part that cannot be traced with torch.fx.wrap, or try the other route"
    return UnsupportedCase(
        "tracing", f"{type(model).__name__} cannot be traced{place}: {error} ({advice})"
    )
