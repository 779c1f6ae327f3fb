"""Read a network once: its graph, and the shape of every value in it, without computing anything.

The graph comes from torch.fx. Shapes come from running it on the "meta" device, where tensors have a shape and no
content, so that tracing a network of a gigabyte is as quick as a small one.
"""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from helpers.passes.copying import structural_copy

# Layers whose output is as large as their input. PyTorch works their shapes out in Python, an operation at a time,
# which would take most of the time of a trace.
SAME_SHAPE = (
    *(
        nn.BatchNorm1d,
        nn.BatchNorm2d,
        nn.BatchNorm3d,
        nn.ReLU,
        nn.ReLU6,
        nn.Hardswish,
        nn.Hardsigmoid,
        nn.SiLU,
        nn.GELU,
    ),
    *(nn.Sigmoid, nn.Dropout, nn.Identity, nn.LayerNorm),
)
ELEMENTWISE = (operator.add, operator.mul, torch.add, torch.mul)


class TraceError(ValueError):
    """The network cannot be read as a graph; says where and what to do."""

    position: int | None = None  # of the node that fails to run
    cause: str = ""  # in one line


@dataclass
class Trace:
    """A graph whose nodes know their values: `node.meta["value"]` is a meta tensor, a number or a tuple of them."""

    graph: fx.Graph
    root: nn.Module  # the network on the meta device

    @property
    def nodes(self) -> list[fx.Node]:
        """The nodes in the order in which they run."""
        return list(self.graph.nodes)


def as_tuple(example_inputs: Any) -> tuple:
    """A lone tensor is accepted wherever a tuple of inputs is expected."""
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    if not inputs or not all(isinstance(x, torch.Tensor) for x in inputs):
        raise TraceError(
            "example_inputs: expected one tensor or a tuple of tensors, as the network's forward takes them"
        )
    return inputs


def on_meta(model: nn.Module) -> nn.Module:
    """A copy whose parameters and buffers have shapes and no content; nothing large is copied on the way."""
    memo: dict[int, Any] = {id(t): torch.empty_like(t, device="meta") for t in model.buffers()}
    memo |= {id(t): nn.Parameter(torch.empty_like(t, device="meta"), t.requires_grad) for t in model.parameters()}
    return structural_copy(model, memo)


def trace(model: nn.Module, example_inputs: Any, training: bool = False) -> Trace:
    """Trace the network and give every node its value.

    Args:
        model: any network that torch.fx can trace; it is left alone.
        example_inputs: one tensor or a tuple, only their shapes and types matter.
        training: trace the branches that the network takes in train mode (auxiliary heads).
    """
    return read_graph(on_meta(model).train(training), example_inputs)


def read_graph(root: nn.Module, example_inputs: Any) -> Trace:
    """Trace a network that is on the meta device already; it ends in eval mode."""
    name, own = type(root).__name__, set(vars(root))
    try:
        graph = fx.Tracer().trace(root)
    except Exception as error:
        remedy = "rewrite control flow that depends on values, or keep it in a function declared with torch.fx.wrap"
        raise failed(f"torch.fx cannot trace {name}; {remedy}", error) from error
    # Layers run in eval mode even then: BatchNorm refuses to train on the single value that an image may leave it.
    recorder = Recorder(root.eval(), graph=graph)
    try:
        with torch.no_grad():
            recorder.run(*(x.to("meta") for x in as_tuple(example_inputs)))
    except Exception as error:
        place = recorder.place
        text = f"{name} does not run on inputs of this shape and type, at node {place}"
        raise failed(text, error, None if place is None else recorder.order.index(place)) from error
    finally:
        for constant in vars(root).keys() - own:  # tracing keeps tensors that a forward makes on the network itself
            delattr(root, constant)
    return Trace(recorder.graph, root)


def failed(text: str, error: Exception, position: int | None = None) -> TraceError:
    """The error to raise, with what the trial cut wants to know."""
    cause = (str(error).strip() or repr(error)).splitlines()[0]
    result = TraceError(f"{text}: {cause}")
    result.position, result.cause = position, cause
    return result


class Recorder(fx.Interpreter):
    """Runs a graph and leaves each node's value with the node; `place` is the node that runs now."""

    place: fx.Node | None = None

    @property
    def order(self) -> list[fx.Node]:
        """The nodes in the order in which they run."""
        return list(self.graph.nodes)

    def call_module(self, target: str, args: tuple, kwargs: dict) -> Any:
        """Run a layer, or return its input where that has the shape that is asked for."""
        if type(self.fetch_attr(target)) in SAME_SHAPE and args:
            return args[0]
        return super().call_module(target, args, kwargs)

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        """The same for sums and products of two tensors of one type."""
        tensors = len(args) == 2 and not kwargs and all(isinstance(a, torch.Tensor) for a in args)
        if target in ELEMENTWISE and tensors and args[0].dtype == args[1].dtype:
            shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
            return torch.empty(shape, dtype=args[0].dtype, device="meta")
        return super().call_function(target, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        """Run one node and note its value."""
        self.place = n
        n.meta["value"] = super().run_node(n)
        return n.meta["value"]
