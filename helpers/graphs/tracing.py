"""From a model to a graph whose nodes know their shapes: two routes, one kind of result.

    route="fx"      torch.fx runs the model's Python code on proxies; layers stay module calls
    route="export"  torch.export runs it on fake tensors and records ATen operations

Either way parameters keep their names in the module tree, and `node.meta["val"]` holds what the
node gives. Its tensors have no data: they tell shape and dtype, and nothing about the device.
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

from helpers.graphs.editing import call_after, quick_copy
from helpers.graphs.effects import Storage
from helpers.graphs.errors import GraphMismatch, PassError, UnsupportedCase
from helpers.graphs.interception import NOT_RECORDED
from helpers.graphs.recording import Recorder, stored_tensors, tensors_in

ROUTES = ("fx", "export")
# The module of the functions that export writes before and after the inside of torch.vmap.
VMAP = "torch._functorch.predispatch"
# Names that a GraphModule uses itself, so that no layer or tensor can have them.
RESERVED = frozenset(dir(fx.GraphModule(nn.Module(), fx.Graph())))
# The error of an exported graph that is given other inputs than those for which it holds.
OTHER_INPUTS = "this graph was recorded for other inputs"
ADVICE = "optimize with an example like these, or by the route fx"


class Graph(fx.GraphModule):
    """A graph whose copies keep the notes on it: how it was made, how its images are normalised."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Graph":
        copied = super().__deepcopy__(memo)
        compiled = {"_compiled_call_impl"}  # it would call the original
        for name in vars(self).keys() - vars(copied).keys() - compiled:
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
        any_batch: only for the route "export". False leaves the graph as torch.export records it,
            which holds for the sizes of the example and does not check them.

    Returns:
        A GraphModule that shares nothing with the model.

    Raises:
        UnsupportedCase: the model is in train mode, or cannot be copied or traced.
        GraphMismatch: the model does not accept the example inputs; names the node, if one fails.
    """
    if route not in ROUTES:
        raise ValueError(f"there is no route {route!r}: choose one of {', '.join(ROUTES)}")
    example_inputs = as_tuple(example_inputs)
    _check(model, example_inputs)
    try:
        if route == "export":
            return _export(_copied(model), example_inputs, any_batch)
        if _on_one_device(model, example_inputs):
            # This may fail only because the forward looks at numbers: then try again with data.
            with contextlib.suppress(GraphMismatch):
                return _record(model, example_inputs, with_data=False)
        return _record(model, example_inputs, with_data=True)
    except PassError:
        raise
    except Exception as error:
        raise _untraceable(model, error) from error


def as_tuple(example_inputs: Any) -> tuple[Any, ...]:
    """The arguments of one call; anything but a tuple or list is its only argument."""
    return tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)


def _check(model: nn.Module, example_inputs: tuple[Any, ...]) -> None:
    """What must hold on both routes."""
    if not isinstance(model, nn.Module):
        raise UnsupportedCase(
            "tracing", f"expected a network (nn.Module), got {type(model).__name__}"
        )
    given = tensors_in(example_inputs)
    if not given:
        types = ", ".join(type(value).__name__ for value in example_inputs)
        raise GraphMismatch(
            "tracing", f"the example inputs must hold a tensor, got {types or 'none'}"
        )
    if model.training:
        raise UnsupportedCase(
            "tracing", f"{type(model).__name__} is in train mode: call model.eval() first"
        )
    without_data = [name for name, tensor in stored_tensors(model).items() if tensor.is_meta]
    if without_data and not any(tensor.is_meta for tensor in given):
        raise GraphMismatch(
            "tracing", f"{without_data[0]} has no data (device meta), and the inputs have some"
        )
    if given[0].device.type in ("mps", "xpu"):  # Apple's have none, and of Intel's only some
        raise UnsupportedCase(
            "tracing", "this GPU may lack float64, in which folding computes: move all to the CPU"
        )
    taken = RESERVED.intersection((*model._modules, *model._parameters, *model._buffers))
    if taken:
        raise UnsupportedCase(
            "tracing", f"a graph has a {min(taken)!r} of its own: rename what the network has"
        )


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model, quick_copy(model))
    except Exception as error:
        raise UnsupportedCase(
            "tracing", f"{type(model).__name__} cannot be copied: {error}"
        ) from error


def _on_one_device(model: nn.Module, example_inputs: tuple[Any, ...]) -> bool:
    """Whether all tensors are on one device: a call without data, where all are on "meta", would
    not notice that two are not.
    """
    tensors = [*tensors_in(example_inputs), *stored_tensors(model).values()]
    return len({tensor.device for tensor in tensors}) == 1


def _record(model: nn.Module, example_inputs: tuple[Any, ...], with_data: bool) -> fx.GraphModule:
    """The route by torch.fx.

    Args:
        with_data: work out the values of the nodes with data, see `Recorder`.
    """
    own = _copied(model)
    recorder = Recorder(example_inputs, with_data=with_data)
    with torch.random.fork_rng(devices=[]):
        graph = recorder.record(own)
    for node, value in recorder.values.items():
        # A tensor that was reshaped in place later has two shapes: neither alone is right.
        if isinstance(value, torch.Tensor) and value.shape != node.meta["val"].shape:
            del node.meta["val"]
    graph_module = Graph(own, graph, type(model).__name__)
    _copy_returned_constants(graph_module)
    for module in graph_module.modules():
        if type(module) is nn.Module:  # a container that torch.fx made, in train mode
            module.training = False
    return graph_module


def _copy_returned_constants(graph_module: fx.GraphModule) -> None:
    """A tensor that forward makes anew is a constant of the graph: the caller, who may write into
    what is returned, gets a copy.
    """
    reads = graph_module.graph.find_nodes(op="get_attr")
    made = [node for node in reads if node.target.startswith("_tensor_constant")]
    storage = Storage(graph_module) if made else None
    for node in made:
        if storage.is_returned(node):
            call_after(node, "clone")
            graph_module.recompile()


def _export(model: nn.Module, example_inputs: tuple[Any, ...], any_batch: bool) -> fx.GraphModule:
    """The route by torch.export."""
    # Copies: a tensor that is given twice would become one input.
    inputs = tree_map_only(torch.Tensor, lambda x: x.detach().clone(), example_inputs)
    # Under no_grad: else what the network itself runs under it would become a subgraph.
    with torch.no_grad(), _RefuseNewData(), _quiet(), warnings.catch_warnings():
        # An LSTM lists its weights anew in each call; that is no state.
        warnings.filterwarnings("ignore", ".*_flat_weights.* assigned during export")
        exported = _for_any_batch(model, inputs) if any_batch else None
        if exported is None:
            exported = torch.export.export(model, inputs).module()
            if any_batch:
                _write_guards(exported, inputs)
    graph = exported.graph
    if any(getattr(node.target, "__module__", "") == VMAP for node in graph.nodes):
        raise RuntimeError("it calls torch.vmap, of which export records the inside")
    for node in graph.find_nodes(op="call_module", target="_guards_fn"):
        graph.erase_node(node)
    _simplify_signature(graph)
    graph._tracer_cls = fx.Tracer  # a pickle names it, and torch 2.11 cannot construct export's own
    # The module that export returns refuses eval(); a GraphModule of the same graph does not.
    graph_module = Graph(exported, graph, type(model).__name__).eval()
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return graph_module


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hold back the graph that torch prints when export fails: the error names the line."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    logger.disabled = True
    try:
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            yield
        sys.stderr.write(printed.getvalue())
    finally:
        logger.disabled = False


class _RefuseNewData(TorchFunctionMode):
    """Refuses `x.data = y`, which export silently leaves out."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function == torch.Tensor.data.__set__:
            raise RuntimeError(f"it sets .data of a tensor, {NOT_RECORDED}")
        return function(*args, **(kwargs or {}))


def _for_any_batch(model: nn.Module, inputs: tuple[Any, ...]) -> fx.GraphModule | None:
    """A graph that takes any number of images; None if the network only runs on as many as there
    are in the example, or if an input is not a tensor with axes.

    Export would make a size of 1 a constant, so a single image is given twice. The guards of the
    graph then say whether it also holds for one image; it does not if the network decides by the
    number of images.
    """
    if not all(isinstance(x, torch.Tensor) and x.dim() > 0 for x in inputs):
        return None
    several = tuple(torch.cat([x, x]) if len(x) == 1 else x for x in inputs)
    first_axes = tuple({0: Dim.AUTO} for _ in inputs)
    parameters = enumerate(inspect.signature(model.forward).parameters.values())
    named = next((i for i, p in parameters if p.kind is p.VAR_POSITIONAL), len(inputs))
    if named < len(inputs):  # forward(x, *others)
        first_axes = (*first_axes[:named], first_axes[named:])
    try:
        program = torch.export.export(model, several, dynamic_shapes=first_axes)
        exported = program.module()
        exported._guards_fn(*tree_leaves(inputs))
        _write_guards(exported, inputs)
    except Exception:  # if the network itself is at fault, export of the example fails, too
        return None
    return exported


def _write_guards(exported: fx.GraphModule, example: tuple[Any, ...]) -> None:
    """Write the guards of an export (conditions on its inputs) into its graph, as assertions.

    Export does not check that an argument that was None still is, so that is added here, for all
    arguments after the first.
    """
    (call,) = exported.graph.find_nodes(op="call_module", target="_guards_fn")
    tracer = fx.Tracer()
    tracer.graph, tracer.root = exported.graph, exported
    arguments = [fx.Proxy(node, tracer) for node in call.args]
    with exported.graph.inserting_before(call):
        for argument, value in list(zip(arguments, tree_leaves(example), strict=True))[1:]:
            same = operator.is_ if value is None else operator.is_not
            holds = tracer.create_proxy("call_function", same, (argument, None), {})
            torch._assert(holds, "what was None has to stay None, and nothing else becomes None")
        exported._guards_fn(*arguments)
    for node in exported.graph.find_nodes(op="call_function", target=torch._assert):
        if node < call:
            node.args = (node.args[0], f"{OTHER_INPUTS}: {node.args[1]} ({ADVICE})")


def _simplify_signature(graph: fx.Graph) -> None:
    """Let a graph take and return its values as they are, and not as the trees into which export
    packs them, if the trees hold nothing but positional arguments and one answer.
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
    """The error with the line of the model: the last one outside of torch and of this folder."""
    others = (f"{os.sep}torch{os.sep}", os.path.dirname(__file__))
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        is_generated = frame.filename.startswith("<")
        if not is_generated and not any(other in frame.filename for other in others):
            place = f" at {frame.filename}:{frame.lineno}"
    return UnsupportedCase(
        "tracing",
        f"{type(model).__name__} cannot be traced{place}: {error} (mark the part that cannot be"
        " traced with torch.fx.wrap, or try the other route)",
    )
