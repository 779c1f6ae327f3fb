"""The three shapes of rewrites: node by node, match by match, and call by call.

`NodeRewriter` visits each node once. `MatchRewriter` has a table of rules: match -> may I? ->
rewrite.

`Rewriter` reads like an interpreter: the graph is run on fake tensors, and every call passes
through one method. `call_operator` gets the operation and its operands and returns the result. What
it emits on the way becomes the new graph:

    one to one      return self.emit(another_target, args, kwargs)
    one to several  emit several operations, return the last result
    one to none     return an operand
    unchanged       return super().call_operator(target, args, kwargs)

Operands are `Traced` values: they know the node that makes them and their fake tensor, so a rewrite
can ask for shapes and dtypes at any point, also of what it has just emitted. Emitted nodes inherit
the source line and the module stack of the node they stand for, and get a fake value of their own.

Example:
    >>> class UseSilu(Rewriter):
    ...     name = "use_silu"
    ...     def call_operator(self, target, args, kwargs):
    ...         return super().call_operator(F.silu if target is F.relu else target, args, kwargs)
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from helpers.graphs.editing import Editor
from helpers.graphs.effects import attribute, target_name
from helpers.graphs.errors import GraphMismatch, MustStay, PassError, UnsupportedCase
from helpers.graphs.matching import PROVENANCE, find
from helpers.graphs.patterns import Match, Op
from helpers.passes.folder import Pass, PassResult

# Rewrites a match and says at which node it did what, or raises `MustStay` before it has changed
# anything.
Rule = Callable[[Match, Editor], tuple[fx.Node, str]]
Rules = dict[Op, Rule]


class NodeRewriter(Pass):
    """A pass that visits each node once, in the order of the graph; override `visit`."""

    def visit(self, node: fx.Node, editor: Editor) -> str | None:
        """Abstract: rewrite a node and say what was done, or None.

        Raises `MustStay` when it may not be.
        """
        raise NotImplementedError(
            f"pass {type(self).__name__} has no visit(): it must say what becomes of a node"
        )

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Node by node."""
        result, editor = PassResult(), Editor(graph_module)
        for node in list(graph_module.graph.nodes):
            try:
                what = self.visit(node, editor)
            except MustStay as reason:
                result.decline(node, str(reason))
            else:
                if what is not None:
                    result.change(node, what)
        return result


class MatchRewriter(Pass):
    """A pass with a table of rules; a rewrite makes the next one possible, until nothing matches."""

    rules: ClassVar[Rules]

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Rule by rule."""
        result, editor, limit = (
            PassResult(),
            Editor(graph_module),
            2 * len(graph_module.graph.nodes),
        )
        for pattern, rule in self.rules.items():
            # A match is rewritten as soon as it is found: the search goes on behind it, in the new
            # graph.
            rewrite = functools.partial(_rewrite, rule, editor, result)
            while (
                found := find(graph_module, pattern, filters=[rewrite], allow_overlap=True)
            ).matches:
                if len(result.changed) > limit:
                    reason = (
                        f"a rule still matches after {len(result.changed)} rewrites: it must change"
                        " its match"
                    )
                    raise PassError(self.name, reason, found.matches[-1].anchor)
            for refusal in found.refused:
                result.decline(refusal.node, refusal.reason)
        return result


def _rewrite(rule: Rule, editor: Editor, result: PassResult, match: Match) -> str | None:
    try:
        result.change(*rule(match, editor))
    except MustStay as reason:
        return str(reason)
    return None


def check_same_form(before: fx.Node, after: fx.Node) -> None:
    """Raise `MustStay` unless the values of two nodes have one shape and dtype."""
    one, other = before.meta.get("val"), after.meta.get("val")
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        raise MustStay("shapes are not known: trace with example inputs")
    if one.shape != other.shape:
        raise MustStay(f"it changes the shape from {tuple(one.shape)} to {tuple(other.shape)}")
    if one.dtype != other.dtype:
        raise MustStay(f"it changes the dtype from {one.dtype} to {other.dtype}")


@dataclass(frozen=True)
class Traced:
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
        for node in graph_module.graph.nodes:
            if node.op == "placeholder" and "val" not in node.meta:
                reason = (
                    "has no fake value: trace the model with example inputs, or run"
                    " tracing.annotate first"
                )
                raise UnsupportedCase(self.name, reason, node)

    def call_operator(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Rewrite the call of the node `self.old` and return its result: a `Traced`, or a structure
        of them.

        Args:
            target: what the node calls: a function, the name of a method, or the path of a module.
            args, kwargs: the operands, with a `Traced` for each node.
        """
        return self.emit(target, args, kwargs)

    def emit(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Traced:
        """Add one call to the new graph.

        A string is a method when the old node called one, else a module path.
        """
        named = "call_method" if self.old.op == "call_method" else "call_module"
        op = named if isinstance(target, str) else "call_function"
        node = self.graph.create_node(op, target, _nodes(args), _nodes(kwargs or {}))
        node.meta.update({key: self.old.meta[key] for key in PROVENANCE if key in self.old.meta})
        interpreter = fx.Interpreter(self.graph_module, graph=self.graph)
        try:
            with self.mode, torch.no_grad():
                operands = fx.map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
                value = getattr(interpreter, op)(target, *operands)
        except Exception as error:
            reason = (
                f"was rewritten to {target_name(target)}, which does not accept its operands:"
                f" {error}"
            )
            raise GraphMismatch(self.name, reason, self.old) from error
        return self._emitted(node, value)

    def constant(self, value: torch.Tensor, stem: str) -> Traced:
        """A new buffer of the network, read at this point of the new graph."""
        name = Editor(self.graph_module).free_name(stem)
        self.graph_module.register_buffer(name, value)
        return self._emitted(self.graph.get_attr(name), self._fake(value))

    def _emitted(self, node: fx.Node, value: Any) -> Traced:
        self.emitted.append(node)
        node.meta["val"] = value
        return Traced(node, value)

    def decline(self, reason: str) -> None:
        """Say why the current call was left as it is."""
        self.result.decline(self.old, reason)

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite every call; the graph is exchanged at the end, and only if something changed."""
        self.graph_module, self.graph, self.result = graph_module, fx.Graph(), PassResult()
        inputs = (node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder"))
        modes = (value.fake_mode for value in inputs if isinstance(value, FakeTensor))
        self.mode = next(modes, None) or FakeTensorMode(allow_non_fake_inputs=True)
        stored = (*graph_module.parameters(), *graph_module.buffers())
        self.device = next((tensor.device for tensor in stored), torch.get_default_device())
        made: dict[fx.Node, Any] = {}
        for self.old in graph_module.graph.nodes:
            made[self.old] = self._visit(self.old, made)
        if self.result.changed:
            self.graph.set_codegen(graph_module.graph._codegen)
            graph_module.graph = self.graph
        return self.result

    def _visit(self, old: fx.Node, made: dict[fx.Node, Any]) -> Any:
        """Put one old node into the new graph, through `call_operator` if it calls something."""
        if old.op not in ("call_function", "call_method", "call_module"):
            node = self.graph.node_copy(old, lambda source: _node(made[source]))
            if old.op in ("get_attr", "placeholder"):
                read = old.op == "get_attr"
                node.meta["val"] = self._fake(
                    attribute(self.graph_module, old.target) if read else old.meta["val"]
                )
            return Traced(node, node.meta.get("val"))
        args, kwargs = fx.node.map_arg((old.args, old.kwargs), made.__getitem__)
        self.emitted: list[fx.Node] = []
        result = self.call_operator(old.target, tuple(args), dict(kwargs))
        as_it_was = [(old.target, _nodes(args), _nodes(kwargs))]
        is_result = isinstance(result, Traced) and [result.node] == self.emitted
        if not is_result or as_it_was != [
            (node.target, node.args, node.kwargs) for node in self.emitted
        ]:
            made_here = ", ".join(map(str, self.emitted)) or "its operand"
            self.result.change(old, f"{target_name(old.target)} became {made_here}")
        return result

    def _fake(self, value: Any) -> Any:
        """The fake tensor that stands for a real one, or for one on the meta device that stands for
        the network's.
        """
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        if value.device.type != "meta":
            return self.mode.from_tensor(value, static_shapes=True)
        with self.mode:
            return torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=self.device
            )


def _node(value: Any) -> Any:
    return value.node if isinstance(value, Traced) else value


def _nodes(values: Any) -> Any:
    return fx.node.map_aggregate(values, _node)
