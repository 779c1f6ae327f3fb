"""From a folded graph to a plan: each node becomes one operation, then activations and additions join their producers.

`passes.optimize` has brought the graph into canonical form, so a small table (`_FORMS`) says which operations have an
integer form. A node that has none stays in float, as a small graph of its own. At last `verify` compares the plan with
the network: whatever a plan cannot say is found there.
"""

import inspect
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers import passes
from helpers.graphs.effects import is_torch, op_name
from helpers.quantization.equalization import equalize
from helpers.quantization.plan import INPUT, Op, Plan, PlanError, Recipe

__all__ = ["make_plan", "read", "verify"]

TOLERANCE = 1e-3  # of the largest value: float32 sums in another order stay far below


def make_plan(model: nn.Module, input_shape: Sequence[int], recipe: Recipe, images: torch.Tensor | None = None) -> Plan:
    """Fold a float network and read it as a plan, with its ranges equalized if the recipe asks for that.

    Args:
        model: the float network, in eval mode; it is not changed.
        input_shape: of one image.
        recipe: `residual` and `equalize` matter here.
        images: normalised images on which the plan is compared with the network; None leaves that out.
    """
    example = torch.zeros(2, *input_shape)
    folded, _ = passes.optimize(model, (example,), level="fold", verify=False)  # the plan is compared instead
    plan = read(folded, example, recipe)
    if images is not None:
        verify(plan, model, folded, images)
    if recipe.equalize:
        equalize(plan)
    return plan


def read(graph_module: fx.GraphModule, example: torch.Tensor, recipe: Recipe) -> Plan:
    """Write a folded graph, which may be changed, as a plan; `recipe.residual` matters.

    Raises:
        PlanError: more than one input or output.
    """
    inputs = [node.name for node in graph_module.graph.find_nodes(op="placeholder")]
    if len(inputs) != 1:
        raise PlanError(f"plan: the network has the inputs {inputs}; quantize can feed exactly one")
    _write_out_attention(graph_module)
    _Run(graph_module).run(example.clone())
    edges = _edges(graph_module)
    output = graph_module.graph.output_node().args[0]
    if not isinstance(output, fx.Node) or edges.get(output, INPUT) == INPUT:
        raise PlanError("plan: the network must compute and return exactly one tensor; wrap it so that it does")
    ops = [_read_node(node, edges, graph_module) for node in edges if edges[node] != INPUT]
    needed = {edges[output]}
    for op in reversed(ops):
        needed.update(op.inputs if op.name in needed else ())
    plan = Plan([op for op in ops if op.name in needed], tuple(example.shape[1:]))
    _join_clamps(plan)
    if recipe.residual == "fused":
        _join_residuals(plan)
    return plan


@torch.no_grad()
def verify(plan: Plan, model: nn.Module, graph_module: fx.GraphModule, images: torch.Tensor) -> None:
    """Compare a plan, in float and without rounding, with the network that it was read from, on normalised images.

    Raises:
        PlanError: the answers differ by more than 1/1000 of the largest one; names the first operation that differs.
    """
    if _agree(plan.run(images), model(images.clone())):
        return
    found, run = {}, _Run(graph_module)
    plan.run(images, found.__setitem__)
    run.run(images.clone())
    different = [op.name for op in plan.ops if not _agree(found[op.name], run.values[op.node])]
    place = f"they differ from {different[0]!r} on" if different else "folding BatchNorm changed them already"
    raise PlanError(
        f"plan: on the calibration images its answers are not those of the network: {place}. Is it random, does it "
        "keep state, write into a part of a tensor, or depend on the number of images? verify=False leaves this check "
        "out"
    )


def _agree(found: torch.Tensor, expected: torch.Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    return bool((found - expected).abs().max() <= TOLERANCE * expected.abs().max())


class _Run(fx.Interpreter):
    """Runs a graph, keeps a copy of each value, and sees who hands its own input on.

    That is what an operation in place does. Whoever reads that input later reads the result in its stead.
    """

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    @torch.no_grad()
    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        self.values[node.name] = node.meta["val"] = value.clone() if isinstance(value, torch.Tensor) else value
        for source in node.all_input_nodes:
            if isinstance(value, torch.Tensor) and self.env[source] is value:
                for user in [user for user in source.users if user > node]:
                    user.replace_input_with(source, node)
        return value


class _Attention(nn.Module):
    """What nn.MultiheadAttention computes, out of linear layers, which have an integer form."""

    def __init__(self, whole: nn.MultiheadAttention) -> None:
        super().__init__()
        self.heads = whole.num_heads
        weights, biases = [*whole.in_proj_weight.chunk(3), whole.out_proj.weight], [None] * 4
        if whole.in_proj_bias is not None:
            biases = [*whole.in_proj_bias.chunk(3), whole.out_proj.bias]
        for name, weight, bias in zip(("query", "key", "value", "out"), weights, biases, strict=True):
            layer = nn.Linear(*weight.shape, bias=bias is not None)
            layer.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
            self.add_module(name, layer)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        by_layer = ((self.query, query), (self.key, key), (self.value, value))
        parts = (layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer, x in by_layer)
        return self.out(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


def _write_out_attention(graph_module: fx.GraphModule) -> None:
    """Replace each call of nn.MultiheadAttention that has no mask, and whose weights nobody reads, by what it does."""
    graph = graph_module.graph
    for call in graph.find_nodes(op="call_module"):
        module = graph_module.get_submodule(call.target)
        if type(module) is not nn.MultiheadAttention or not _is_plain(module, call):
            continue
        inner = fx.symbolic_trace(_Attention(module))
        graph_module.set_submodule(call.target, inner)
        for node in inner.graph.find_nodes(op="call_module"):
            node.target = f"{call.target}.{node.target}"
        with graph.inserting_before(call):
            inputs = inner.graph.find_nodes(op="placeholder")
            result = graph.graph_copy(inner.graph, dict(zip(inputs, call.args, strict=True)))
        for first in list(call.users):
            first.replace_all_uses_with(result)
            graph.erase_node(first)
        graph.erase_node(call)


def _is_plain(attention: nn.MultiheadAttention, call: fx.Node) -> bool:
    usual = attention.batch_first and attention._qkv_same_embed_dim
    usual = usual and attention.bias_k is None and not attention.add_zero_attn
    reads = all(user.target is operator.getitem and user.args[1] == 0 for user in call.users)
    return usual and reads and len(call.args) == 3 and call.kwargs.keys() <= {"need_weights"}


def _edges(graph_module: fx.GraphModule) -> dict[fx.Node, str]:
    """The nodes whose value is a tensor that depends on the input, with the names of their edges."""
    edges: dict[fx.Node, str] = {}
    depends: set[fx.Node] = set()
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            edges[node] = INPUT
        elif depends.isdisjoint(node.all_input_nodes):
            continue
        elif node.op != "output" and isinstance(node.meta["val"], torch.Tensor):
            name = str(node.target) if node.op == "call_module" else node.name
            edges[node] = f"{name}.{node.name}" if name in edges.values() else name
        depends.add(node)
    return edges


def _read_node(node: fx.Node, edges: dict[fx.Node, str], graph_module: fx.GraphModule) -> Op:
    op = _integer_form(node, graph_module)
    sources = [arg for arg in node.args if isinstance(arg, fx.Node) and arg in edges]
    if op is None or len(sources) != (2 if op.kind == "add" else 1):
        sources, module = _alone(node, edges, graph_module)
        op = Op("", "float", (), module=module)
    op.name, op.inputs, op.node = edges[node], tuple(edges[source] for source in sources), node.name
    op.shape = tuple(node.meta["val"].shape[1:])
    return op


def _alone(
    node: fx.Node, edges: dict[fx.Node, str], graph_module: fx.GraphModule
) -> tuple[list[fx.Node], fx.GraphModule]:
    """A node as a module of its own, with what it needs that is no edge (constants, sizes, the parts of a tuple).

    Returns:
        The nodes whose edges it reads, and the module.
    """
    graph, made = fx.Graph(), {}

    def take(needed: fx.Node) -> fx.Node:
        if needed not in made:
            given = needed is not node and needed in edges
            made[needed] = graph.placeholder(needed.name) if given else graph.node_copy(needed, take)
        return made[needed]

    graph.output(take(node))
    return [one for one in made if one is not node and one in edges], fx.GraphModule(graph_module, graph)


# --- Which nodes have an integer form ---------------------------------------------------------------------------------


def _integer_form(node: fx.Node, graph_module: fx.GraphModule) -> Op | None:
    """The operation that a node is, without names; None when it has no integer form."""
    if node.op == "call_module":
        module, dimensions = graph_module.get_submodule(node.target), node.meta["val"].ndim
        if type(module) is nn.Linear and dimensions > 1:
            return _weighted("linear", module)
        if type(module) is nn.Conv2d and dimensions == 4 and module.padding_mode == "zeros":
            geometry = {name: getattr(module, name) for name in ("stride", "padding", "dilation", "groups")}
            return None if isinstance(module.padding, str) else _weighted("conv", module, **geometry)
        return None
    form = _FORMS.get(op_name(node)) if is_torch(node) else None
    if form is None or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    computed = any(isinstance(value, fx.Node) for value in (*node.args[1:], *node.kwargs.values()))
    if computed and form not in (_add, _reshape):
        return None
    try:
        arguments = inspect.signature(form).bind(node, *node.args[1:], **node.kwargs)
    except TypeError:
        return None  # an argument that the form does not know
    return form(*arguments.args, **arguments.kwargs)


def _weighted(kind: str, layer: nn.Module, **attributes: Any) -> Op:
    weight = layer.weight.detach().clone()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().clone()
    return Op("", kind, (), weight, bias, attributes=attributes)


def _shapes(node: fx.Node) -> tuple[torch.Size, torch.Size]:
    """Shapes of the node's input and of its output, batch included."""
    return node.args[0].meta["val"].shape, node.meta["val"].shape


def _clamp(node: fx.Node, min: float | None = None, max: float | None = None) -> Op | None:
    bounds = tuple(None if bound is None else float(bound) for bound in (min, max))
    return None if None not in bounds and bounds[0] > bounds[1] else Op("", "clamp", (), clamp=bounds)


def _add(node: fx.Node, other: Any) -> Op | None:
    alike = isinstance(other, fx.Node) and _shapes(node)[0] == other.meta["val"].shape
    return Op("", "add", ()) if alike else None


def _pool(node: fx.Node, kind: str, **attributes: Any) -> Op | None:
    pairs = {name: (v, v) if isinstance(v, int) else (v[0], v[-1]) for name, v in attributes.items()}
    return Op("", kind, (), attributes=pairs) if len(_shapes(node)[0]) == 4 else None


def _average_pool(node: fx.Node, kernel: Any, stride: Any = None, padding: Any = 0, **others: Any) -> Op | None:
    plain = padding in (0, (0, 0), [0, 0]) and others.keys() <= {"count_include_pad"}
    return _pool(node, "average_pool", kernel=kernel, stride=stride or kernel) if plain else None


def _adaptive_pool(node: fx.Node, output_size: Any) -> Op | None:
    sizes = list(zip(*(shape[-2:] for shape in _shapes(node)), strict=True))
    exact = all(before % after == 0 for before, after in sizes)
    return _average_pool(node, [before // after for before, after in sizes]) if exact else None


def _mean(node: fx.Node, dim: Any = None, keepdim: bool = False) -> Op | None:
    over = isinstance(dim, Sequence) and {d % 4 for d in dim}
    return _average_pool(node, _shapes(node)[0][2:]) if over == {2, 3} else None


def _max_pool(
    node: fx.Node, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Op | None:
    op = _pool(node, "max_pool", kernel=kernel, stride=stride or kernel, padding=padding, dilation=dilation)
    if op is not None:
        op.attributes["ceil_mode"] = ceil_mode
    return op


def _reshape(node: fx.Node, *sizes: Any, **others: Any) -> Op | None:
    before, after = _shapes(node)
    return Op("", "reshape", ()) if before[0] == after[0] else None


# By the bare name; each takes the arguments in their canonical form: what is not the default, by name.
_FORMS = {
    "relu": lambda node, inplace=False: _clamp(node, 0.0),
    "relu6": lambda node, inplace=False: _clamp(node, 0.0, 6.0),
    "hardtanh": lambda node, min_val=-1.0, max_val=1.0, inplace=False: _clamp(node, min_val, max_val),
    **dict.fromkeys(("clamp", "clamp_", "clip", "clip_"), _clamp),
    **dict.fromkeys(("add", "add_", "iadd"), _add),
    "avg_pool2d": _average_pool,
    "adaptive_avg_pool2d": _adaptive_pool,
    "mean": _mean,
    "max_pool2d": _max_pool,
    **dict.fromkeys(("flatten", "reshape", "view", "squeeze"), _reshape),
}


# --- What one step of an integer engine does at once ------------------------------------------------------------------


def _join_clamps(plan: Plan) -> None:
    """conv -> clamp becomes a conv that clamps, when nobody else reads the conv."""
    for op in [op for op in plan.ops if op.kind == "clamp" and op.inputs != (INPUT,)]:
        producer = plan[op.inputs[0]]
        joins = producer.kind in ("conv", "linear", "add") and producer.clamp is None
        if joins and plan.users(producer.name) == [op]:
            producer.clamp = op.clamp
            _replace(plan, op, producer)


def _join_residuals(plan: Plan) -> None:
    """conv -> add becomes a conv with a residual: of two candidates the one that runs later."""
    for add in [op for op in plan.ops if op.kind == "add" and len(set(op.inputs)) == 2]:
        bare = [op for op in plan.ops if op.kind == "conv" and op.clamp is None and op.residual is None]
        candidates = [op for op in bare if op.name in add.inputs and plan.users(op.name) == [add]]
        if not candidates:
            continue
        conv = candidates[-1]
        other = next(name for name in add.inputs if name != conv.name)
        conv.inputs, conv.clamp = (conv.inputs[0], other), add.clamp
        plan.ops.remove(conv)  # it has to wait for the other edge
        plan.ops.insert(plan.ops.index(add), conv)
        _replace(plan, add, conv)


def _replace(plan: Plan, op: Op, by: Op) -> None:
    """Take an operation out; whoever read it reads the edge of another, which carries its value from now on."""
    plan.ops.remove(op)
    by.node = op.node
    for user in plan.ops:
        user.inputs = tuple(by.name if edge == op.name else edge for edge in user.inputs)
