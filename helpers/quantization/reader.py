"""From a folded graph to a plan: each node becomes one operation, then activations and additions
join their producers.

A table (`_FORMS`) proposes an integer operation for a node; it is taken if it gives the same
numbers for random inputs. Any other node stays in float, as a small graph of its own. At last the
plan is compared with the network (`verify.py`).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from helpers import passes
from helpers.dataset import normalization_of
from helpers.graphs.effects import is_torch, nodes_in, op_name
from helpers.graphs.errors import UnsupportedCase
from helpers.quantization.affine import QuantizationError
from helpers.quantization.channels import equalize
from helpers.quantization.plan import INPUT, WINDOW, Op, Plan, Recipe
from helpers.quantization.verify import agree, verify_plan

# in the example: few networks have a dimension of this size, which could be taken for the images
IMAGES = 5


def make_plan(
    model: nn.Module, input_shape: Sequence[int], recipe: Recipe, images: torch.Tensor | None = None
) -> Plan:
    """Fold a float network in eval mode and read it as a plan; `residual` and `equalize` of the
    recipe matter.

    With normalised images, the plan is compared with the network on them.
    """
    example = torch.zeros(IMAGES, *input_shape)
    folded = _folded(model, example)
    run = _Run(folded, garbage_collect_values=False)
    run.run(example.clone())
    edges, output = _edges(folded), folded.graph.output_node().args[0]
    if not isinstance(output, fx.Node) or edges.get(output, INPUT) == INPUT:
        raise QuantizationError(
            "plan: a network must compute and return exactly one float32 tensor; wrap it for that"
        )
    plan, needed = Plan([], tuple(input_shape)), {edges[output]}
    plan.input_normalization = normalization_of(model)
    for node in reversed(edges):
        if edges[node] in needed - {INPUT}:
            plan.ops.insert(0, _read_node(node, edges, run))
            needed.update(plan.ops[0].inputs)
    _join(plan, "clamp", ("conv", "linear", "add"))
    _join(plan, "add", ("conv",) if recipe.residual == "fused" else ())
    if images is not None:
        verify_plan(plan, model, run, images)
    if recipe.equalize:
        equalize(plan)
    return plan


def _folded(model: nn.Module, example: torch.Tensor) -> fx.GraphModule:
    """The folded graph by torch.fx, or where that cannot follow (loops over parts, decisions by a
    size) by export.
    """
    reasons = []
    for route in ("fx", "export"):
        try:
            return passes.optimize(model, (example,), route=route, verify=False)[
                0
            ]  # the plan is compared instead
        except UnsupportedCase as error:
            reasons.append(error.reason.partition(" (mark")[0])
    reason = "; nor on the other route: ".join(dict.fromkeys(reasons))
    raise QuantizationError(f"plan: {reason}. Rewrite what is named here")


class _Run(fx.Interpreter):
    """Runs a graph, notes a copy of each value, and sees what operates in place: it hands its own
    input on.

    Whoever reads that input later reads the result in its stead.
    """

    @torch.no_grad()
    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        node.meta["val"] = value.clone() if isinstance(value, torch.Tensor) else value
        for source in node.all_input_nodes:
            if isinstance(value, torch.Tensor) and self.env[source] is value:
                for user in [user for user in source.users if user > node]:
                    user.replace_input_with(source, node)
        return value


def _edges(graph_module: fx.GraphModule) -> dict[fx.Node, str]:
    """The nodes whose value is made of the input, in float and for each image, with the names of
    their edges.

    What else is computed of the input (masks, indices, sizes, a mean over all images) belongs to
    its readers.
    """
    edges: dict[fx.Node, str] = {}
    depends: set[fx.Node] = set()
    *nodes, output = graph_module.graph.nodes
    for node in nodes:
        value = node.meta["val"]
        if node.op == "placeholder":
            edges[node] = INPUT
        elif depends.isdisjoint(node.all_input_nodes):
            continue
        elif getattr(value, "dtype", None) == torch.float32 and (
            output in node.users or value.shape[:1] == (IMAGES,)
        ):
            name = str(node.target) if node.op == "call_module" else node.name
            edges[node] = f"{name}.{node.name}" if name in edges.values() else name
        depends.add(node)
    return edges


def _read_node(node: fx.Node, edges: dict[fx.Node, str], run: _Run) -> Op:
    sources = [arg for arg in nodes_in((node.args, node.kwargs)) if arg in edges]
    op = _integer_form(node, sources, run)
    if op is None:
        graph, made = (
            fx.Graph(),
            {},
        )  # the node with what else it needs: constants, sizes, parts of a tuple

        def take(needed: fx.Node) -> fx.Node:
            if needed not in made:
                given = needed is not node and needed in edges
                made[needed] = (
                    graph.placeholder(needed.name) if given else graph.node_copy(needed, take)
                )
            return made[needed]

        graph.output(take(node))
        sources = [one for one in made if one is not node and one in edges]
        op = Op("", "float", (), module=fx.GraphModule(run.module, graph))
    op.name, op.inputs, op.node = edges[node], tuple(edges[source] for source in sources), node.name
    op.shape = tuple(node.meta["val"].shape[1:])
    return op


@torch.no_grad()
def _integer_form(node: fx.Node, sources: list[fx.Node], run: _Run) -> Op | None:
    """The operation that a node is, without names; None when none in the table computes the same."""
    layer = run.module.get_submodule(node.target) if node.op == "call_module" else None
    form = _FORMS.get(type(layer) if layer is not None else is_torch(node) and op_name(node))
    if form is None or not sources or min(source.meta["val"].ndim for source in sources) < 2:
        return None
    random = torch.Generator().manual_seed(0)
    inputs = {
        source: 9 * torch.randn(source.meta["val"].shape, generator=random) for source in sources
    }
    known = {arg: arg.meta["val"] for arg in node.all_input_nodes} | {
        arg: x.clone() for arg, x in inputs.items()
    }
    args, kwargs = fx.map_arg((node.args, node.kwargs), known.get)
    try:
        expected = getattr(run, node.op)(node.target, args, kwargs)
        op = form(expected, *args, **kwargs) if layer is None else form(layer)
        op.shape = tuple(expected.shape[1:])
        found = op.run(*(inputs[source] for source in sources))
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
        return None  # settings that the form, or the operation, does not have
    shapes = [x.shape for x in inputs.values()]
    fits = expected.shape[0] == shapes[0][0] and (op.kind not in _ON_MAPS or len(shapes[0]) == 4)
    fits = fits and (
        op.kind != "clamp" or len(node.all_input_nodes) == 1
    )  # a bound that is computed is no constant
    return (
        op
        if fits and (op.kind != "add" or {*shapes} == {expected.shape}) and agree(found, expected)
        else None
    )


def _op(
    kind: str,
    *parameters: torch.Tensor,
    clamp: tuple[float, float] | None = None,
    **attributes: Any,
) -> Op:
    """An operation without names; what windows are described by is a pair."""
    for name in attributes.keys() & {*WINDOW[:4]}:
        size = attributes[name]
        attributes[name] = (size, size) if isinstance(size, int) else (size[0], size[-1])
    return Op("", kind, (), *parameters, clamp=clamp, attributes=attributes)


def _layer(layer: nn.Linear | nn.Conv2d) -> Op:
    weight = layer.weight.detach().clone()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().clone()
    if isinstance(layer, nn.Linear):
        return _op("linear", weight, bias)
    both = layer._reversed_padding_repeated_twice  # in numbers, where it is "same" or "valid", too
    if (padding := both[::-2]) != both[-2::-2] or (any(padding) and layer.padding_mode != "zeros"):
        raise ValueError(
            "no integer form, whatever the weights are: those of a fresh network may all be 0"
        )
    geometry = {
        "stride": layer.stride,
        "padding": padding,
        "dilation": layer.dilation,
        "groups": layer.groups,
    }
    return _op("conv", weight, bias, **geometry)


def _clamp(low: float | None = None, high: float | None = None) -> Op:
    return _op(
        "clamp",
        clamp=(-math.inf if low is None else float(low), math.inf if high is None else float(high)),
    )


def _average(y: torch.Tensor, x: torch.Tensor, *_: Any, **__: Any) -> Op:
    kernel = [a // b for a, b in zip(x.shape[2:], y.shape[2:] or (1, 1), strict=True)]
    return _op("average_pool", kernel=kernel, stride=kernel)


def _maximum(
    y: Any,
    x: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    **rest: Any,
) -> Op:
    window = {
        "kernel": kernel,
        "stride": stride or kernel,
        "padding": padding,
        "dilation": dilation,
    }
    return _op("max_pool", **window, ceil_mode=rest.get("ceil_mode", False))


# By class or bare name. A function's form gets what it returned and its arguments; what is not
# taken is not looked at.
_FORMS = {
    nn.Linear: _layer,
    nn.Conv2d: _layer,
    "relu": lambda y, x, **_: _clamp(0),
    "relu6": lambda y, x, **_: _clamp(0, 6),
    "hardtanh": lambda y, x, min_val=-1, max_val=1, **_: _clamp(min_val, max_val),
    **dict.fromkeys(
        ("clamp", "clamp_", "clip", "clip_"), lambda y, x, min=None, max=None: _clamp(min, max)
    ),
    **dict.fromkeys(("add", "add_", "iadd"), lambda y, *_, **__: _op("add")),
    "avg_pool2d": lambda y, x, kernel, stride=None, **_: _op(
        "average_pool", kernel=kernel, stride=stride or kernel
    ),
    **dict.fromkeys(("adaptive_avg_pool2d", "mean"), _average),
    "max_pool2d": _maximum,
    **dict.fromkeys(("cat", "concat", "concatenate"), lambda y, _, dim=0: _op("concat", dim=dim)),
    **dict.fromkeys(("flatten", "reshape", "view", "squeeze"), lambda y, *_, **__: _op("reshape")),
}
_ON_MAPS = ("conv", "average_pool", "max_pool")  # of four dimensions, batch included


def _join(plan: Plan, kind: str, takers: tuple[str, ...]) -> None:
    """Let operations of a kind join one before them that nobody else reads: a clamp, or the
    addition of a residual.
    """
    for op in [op for op in plan.ops if op.kind == kind]:
        ready = [
            one
            for one in plan.ops
            if one.kind in takers and one.clamp is None and plan.readers(one.name) == [op]
        ]
        ready = [
            one for one in ready if one.residual is None and len({*op.inputs}) == len(op.inputs)
        ]
        if not ready:
            continue
        taker = ready[-1]  # of two the one that runs later
        taker.inputs += tuple(name for name in op.inputs if name != taker.name)
        taker.clamp, taker.node = op.clamp, op.node
        plan.ops.remove(taker)  # it has to wait for the other edge
        plan.ops[plan.ops.index(op)] = taker
        for user in plan.ops:
            user.inputs = tuple(taker.name if edge == op.name else edge for edge in user.inputs)
