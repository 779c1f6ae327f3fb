"""Rewriting call by call, as an interpreter reads a graph; lessons 02b and 04b teach with it.

The graph is run on fake tensors, and every call passes through one method. `call_operator` gets the
operation and its operands and returns the result. What it emits on the way becomes the new graph:

    one to one      return self.emit(another_target, args, kwargs)
    one to several  emit several operations, return the last result
    one to none     return an operand
    unchanged       return super().call_operator(target, args, kwargs)
    declined        raise Declined(reason): the call stays as it was

Operands are `FakeValue`s: they know the node that makes them and their fake tensor, so a rewrite
can ask for shapes and dtypes at any point, also of what it has just emitted. Emitted nodes inherit
the source line and the module stack of the node they stand for, and get a fake value of their own.

Example:
    >>> class UseSilu(Rewriter):
    ...     name = "use_silu"
    ...     def call_operator(self, target, args, kwargs):
    ...         return super().call_operator(F.silu if target is F.relu else target, args, kwargs)
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from course.lessons.replacing import PROVENANCE, copy_meta
from helpers.graphs.editing import Editor
from helpers.graphs.errors import Declined, GraphMismatch, UnsupportedCase
from helpers.graphs.operations import attribute, target_name
from helpers.graphs.rewriting import Outcome
from helpers.passes.base import Pass


@dataclass(frozen=True)
class FakeValue:
    """A value in the new graph: the node that makes it, and its fake tensor (or plain number)."""

    node: fx.Node
    value: Any

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)


class Rewriter(Pass):
    """A pass that rewrites one call at a time; override `call_operator`.

    The graph must know its values (`node.meta["val"]`), as `tracing.trace` leaves it.
    """

    def requires(self, graph_module: fx.GraphModule) -> None:
        """Every input must have a fake value to start from."""
        for node in graph_module.graph.find_nodes(op="placeholder"):
            if "val" not in node.meta:
                advice = "trace the model with example inputs"
                raise UnsupportedCase(self.name, f"has no fake value: {advice}", node)

    def call_operator(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Rewrite the call of the node `self.old` and return its result: a `FakeValue`, or a
        structure of them.

        Args:
            target: what the node calls: a function, the name of a method, or the path of a module.
            args, kwargs: the operands, with a `FakeValue` for each node.

        Raises:
            Declined: the call stays as it was, and why.
        """
        return self.emit(target, args, kwargs)

    def emit(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> FakeValue:
        """Add one call to the new graph.

        A string is a method when the old node called one, else a module path.
        """
        op = "call_function"
        if isinstance(target, str):
            op = "call_method" if self.old.op == "call_method" else "call_module"
        node = self.graph.create_node(op, target, _nodes(args), _nodes(kwargs or {}))
        copy_meta(self.old, node, PROVENANCE)
        interpreter = fx.Interpreter(self.graph_module, graph=self.graph)
        try:
            with self.mode, torch.no_grad():
                operands = fx.map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
                value = getattr(interpreter, op)(target, *operands)
        except Exception as error:
            wrong = f"which does not accept its operands: {error}"
            reason = f"was rewritten to {target_name(target)}, {wrong}"
            raise GraphMismatch(self.name, reason, self.old) from error
        return self._emitted(node, value)

    def constant(self, value: torch.Tensor, stem: str) -> FakeValue:
        """A new buffer of the network, read at this point of the new graph."""
        name = Editor(self.graph_module).free_name(stem)
        self.graph_module.register_buffer(name, value)
        return self._emitted(self.graph.get_attr(name), self._fake(value))

    def _emitted(self, node: fx.Node, value: Any) -> FakeValue:
        self.emitted.append(node)
        node.meta["val"] = value
        return FakeValue(node, value)

    def run(self, graph_module: fx.GraphModule) -> Outcome:
        """Rewrite every call; the graph is exchanged at the end, and only if something changed."""
        self.graph_module = graph_module
        self.graph = fx.Graph()
        self.outcome = Outcome()
        self.mode = _mode_of(graph_module)
        stored = (*graph_module.parameters(), *graph_module.buffers())
        self.device = next((tensor.device for tensor in stored), torch.get_default_device())
        made: dict[fx.Node, Any] = {}
        for self.old in graph_module.graph.nodes:
            made[self.old] = self._made(self.old, made)
        if self.outcome.changed:
            self.graph.set_codegen(graph_module.graph._codegen)
            graph_module.graph = self.graph
        return self.outcome

    def _made(self, old: fx.Node, made: dict[fx.Node, Any]) -> Any:
        """Put one old node into the new graph, through `call_operator` if it calls something."""
        if not old.op.startswith("call_"):
            return self._copied(old, made)
        args, kwargs = fx.node.map_arg((old.args, old.kwargs), made.__getitem__)
        self.emitted: list[fx.Node] = []
        try:
            result = self.call_operator(old.target, tuple(args), dict(kwargs))
        except Declined as reason:
            self.outcome.decline(old, reason)
            for node in reversed(self.emitted):
                self.graph.erase_node(node)
            self.emitted.clear()
            result = self.emit(old.target, tuple(args), dict(kwargs))
        as_it_was = [(old.target, _nodes(args), _nodes(kwargs))]
        calls = [(node.target, node.args, node.kwargs) for node in self.emitted]
        is_result = isinstance(result, FakeValue) and [result.node] == self.emitted
        if not is_result or calls != as_it_was:
            replacement = ", ".join(map(str, self.emitted)) or "its operand"
            self.outcome.change(old, f"{target_name(old.target)} became {replacement}")
        return result

    def _copied(self, old: fx.Node, made: dict[fx.Node, Any]) -> FakeValue:
        node = self.graph.node_copy(old, lambda source: _node(made[source]))
        if old.op == "placeholder":
            node.meta["val"] = self._fake(old.meta["val"])
        elif old.op == "get_attr":
            node.meta["val"] = self._fake(attribute(self.graph_module, old.target))
        return FakeValue(node, node.meta.get("val"))

    def _fake(self, value: Any) -> Any:
        """The fake tensor that stands for a real one, or for one on the meta device that stands for
        the network's.
        """
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        if value.device.type != "meta":
            return self.mode.from_tensor(value, static_shapes=True)
        shape, strides = value.shape, value.stride()
        with self.mode:
            return torch.empty_strided(shape, strides, dtype=value.dtype, device=self.device)


def _mode_of(graph_module: fx.GraphModule) -> FakeTensorMode:
    """The mode that the inputs come from, for fake tensors of two modes do not mix."""
    for node in graph_module.graph.find_nodes(op="placeholder"):
        if isinstance(node.meta["val"], FakeTensor):
            return node.meta["val"].fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True)


def _node(value: Any) -> Any:
    return value.node if isinstance(value, FakeValue) else value


def _nodes(values: Any) -> Any:
    return fx.node.map_aggregate(values, _node)
