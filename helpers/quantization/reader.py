"""From a folded graph to a plan: each node becomes one operation, then activations and additions join their producers.

A node that has no integer form stays in float, as a small graph of its own.
"""

import torch
import torch.nn.functional as F
from torch import fx

from helpers.graphs.tracing import annotate
from helpers.quantization.operations import operation
from helpers.quantization.plan import INPUT, Op, Plan, PlanError
from helpers.quantization.recipe import Recipe

__all__ = ["read"]


def read(graph_module: fx.GraphModule, example: torch.Tensor, recipe: Recipe) -> Plan:
    """Write a folded graph as a plan.

    Args:
        graph_module: one input, one output, in eval mode; it is not changed.
        example: an input, batch first.
        recipe: `residual` and `unsupported` matter here.

    Raises:
        PlanError: more than one input or output, or an unsupported layer with unsupported="refuse".
    """
    inputs = [node.name for node in graph_module.graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise PlanError(f"plan: the network has the inputs {inputs}; quantize can feed exactly one")
    annotate(graph_module, (example,))
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


def _edges(graph_module: fx.GraphModule) -> dict[fx.Node, str]:
    """The nodes whose value is a tensor, with the names of their edges: a layer's name where there is one."""
    edges: dict[fx.Node, str] = {}
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            edges[node] = INPUT
        elif node.op.startswith("call") and isinstance(node.meta.get("val"), torch.Tensor):
            name = _layer_name(node)
            edges[node] = f"{name}.{node.name}" if name in edges.values() else name
    return edges


def _layer_name(node: fx.Node) -> str:
    """A module's path, or the path in front of ".weight" for a functional convolution or linear layer."""
    if node.op == "call_module":
        return str(node.target)
    if node.target in (F.conv2d, F.linear, torch.conv2d):
        weight = node.kwargs.get("weight", node.args[1] if len(node.args) > 1 else None)
        if isinstance(weight, fx.Node) and weight.op == "get_attr":
            return str(weight.target).removesuffix(".weight")
    return node.name


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
    op = operation(node, graph_module)
    sources = [source for source in node.all_input_nodes if source.op != "get_attr"]
    if op is None:
        inside = _up_to_edges(node, edges)
        sources = [source for source in edges if any(source in part.all_input_nodes for part in inside)]
        if not sources:
            raise PlanError(f"plan: {node.name!r} depends on constants alone; fold them first (passes.optimize)")
        op = Op("", "float", (), module=_alone(inside, sources, graph_module))
    elif op.kind == "add":
        sources = [*node.args, *node.kwargs.values()]  # x + x reads one edge twice
    else:
        sources = sources[:1]
    op.name, op.inputs = edges[node], tuple(edges[source] for source in sources)
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
    """A few nodes as a module of their own, which returns the value of the last."""
    graph = fx.Graph()
    stands_for = {source: graph.placeholder(source.name) for source in sources}
    for node in inside:
        stands_for[node] = graph.node_copy(node, stands_for.__getitem__)
    graph.output(stands_for[inside[-1]])
    return fx.GraphModule(graph_module, graph)


def _join_clamps(plan: Plan) -> None:
    """conv -> clamp becomes a conv that clamps, when nobody else reads the conv."""
    for op in [op for op in plan.ops if op.kind == "clamp"]:
        producer = next((p for p in plan.ops if p.name == op.inputs[0]), None)
        alone = producer is not None and plan.users(producer.name) == [op]
        if alone and producer.kind in ("conv", "linear", "add") and producer.clamp is None:
            producer.clamp = op.clamp
            _replace(plan, op, producer.name)


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
        _replace(plan, add, conv.name)


def _may_take_residual(op: Op, plan: Plan) -> bool:
    return op.kind == "conv" and op.clamp is None and op.residual is None and len(plan.users(op.name)) == 1


def _replace(plan: Plan, op: Op, name: str) -> None:
    """Take an operation out; whoever read it reads the edge `name`."""
    plan.ops.remove(op)
    for user in plan.ops:
        user.inputs = tuple(name if edge == op.name else edge for edge in user.inputs)
