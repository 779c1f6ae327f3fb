"""Convolution + residual + activation become one `FusedLayer`, which one kernel computes."""

import operator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import fx

from helpers.graphs.editing import call_after
from helpers.graphs.effects import is_fresh, is_random
from helpers.graphs.errors import Declined
from helpers.graphs.layers import why_not_ordinary
from helpers.graphs.matching import Match
from helpers.graphs.operations import CONVS, OPERATIONS, TRANSPOSED, called_module, is_in_place
from helpers.graphs.patterns import OpPattern, Value
from helpers.graphs.rewriting import Outcome, Rules
from helpers.passes.base import Pass, RulePass, check_same_form
from helpers.passes.fused_layer import KERNELS, FusedLayer, read_activation

aten = torch.ops.aten
# A canonical graph nearly always has the first. The others are fused too, or declined with a
# reason.
ADDITIONS = (operator.add, torch.add, aten.add.Tensor, "add")
ADDITIONS += (operator.iadd, aten.add_.Tensor, "add_")
ACTIVATIONS = [OPERATIONS[name].function for name in KERNELS]
# The transposed ones are among them so that they are declined with their reason.
LAYER = OpPattern((*CONVS, *TRANSPOSED, FusedLayer), name="layer")


def _check_node(value: Any) -> None:
    if not isinstance(value, fx.Node):
        raise Declined(f"adds {value}, which is not a tensor")


def _fused(layer: fx.Node, activation: fx.Node | None = None) -> FusedLayer:
    module = called_module(layer)
    if isinstance(module, FusedLayer) and module.activation is not None:
        raise Declined(f"{layer} already ends in {module.activation.name}")
    if layer.kwargs or (len(layer.args) != 1 and not isinstance(module, FusedLayer)):
        raise Declined("it is not called with its input alone")
    if why_not_ordinary(module) is not None:
        raise Declined(why_not_ordinary(module))
    return FusedLayer(module, activation and read_activation(activation))


def _put_fused(match: Match, layer: fx.Node, fused: FusedLayer, *added: fx.Node) -> str:
    """Let the anchor call the fused layer, and take the layer's node away."""
    editor = match.editor
    anchor = match.anchor
    editor.swap_module(layer, fused)
    editor.retarget(anchor, "call_module", layer.target, (*layer.args, *added), {})
    editor.erase(layer)
    return f"{layer} + {anchor} became a fused layer"


def _add(match: Match, layer: fx.Node, other: fx.Node) -> str:
    fused = _fused(layer)
    addition = match.anchor
    if other is layer:
        raise Declined(f"{layer} is added to itself")
    if is_in_place(addition.target):
        raise Declined(f"{addition} writes into {addition.args[0]}, which others may read")
    if len(layer.args) == 2:
        raise Declined(f"{layer} is fused already")
    check_same_form(layer, other)
    return _put_fused(match, layer, fused, other)


def _activate(match: Match, layer: fx.Node) -> str:
    fused = _fused(layer, match.anchor)
    name = fused.activation.name
    if len(layer.args) == 2 and name != "relu":
        raise Declined(f"after an addition the kernels apply ReLU, not {name}")
    return _put_fused(match, layer, fused)


def _alone(match: Match, layer: fx.Node) -> str:
    fused = _fused(layer)
    # As on the CPU, so that the structure does not depend on where the network is.
    reason = fused.why_no_kernel(_value(layer.args[0]), device="cpu")
    if reason is not None:
        raise Declined(reason)
    match.editor.swap_module(layer, fused)
    return "became a fused layer"


def _value(node: fx.Node) -> torch.Tensor:
    if not isinstance(node.meta.get("val"), torch.Tensor):
        raise Declined(
            f"the shape of {node} is not known: trace the network with passes.optimize or"
            " tracing.trace"
        )
    return node.meta["val"]


class Fusion(RulePass):
    """conv(x) + other and activation(conv(x)) become one node; a convolution alone gets a kernel,
    too.

    First the additions, then the activations, and last the convolutions that are left: a rule also
    finds the fused layers that the rules before it have made.
    """

    name = "fusion"
    rules: ClassVar[Rules] = {
        OpPattern(ADDITIONS, (LAYER, Value("other", _check_node)), commutative=True): _add,
        OpPattern(ACTIVATIONS, (LAYER, ...)): _activate,
        OpPattern(CONVS, name="layer"): _alone,
    }


class Contiguity(Pass):
    """Puts values into contiguous memory where a reader depends on their order in memory.

    The convolution kernels leave their result in channels_last memory, where y.view(n, -1) is an
    error and y.flatten(1) a copy instead of a view. An operation that makes a new tensor computes
    the same in any order, and may pass that order on. For any other reader, and for what the
    network returns, a value that was contiguous in the original network becomes so again.
    """

    name = "contiguity"

    def run(self, graph_module: fx.GraphModule) -> Outcome:
        """Follow channels_last from each fused convolution to the first reader that may notice."""
        outcome = Outcome()
        if is_channels_last(graph_module):
            return outcome
        reordered: set[fx.Node] = set()
        for node in list(graph_module.graph.nodes):
            is_source = isinstance(called_module(node), FusedLayer)
            if not is_source and reordered.isdisjoint(node.all_input_nodes):
                continue
            if not _was_contiguous(node):
                continue
            if all(_ignores_order(user) for user in node.users):
                reordered.add(node)
            elif [user.target for user in node.users] != ["contiguous"]:
                call_after(node, "contiguous")
                outcome.change(node, "its result is put into contiguous memory")
        return outcome


def _ignores_order(node: fx.Node) -> bool:
    """Whether a node makes a new tensor that is the same for any order of its inputs in memory;
    with random numbers it would not be.
    """
    return is_fresh(node) and not is_random(node)


def is_channels_last(graph_module: fx.GraphModule) -> bool:
    """Whether the images or filters of the network come in channels_last memory already."""
    inputs = [node.meta.get("val") for node in graph_module.graph.find_nodes(op="placeholder")]
    layers = [part for part in graph_module.modules() if isinstance(part, FusedLayer)]
    return any(map(has_that_order, (*inputs, *(layer.weight for layer in layers))))


def has_that_order(value: Any) -> bool:
    """Whether it is a tensor in channels_last memory alone; of one channel or pixel it is in both
    orders.
    """
    return (
        isinstance(value, torch.Tensor)
        and value.dim() == 4
        and not value.is_contiguous()
        and value.is_contiguous(memory_format=torch.channels_last)
    )


def _was_contiguous(node: fx.Node) -> bool:
    """Whether a value was contiguous in the original network, and may not be so after fusion.

    A map of one pixel, or of one channel, is in both orders at once. With larger images a map of
    one pixel may become larger, unless it comes from pooling to one pixel.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() < 3 or not value.is_contiguous():
        return False
    if value.dim() != 4:
        return True
    sizes = ((1,), ((1, 1),), ([1, 1],))
    one_pixel = node.target is F.adaptive_avg_pool2d and node.args[1:] in sizes
    return value.shape[1] > 1 and not one_pixel
