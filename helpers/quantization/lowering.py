"""From a network to a plan: each node of the folded graph becomes one operation, then activations
and additions join their producers.

A table (`_FORMS`) proposes an integer operation for a node; it is taken if it gives the same
numbers for random inputs. Any other node stays in float, as a small graph. Then the plan is
compared with the network (`verify.py`), and equalized if the recipe asks for it.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from helpers import passes
from helpers.graphs.effects import nodes_in
from helpers.graphs.errors import UnsupportedCase
from helpers.graphs.layers import padding_of
from helpers.graphs.operations import bare_name, called_module, is_in_place, operation
from helpers.quantization.affine import QuantizationError
from helpers.quantization.equalization import equalize
from helpers.quantization.plan import INPUT, WINDOW, Plan, PlanOp, Recipe
from helpers.quantization.verify import agree, verify_plan

aten = torch.ops.aten
# Images in the example: an unusual number, so that no other dimension is mistaken for theirs.
IMAGES = 5


def make_plan(
    model: nn.Module, input_shape: Sequence[int], recipe: Recipe, images: Tensor | None = None
) -> Plan:
    """Fold a float network in eval mode and read it as a plan.

    Args:
        recipe: `residual` and `equalize` matter here.
        images: normalised images on which the plan is compared with the network.
    """
    example = torch.zeros(IMAGES, *input_shape)
    folded = _folded(model, example)
    _replace_slice_writes(folded.graph)
    run = _Run(folded)
    run.run(example.clone())
    edges = _edges(run)
    output = folded.graph.output_node().args[0]
    if not isinstance(output, fx.Node) or edges.get(output, INPUT) == INPUT:
        raise QuantizationError(
            "plan: a network must compute and return exactly one float32 tensor: quantize a class"
            " whose forward calls the network and picks one, as in self.network(images)['out']"
        )
    plan = Plan([], tuple(input_shape))
    needed = {edges[output]}
    for node in reversed(edges):
        if edges[node] in needed - {INPUT}:
            op = _read_node(node, edges, run)
            needed.update(op.inputs)
            plan.ops.insert(0, op)
    _join(plan, "clamp", ("conv", "linear", "add"))
    if recipe.residual == "fused":
        _join(plan, "add", ("conv",))
    if images is not None:
        verify_plan(plan, model, run, images)
    if recipe.equalize:
        equalize(plan)
    return plan


def _folded(model, example):
    """The folded graph by torch.fx, or where that cannot follow (loops over parts, decisions by a
    size) by export.
    """
    reasons = []
    for route in ("fx", "export"):
        # Not both routes in one call: where batch norms stay, `optimize` would follow each to its
        # end, which takes long. The plan itself is verified.
        try:
            return passes.optimize(model, (example,), route=route, verify=False)[0]
        except UnsupportedCase as error:
            reasons.append(error.reason.partition(" (mark")[0])
    reason = "; nor on the other route: ".join(dict.fromkeys(reasons))
    raise QuantizationError(f"plan: {reason}. Rewrite what is named here")


def _replace_slice_writes(graph):
    """Writes into slices, as torch.export records them: each is replaced by a new tensor, which all
    later readers of the old one get.
    """
    for node in [*graph.nodes]:
        written = node.target if isinstance(node.target, torch._ops.OpOverload) else None
        if written is None or not is_in_place(written) or node.args[0].target != aten.slice.Tensor:
            continue
        part = node.args[0]
        makes_new = getattr(getattr(aten, bare_name(written)[:-1]), written._overloadname, None)
        if makes_new is None:  # normal_, for example, has none
            continue
        with graph.inserting_before(node):
            new = graph.call_function(makes_new, node.args)
            node.replace_all_uses_with(new)
            while part.target == aten.slice.Tensor:
                part, *where = part.args
                new = graph.call_function(aten.slice_scatter.default, (part, new, *where))
                part.replace_all_uses_with(new, node.__lt__)  # in later nodes only
        graph.erase_node(node)


class _Run(fx.Interpreter):
    """Runs a graph, keeps a copy of each value, and finds the nodes that write in place.

    Such a node returns its input; nodes that use this input later are made to use the node.
    """

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module, garbage_collect_values=False)
        self.values: dict[fx.Node, Any] = {}

    @torch.no_grad()
    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        self.values[node] = value.clone() if isinstance(value, Tensor) else value
        for source in node.all_input_nodes:
            if isinstance(value, Tensor) and self.env[source] is value:
                source.replace_all_uses_with(node, node.__lt__)  # in later nodes only
        return value


def _edges(run):
    """The nodes that become edges, with their names: float32 values made of the input, per image.

    Other values made from the input (masks, indices, sizes, a mean over all images) belong to the
    operations that use them.
    """
    edges: dict[fx.Node, str] = {}
    depends: set[fx.Node] = set()
    *nodes, output = run.module.graph.nodes
    for node in nodes:
        value = run.values[node]
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


def _read_node(node, edges, run):
    """The operation for a node: its integer form, or else the node in float."""
    sources = [arg for arg in nodes_in((node.args, node.kwargs)) if arg in edges]
    op = _integer_form(node, sources, run)
    if op is None:
        op, sources = _float_form(node, edges, run)
    op.name = edges[node]
    op.inputs = tuple(edges[source] for source in sources)
    op.node = node.name
    op.shape = tuple(run.values[node].shape[1:])
    return op


def _float_form(node, edges, run):
    """The node in float, as a graph with the constants, sizes and tuples that it needs; and the
    nodes of the edges that it reads.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}

    def copied(needed):
        if needed not in copies:
            if needed in edges and needed is not node:
                copies[needed] = graph.placeholder(needed.name)
            else:
                copies[needed] = graph.node_copy(needed, copied)
        return copies[needed]

    graph.output(copied(node))
    sources = [needed for needed in copies if needed in edges and needed is not node]
    return PlanOp("", "float", (), module=fx.GraphModule(run.module, graph)), sources


@torch.no_grad()
def _integer_form(node, sources, run):
    """The operation that a node is, without names; None if none in the table computes the same."""
    layer = called_module(node)
    form = _FORMS.get(operation(node))
    if form is None or not sources or min(run.values[source].ndim for source in sources) < 2:
        return None
    random = torch.Generator().manual_seed(0)
    inputs = {}
    for source in sources:
        inputs[source] = 9 * torch.randn(run.values[source].shape, generator=random)
    values = run.values | {source: x.clone() for source, x in inputs.items()}
    args, kwargs = fx.map_arg((node.args, node.kwargs), values.get)
    try:
        expected = getattr(run, node.op)(node.target, args, kwargs)
        op = form(expected, *args, **kwargs) if layer is None else form(layer)
        op.shape = tuple(expected.shape[1:])
        found = op.run(*(inputs[source] for source in sources))
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
        return None  # settings that the form, or the operation, does not have
    shapes = [x.shape for x in inputs.values()]
    is_spatial = op.kind in ("conv", "average_pool", "max_pool")
    requirements = (
        expected.shape[0] == shapes[0][0],
        len(shapes[0]) == 4 or not is_spatial,
        len(node.all_input_nodes) == 1 or op.kind != "clamp",  # its bounds are constants
        {*shapes} == {expected.shape} or op.kind != "add",
    )
    return op if all(requirements) and agree(found, expected) else None


def _op(kind, *parameters, **attributes):
    """An operation without names; the numbers that describe its window become pairs."""
    for name in attributes.keys() & {*WINDOW[:4]}:
        size = attributes[name]
        attributes[name] = (size, size) if isinstance(size, int) else (size[0], size[-1])
    return PlanOp("", kind, (), *parameters, attributes=attributes)


def _layer(layer):
    weight = layer.weight.detach().clone()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().clone()
    if isinstance(layer, nn.Linear):
        return _op("linear", weight, bias)
    both = padding_of(layer)
    padding = both[::-2]
    if padding != both[-2::-2] or (any(padding) and layer.padding_mode != "zeros"):
        # Not left to the comparison: the weights of a fresh network may all be 0.
        raise ValueError("no integer form")
    geometry = {"stride": layer.stride, "padding": padding, "dilation": layer.dilation}
    return _op("conv", weight, bias, **geometry, groups=layer.groups)


def _clamp(low=None, high=None):
    low = -math.inf if low is None else float(low)
    high = math.inf if high is None else float(high)
    return PlanOp("", "clamp", (), clamp=(low, high))


def _mean(y, x, *_, **__):
    """A mean over rows and columns, or over equal parts of them."""
    kernel = [a // b for a, b in zip(x.shape[2:], y.shape[2:] or (1, 1), strict=True)]
    return _op("average_pool", kernel=kernel, stride=kernel)


def _average_pool(y, x, kernel, stride=None, **_):
    return _op("average_pool", kernel=kernel, stride=stride or kernel)


def _max_pool(y, x, kernel, stride=None, padding=0, dilation=1, *, ceil_mode=False, **_):
    window = {"kernel": kernel, "stride": stride or kernel, "padding": padding}
    return _op("max_pool", **window, dilation=dilation, ceil_mode=ceil_mode)


# A form gets the layer, or what the function returned and its arguments. It may leave arguments out
# of account: the comparison of numbers finds where they matter.
_OPERATIONS = {
    "conv2d linear": _layer,
    "relu": lambda y, x, **_: _clamp(0),
    "relu6": lambda y, x, **_: _clamp(0, 6),
    "hardtanh": lambda y, x, min_val=-1, max_val=1, **_: _clamp(min_val, max_val),
    "clamp clip": lambda y, x, min=None, max=None: _clamp(min, max),
    "add": lambda *_, **__: _op("add"),
    "avg_pool2d": _average_pool,
    "adaptive_avg_pool2d mean": _mean,
    "max_pool2d": _max_pool,
    "cat concat concatenate": lambda y, tensors, dim=0: _op("concat", dim=dim),
    "flatten reshape view squeeze": lambda *_, **__: _op("reshape"),
}
_FORMS = {name: form for names, form in _OPERATIONS.items() for name in names.split()}


def _join(plan, kind, producers):
    """Let operations of a kind join an operation before them that nothing else reads.

    A clamp becomes the producer's clamp, an addition a convolution's residual. If an addition has
    two producers, it joins the one that runs later, whose place is then that of the addition.
    """
    for op in [op for op in plan.ops if op.kind == kind]:
        if len({*op.inputs}) < len(op.inputs):
            continue
        ready = [
            producer
            for producer in plan.ops
            if producer.name in op.inputs
            and producer.kind in producers
            and producer.clamp is None
            and producer.residual is None
            and plan.readers(producer.name) == [op]
        ]
        if not ready:
            continue
        producer = ready[-1]
        producer.inputs += tuple(name for name in op.inputs if name != producer.name)
        producer.clamp = op.clamp
        producer.node = op.node
        plan.ops.remove(producer)
        plan.ops[plan.ops.index(op)] = producer
        for reader in plan.readers(op.name):
            reader.inputs = tuple(
                producer.name if edge == op.name else edge for edge in reader.inputs
            )
