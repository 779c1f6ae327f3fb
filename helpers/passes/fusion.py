"""Convolution + residual + activation become one `FusedLayer`, which one kernel computes."""

import operator
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.effects import is_fresh, is_random
from helpers.graphs.errors import MustStay
from helpers.graphs.layers import opaque
from helpers.graphs.operations import CONVS, TRANSPOSED
from helpers.graphs.patterns import Match, Op, Value
from helpers.passes.folder import Pass, PassResult
from helpers.passes.fused_layer import KERNELS, FusedLayer, read_activation
from helpers.passes.rewriter import MatchRewriter, Rules

aten = torch.ops.aten
IN_PLACE_ADDITIONS = (operator.iadd, aten.add_.Tensor, "add_")
ADDITIONS = (operator.add, torch.add, aten.add.Tensor, "add", *IN_PLACE_ADDITIONS)
# The transposed ones are among them so that they are declined with their reason.
LAYER = Op((*CONVS, *TRANSPOSED, FusedLayer), name="layer")
OTHER = Value(
    "other", where=lambda v: None if isinstance(v, fx.Node) else f"adds {v}, which is not a tensor"
)


def _fused(match: Match, editor: Editor, activation: fx.Node | None = None) -> FusedLayer:
    layer, module = match["layer"], editor.module(match["layer"])
    if isinstance(module, FusedLayer) and module.activation is not None:
        raise MustStay(f"{layer} already ends in {module.activation.function.__name__}")
    if layer.kwargs or (len(layer.args) != 1 and not isinstance(module, FusedLayer)):
        raise MustStay("it is not called with its input alone")
    if opaque(module) is not None:
        raise MustStay(opaque(module))
    return FusedLayer(module, activation and read_activation(activation))


def _end_fused(
    match: Match, editor: Editor, fused: FusedLayer, *added: fx.Node
) -> tuple[fx.Node, str]:
    """The last node calls the fused layer, and the layer's node goes."""
    layer, end = match["layer"], match.anchor
    editor.swap_module(layer, fused)
    editor.retarget(end, "call_module", layer.target, (*layer.args, *added), {})
    editor.erase(layer)
    return end, f"{layer} + {end} became a fused layer"


def _add(match: Match, editor: Editor) -> tuple[fx.Node, str]:
    layer, other, add = match["layer"], match["other"], match.anchor
    fused = _fused(match, editor)
    if other is layer:
        raise MustStay(f"{layer} is added to itself")
    if add.target in IN_PLACE_ADDITIONS:
        raise MustStay(f"{add} writes into {add.args[0]}, which others may read")
    if len(layer.args) == 2:
        raise MustStay(f"{layer} is fused already")
    one, two = _value(layer), _value(other)
    if (one.shape, one.dtype) != (two.shape, two.dtype):
        described = f"{one.dtype} {[*one.shape]} and {two.dtype} {[*two.shape]}"
        raise MustStay(f"{layer} and {other} are {described}: only equal ones add")
    return _end_fused(match, editor, fused, other)


def _activate(match: Match, editor: Editor) -> tuple[fx.Node, str]:
    fused = _fused(match, editor, match.anchor)
    if len(match["layer"].args) == 2 and fused.activation.function is not F.relu:
        raise MustStay(
            f"after an addition the kernels apply ReLU, not {fused.activation.function.__name__}"
        )
    return _end_fused(match, editor, fused)


def _alone(match: Match, editor: Editor) -> tuple[fx.Node, str]:
    fused, node = _fused(match, editor), match.anchor
    if (objection := fused.objection(_value(node.args[0]))) is not None:
        raise MustStay(objection)
    editor.swap_module(node, fused)
    return node, "became a fused layer"


def _value(node: fx.Node) -> torch.Tensor:
    if not isinstance(node.meta.get("val"), torch.Tensor):
        raise MustStay(
            f"the shape of {node} is not known: trace the network with passes.optimize or"
            " tracing.trace"
        )
    return node.meta["val"]


class Fusion(MatchRewriter):
    """conv(x) + other and activation(conv(x)) become one node, and a convolution on its own gets a
    kernel too.

    First the additions, then the activations, at last what is left: each rule stands on the one
        before.
    """

    name = "fusion"
    rules: ClassVar[Rules] = {
        Op(ADDITIONS, (LAYER, OTHER), commutative=True): _add,
        Op(KERNELS, (LAYER, ...)): _activate,
        Op(CONVS, name="layer"): _alone,
    }


class Contiguity(Pass):
    """Whoever counts on the order of numbers in memory finds the order that the network was written
    for.

    The convolution kernels leave their result in channels_last memory, where y.view(n, -1) is an
    error and y.flatten(1) a copy instead of a view. An operation that makes a new tensor computes
    the same in any order, and may pass it on. For anything else, and for what the network returns,
    a value that was contiguous is put into contiguous memory.
    """

    name = "contiguity"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Follow the other order from each fused convolution to the first one that may notice."""
        result, editor = PassResult(), Editor(graph_module)
        if _is_channels_last(graph_module):
            return result
        reordered: set[fx.Node] = set()
        for node in list(graph_module.graph.nodes):
            is_source = isinstance(editor.module(node), FusedLayer)
            if not _was_contiguous(node) or not (
                is_source or reordered.intersection(node.all_input_nodes)
            ):
                continue
            calls = [(user, editor.module(user)) for user in node.users]
            if all(
                is_fresh(*call) and not is_random(*call) for call in calls
            ):  # which goes in the order of memory
                reordered.add(node)
                continue
            if [user.target for user in node.users] == ["contiguous"]:
                continue
            with node.graph.inserting_after(node):
                straight = node.graph.call_method("contiguous", (node,))
            straight.meta.update(node.meta)
            node.replace_all_uses_with(
                straight, delete_user_cb=lambda user, straight=straight: user is not straight
            )
            result.change(node, "its result is put into contiguous memory")
        return result


def _is_channels_last(graph_module: fx.GraphModule) -> bool:
    """Whether the network's images or weights come in channels_last memory, so that it knows no
    other.
    """
    inputs = [node.meta.get("val") for node in graph_module.graph.find_nodes(op="placeholder")]
    tensors = [
        value for value in (*inputs, *graph_module.parameters()) if isinstance(value, torch.Tensor)
    ]
    return any(
        value.dim() == 4
        and not value.is_contiguous()
        and value.is_contiguous(memory_format=torch.channels_last)
        for value in tensors
    )


def _was_contiguous(node: fx.Node) -> bool:
    """Whether the value was contiguous in the network as it was traced, and may have become
    something else.

    A map of one pixel has both orders. Larger images may make it larger, and then the order counts;
    but not after pooling to one pixel, and one channel has both orders at any size.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() < 3 or not value.is_contiguous():
        return False
    one_pixel = node.target is F.adaptive_avg_pool2d and node.args[1:] in (
        (1,),
        ((1, 1),),
        ([1, 1],),
    )
    return value.dim() != 4 or (value.shape[1] > 1 and not one_pixel)
