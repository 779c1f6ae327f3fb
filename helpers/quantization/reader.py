"""From a folded graph to a plan: each node becomes one operation, then activations and additions join their producers.

`passes.optimize` has brought the graph into canonical form, so a small table says which operations have an integer
form. A node that has none stays in float, as a small graph of its own. Writes in place are followed: whoever reads a
tensor after it was written to reads what was written. At last `verify` compares the plan with the network.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers.graphs.effects import is_torch, op_name
from helpers.graphs.tracing import annotate
from helpers.quantization.plan import INPUT, Op, Plan, PlanError, Recipe

__all__ = ["read", "verify"]

TOLERANCE = 1e-3  # of the largest value: float32 sums in another order stay far below


def read(graph_module: fx.GraphModule, example: torch.Tensor, recipe: Recipe) -> Plan:
    """Write a folded graph as a plan.

    Args:
        graph_module: in canonical form, one input, one output, in eval mode; reads of what was written in place are
            changed in it.
        example: an input, batch first.
        recipe: `residual` and `unsupported` matter here.

    Raises:
        PlanError: more than one input or output, a write in place that no plan can follow, or an unsupported layer
            with unsupported="refuse".
    """
    inputs = [node.name for node in graph_module.graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise PlanError(f"plan: the network has the inputs {inputs}; quantize can feed exactly one")
    _write_out_attention(graph_module)
    annotate(graph_module, (example,))
    with torch.inference_mode(False):
        _Writes(graph_module).run(example.clone())
    edges = _edges(graph_module)
    output = next(node for node in graph_module.graph.nodes if node.op == "output").args[0]
    if not isinstance(output, fx.Node) or edges.get(output, INPUT) == INPUT:
        raise PlanError("plan: the network must compute and return exactly one tensor; wrap it so that it does")
    needed = _needed(output)
    ops = [_read_node(node, edges, graph_module) for node in edges if node in needed and node.op != "placeholder"]
    plan = Plan(ops, tuple(example.shape[1:]))
    _join_clamps(plan)
    if recipe.residual == "fused":
        _join_residuals(plan)
    left = [op.name for op in plan.ops if op.kind == "float"]
    if left and recipe.unsupported == "refuse":
        raise PlanError(f'plan: {left} have no integer form; replace them, or keep them in float (unsupported="keep")')
    return plan


@torch.no_grad()
def verify(plan: Plan, model: nn.Module, graph_module: fx.GraphModule, images: torch.Tensor) -> None:
    """Compare a plan, run in float without any rounding, with the network that it was read from.

    Args:
        plan: from `read`.
        model: the network, as the caller gave it.
        graph_module: what the plan was read from.
        images: normalised input.

    Raises:
        PlanError: the answers differ by more than 1/1000 of the largest one; names the first operation that differs.
    """
    if _agree(plan.run(images.clone()), model(images.clone())):
        return
    values: dict[str, torch.Tensor] = {}
    plan.run(images.clone(), lambda edge, value: values.update({edge: value.clone()}))
    graph = _Values(graph_module)
    graph.run(images.clone())
    different = [op.name for op in plan.ops if not _agree(values[op.name], graph.values[op.node])]
    place = f"they differ from {different[0]!r} on" if different else "folding BatchNorm changed them already"
    raise PlanError(
        f"plan: on the calibration images its answers are not those of the network: {place}. Is it random, does it "
        "keep state, or does it depend on the number of images? verify=False leaves this check out"
    )


def _agree(found: torch.Tensor, expected: torch.Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    return bool((found - expected).abs().max() <= TOLERANCE * expected.abs().max())


class _Values(fx.Interpreter):
    """Runs a graph and keeps a copy of each value."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.values: dict[str, Any] = {}

    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        self.values[node.name] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


class _Writes(fx.Interpreter):
    """Runs a graph, sees from PyTorch's version counters who writes in place, and redirects those who read later."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module, garbage_collect_values=False)

    @torch.no_grad()
    def run_node(self, node: fx.Node) -> Any:
        sources = node.all_input_nodes
        tensors = {source: self.env[source] for source in sources if isinstance(self.env[source], torch.Tensor)}
        versions = {source: tensor._version for source, tensor in tensors.items()}
        value = super().run_node(node)
        written = [source for source, tensor in tensors.items() if tensor._version != versions[source]]
        if written:
            self._redirect(node, written, value)
        return value

    def _redirect(self, node: fx.Node, written: list[fx.Node], value: Any) -> None:
        target = written[0]
        others = [other for other in self.env if other is not target and self._memory(other) == self._memory(target)]
        reader = next((other.name for other in others if any(user > node for user in other.users)), None)
        if target.op == "get_attr":
            problem = "which the network keeps for the next call"
        elif reader is not None:
            problem = f"and {reader!r}, which is read later, shares its memory"
        else:
            problem = None if value is self.env[target] else "into a part of it"
        if problem is not None:
            raise PlanError(
                f"plan: {node.name!r} writes in place into {target.name!r}, {problem}; no plan can follow that. "
                "Write a new tensor instead (torch.where, torch.cat, x.clone())"
            )
        node.meta["writes"] = target
        for user in [user for user in target.users if user > node]:
            user.replace_input_with(target, node)

    def _memory(self, node: fx.Node) -> int | None:
        value = self.env[node]
        return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else None


class _Attention(nn.Module):
    """What nn.MultiheadAttention computes, out of linear layers, which have an integer form."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        width, self.heads = attention.embed_dim, attention.num_heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        weights = [*attention.in_proj_weight.chunk(3), attention.out_proj.weight]
        biases = [None] * 4
        if attention.in_proj_bias is not None:
            biases = [*attention.in_proj_bias.chunk(3), attention.out_proj.bias]
        for layer, weight, bias in zip((self.query, self.key, self.value, self.out), weights, biases, strict=True):
            layer.weight = nn.Parameter(weight.detach().clone())
            layer.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        by_layer = ((self.query, query), (self.key, key), (self.value, value))
        parts = (layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer, x in by_layer)
        return self.out(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


def _write_out_attention(graph_module: fx.GraphModule) -> None:
    """Replace each call of nn.MultiheadAttention that has no mask, and whose weights nobody reads, by what it does."""
    graph, modules = graph_module.graph, dict(graph_module.named_modules())
    for call in graph.find_nodes(op="call_module"):
        if type(modules[call.target]) is not nn.MultiheadAttention or not _is_plain(modules[call.target], call):
            continue
        inner = fx.symbolic_trace(_Attention(modules[call.target]))
        graph_module.set_submodule(call.target, inner)
        made = dict(zip(inner.graph.find_nodes(op="placeholder"), call.args, strict=True))
        with graph.inserting_before(call):
            for node in inner.graph.nodes:
                if node.op not in ("placeholder", "output"):
                    made[node] = graph.node_copy(node, made.__getitem__)
                if node.op == "call_module":
                    made[node].target = f"{call.target}.{node.target}"
        for result in list(call.users):
            result.replace_all_uses_with(made[inner.graph.output_node().args[0]])
            graph.erase_node(result)
        graph.erase_node(call)


def _is_plain(attention: nn.MultiheadAttention, node: fx.Node) -> bool:
    usual = attention.batch_first and attention._qkv_same_embed_dim
    usual = usual and attention.bias_k is None and not attention.add_zero_attn
    reads = all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)
    return usual and reads and len(node.args) == 3 and node.kwargs.keys() <= {"need_weights"}


def _edges(graph_module: fx.GraphModule) -> dict[fx.Node, str]:
    """The nodes whose value is a tensor, with the names of their edges: a layer's name where there is one."""
    edges: dict[fx.Node, str] = {}
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            edges[node] = INPUT
        elif node.op.startswith("call") and isinstance(node.meta.get("val"), torch.Tensor):
            name = str(node.target) if node.op == "call_module" else node.name
            edges[node] = f"{name}.{node.name}" if name in edges.values() else name
    return edges


def _needed(output: fx.Node) -> set[fx.Node]:
    """The output and everything that it follows from."""
    found, waiting = set(), [output]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return found


def _read_node(node: fx.Node, edges: dict[fx.Node, str], graph_module: fx.GraphModule) -> Op:
    op = _integer_form(node, graph_module)
    if op is None:
        inside = _up_to_edges(node, edges)
        sources = [source for source in edges if any(source in part.all_input_nodes for part in inside)]
        if not sources:
            raise PlanError(f"plan: {node.name!r} depends on constants alone; fold them first (passes.optimize)")
        op = Op("", "float", (), module=_alone(inside, sources, graph_module))
    else:
        sources = node.args if op.kind == "add" else node.args[:1]
    op.name, op.inputs, op.node = edges[node], tuple(edges[source] for source in sources), node.name
    op.shape = tuple(node.meta["val"].shape[1:])
    return op


def _up_to_edges(node: fx.Node, edges: dict[fx.Node, str]) -> list[fx.Node]:
    """A node, and before it what it needs that is no edge: constants, sizes, the parts of a tuple."""
    found, waiting = {node}, [node]
    while waiting:
        inner = [source for source in waiting.pop().all_input_nodes if source not in edges and source not in found]
        found.update(inner)
        waiting += inner
    return sorted(found)


def _alone(inside: list[fx.Node], sources: list[fx.Node], graph_module: fx.GraphModule) -> fx.GraphModule:
    """A few nodes as a module of their own, which returns the value of the last and leaves its inputs alone."""
    graph = fx.Graph()
    stands_for = {source: graph.placeholder(source.name) for source in sources}
    written = {node.meta["writes"] for node in inside if "writes" in node.meta}
    for source in written.intersection(sources):
        stands_for[source] = graph.call_method("clone", (stands_for[source],))
    for node in inside:
        stands_for[node] = graph.node_copy(node, stands_for.__getitem__)
    graph.output(stands_for[inside[-1]])
    return fx.GraphModule(graph_module, graph)


# --- Which nodes have an integer form ---------------------------------------------------------------------------------


def _integer_form(node: fx.Node, graph_module: fx.GraphModule) -> Op | None:
    """The operation that a node is, without names; None when it has no integer form."""
    if node.op == "call_module":
        module = graph_module.get_submodule(node.target)
        if type(module) is nn.Conv2d and node.meta["val"].ndim == 4:
            return _conv(module)
        return _weighted("linear", module, {}) if type(module) is nn.Linear and node.meta["val"].ndim > 1 else None
    entry = _FORMS.get(op_name(node)) if is_torch(node) else None
    if entry is None or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    form, *names = entry
    arguments = dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
    if any(isinstance(value, fx.Node) for value in arguments.values()) and form is not _add:
        return None  # an argument is computed by the network itself
    return form(node, arguments)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def _weighted(kind: str, layer: nn.Module, attributes: dict[str, Any]) -> Op:
    weight = layer.weight.detach().clone()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().clone()
    return Op("", kind, (), weight, bias, attributes=attributes)


def _conv(layer: nn.Conv2d) -> Op | None:
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        return None
    geometry = {name: _pair(getattr(layer, name)) for name in ("stride", "padding", "dilation")}
    return _weighted("conv", layer, {**geometry, "groups": layer.groups})


def _clamp(low: Any, high: Any) -> Callable[[fx.Node, dict[str, Any]], Op | None]:
    """A clamp whose bounds are numbers, or the names of the arguments that hold them with their defaults."""

    def form(node: fx.Node, arguments: dict[str, Any]) -> Op | None:
        bounds = [arguments.get(*bound) if isinstance(bound, tuple) else bound for bound in (low, high)]
        if None not in bounds and bounds[0] > bounds[1]:
            return None
        return Op("", "clamp", (), clamp=tuple(None if bound is None else float(bound) for bound in bounds))

    return form


def _add(node: fx.Node, arguments: dict[str, Any]) -> Op | None:
    sources = [value for value in node.args if isinstance(value, fx.Node) and value.op != "get_attr"]
    plain = len(sources) == 2 and not node.kwargs
    alike = plain and sources[0].meta["val"].shape == sources[1].meta["val"].shape
    return Op("", "add", ()) if alike else None


def _average_pool(node: fx.Node, a: dict[str, Any]) -> Op | None:
    kernel = _pair(a["kernel_size"])
    stride = kernel if a.get("stride") is None else _pair(a["stride"])
    plain = _pair(a.get("padding", 0)) == (0, 0) and not a.get("ceil_mode") and a.get("divisor_override") is None
    return Op("", "average_pool", (), attributes={"kernel": kernel, "stride": stride}) if plain else None


def _adaptive_pool(node: fx.Node, a: dict[str, Any]) -> Op | None:
    (*_, height, width), (*_, rows, columns) = _shapes(node)
    if height % rows or width % columns:
        return None
    kernel = (height // rows, width // columns)
    return Op("", "average_pool", (), attributes={"kernel": kernel, "stride": kernel})


def _mean(node: fx.Node, a: dict[str, Any]) -> Op | None:
    (before, _), dims = _shapes(node), a.get("dim")
    if len(before) != 4 or isinstance(dims, int) or dims is None or {d % 4 for d in dims} != {2, 3} or a.get("dtype"):
        return None
    return Op("", "average_pool", (), attributes={"kernel": tuple(before[2:]), "stride": tuple(before[2:])})


def _max_pool(node: fx.Node, a: dict[str, Any]) -> Op | None:
    kernel = _pair(a["kernel_size"])
    if a.get("ceil_mode") or a.get("return_indices"):
        return None
    stride = kernel if a.get("stride") is None else _pair(a["stride"])
    rest = {"padding": _pair(a.get("padding", 0)), "dilation": _pair(a.get("dilation", 1))}
    return Op("", "max_pool", (), attributes={"kernel": kernel, "stride": stride, **rest})


def _reshape(node: fx.Node, a: dict[str, Any]) -> Op | None:
    before, after = _shapes(node)
    return Op("", "reshape", ()) if before[0] == after[0] else None


def _shapes(node: fx.Node) -> tuple[torch.Size, torch.Size]:
    """Shapes of the node's input and of its output, batch included."""
    return node.args[0].meta["val"].shape, node.meta["val"].shape


# By the bare name after canonicalisation: the form, and the names of the arguments after the input.
_FORMS: dict[str, tuple[Any, ...]] = {
    "relu": (_clamp(0.0, None),),
    "relu6": (_clamp(0.0, 6.0),),
    "hardtanh": (_clamp(("min_val", -1.0), ("max_val", 1.0)), "min_val", "max_val"),
    **dict.fromkeys(("clamp", "clamp_", "clip", "clip_"), (_clamp(("min",), ("max",)), "min", "max")),
    **dict.fromkeys(("add", "add_", "iadd"), (_add,)),
    "avg_pool2d": (_average_pool, "kernel_size", "stride", "padding"),
    "adaptive_avg_pool2d": (_adaptive_pool,),
    "mean": (_mean, "dim", "keepdim"),
    "max_pool2d": (_max_pool, "kernel_size", "stride", "padding", "dilation"),
    **dict.fromkeys(("flatten", "reshape", "view", "squeeze"), (_reshape,)),
}


# --- What one step of an integer engine does at once ------------------------------------------------------------------


def _join_clamps(plan: Plan) -> None:
    """conv -> clamp becomes a conv that clamps, when nobody else reads the conv."""
    for op in [op for op in plan.ops if op.kind == "clamp"]:
        producer = next((p for p in plan.ops if p.name == op.inputs[0]), None)
        alone = producer is not None and plan.users(producer.name) == [op]
        if alone and producer.kind in ("conv", "linear", "add") and producer.clamp is None:
            producer.clamp = op.clamp
            _replace(plan, op, producer)


def _join_residuals(plan: Plan) -> None:
    """conv -> add becomes a conv with a residual: of two candidates the one that runs later."""
    for add in [op for op in plan.ops if op.kind == "add"]:
        candidates = [op for op in plan.ops if op.name in add.inputs and _may_take_residual(op, plan)]
        if not candidates or add.inputs[0] == add.inputs[1]:
            continue
        conv = candidates[-1]
        other = next(name for name in add.inputs if name != conv.name)
        conv.inputs, conv.clamp = (conv.inputs[0], other), add.clamp
        plan.ops.remove(conv)  # it has to wait for the other edge
        plan.ops.insert(plan.ops.index(add), conv)
        _replace(plan, add, conv)


def _may_take_residual(op: Op, plan: Plan) -> bool:
    return op.kind == "conv" and op.clamp is None and op.residual is None and len(plan.users(op.name)) == 1


def _replace(plan: Plan, op: Op, by: Op) -> None:
    """Take an operation out; whoever read it reads the edge of another, which carries its value from now on."""
    plan.ops.remove(op)
    by.node = op.node
    for user in plan.ops:
        user.inputs = tuple(by.name if edge == op.name else edge for edge in user.inputs)
