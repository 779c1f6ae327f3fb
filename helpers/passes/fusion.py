"""Layer + residual + activation become one `FusedLayer`, which one kernel computes."""

import operator
from typing import Any

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor
from helpers.graphs.effects import is_fresh
from helpers.graphs.layers import CONVS, TRANSPOSED, opaque
from helpers.graphs.matching import Match, find
from helpers.graphs.patterns import Op, Value
from helpers.passes.folder import Pass, PassResult
from helpers.passes.fused_layer import ACTIVATIONS, FusedLayer, NotFusable, read_activation
from helpers.passes.registry import register

aten = torch.ops.aten
IN_PLACE_ADDITIONS = (operator.iadd, aten.add_.Tensor, "add_")
ADDITIONS = (operator.add, torch.add, aten.add.Tensor, "add", *IN_PLACE_ADDITIONS)
# The transposed ones are among them so that they are declined with their reason.
LAYER = Op((*CONVS, *TRANSPOSED, nn.Linear, FusedLayer), name="layer")


def _is_tensor(value: object) -> str | None:
    return None if isinstance(value, fx.Node) else f"adds {value}, which is not a tensor"


@register
class Fusion(Pass):
    """layer(x) + other and activation(layer(x)) become one node, and a convolution on its own gets a kernel too."""

    name = "fusion"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """First the additions, then the activations, at last what is left: each rule stands on the one before."""
        self.editor, result = Editor(graph_module), PassResult()
        addition = Op(ADDITIONS, (LAYER, Value("other", where=_is_tensor)), commutative=True)
        activation = Op(ACTIVATIONS, (LAYER, ...))
        alone = Op(CONVS, name="layer")
        rules = ((addition, self._may_add), (activation, self._may_activate), (alone, self._may_run_alone))
        for pattern, may_fuse in rules:
            self.made: dict[fx.Node, FusedLayer] = {}
            found = find(graph_module, pattern, filters=[_is_plain_call, may_fuse])
            for refusal in found.refused:
                result.decline(refusal.node, refusal.reason)
            for match in found.matches:
                result.change(match.anchor, self._fuse(match))
        return result

    def _fuse(self, match: Match) -> str:
        """Make the last node call the fused layer; the layer's node goes, but for one that was alone."""
        layer, end = match["layer"], match.anchor
        fused = self.made[end]
        self.editor.swap_module(layer, fused)
        if end is layer:
            return "became a fused layer"
        added = [value for part, value in match.nodes.items() if part.name == "other"]
        what = f"{layer} + {end} became a fused layer"
        self.editor.retarget(end, "call_module", layer.target, (*layer.args, *added), {})
        self.editor.erase(layer)
        return what

    def _make(self, match: Match, activation: Any = None) -> str | None:
        """Make the fused layer for a match; the reason why there is none."""
        try:
            activation = activation and read_activation(activation)
            self.made[match.anchor] = FusedLayer(self.editor.module(match["layer"]), activation)
        except NotFusable as error:
            return str(error)
        return None

    def _may_add(self, match: Match) -> str | None:
        layer, other, add = match["layer"], match["other"], match.anchor
        if other is layer:
            return f"{layer} is added to itself"
        if add.target in IN_PLACE_ADDITIONS:
            return f"{add} writes into {add.args[0]}, which others may read"
        if len(layer.args) == 2:
            return f"{layer} is fused already"
        values = [node.meta.get("val") for node in (layer, other)]
        for node, value in zip((layer, other), values, strict=True):
            if not isinstance(value, torch.Tensor):
                return f"the shape of {node} is not known: trace the network with passes.optimize or tracing.trace"
        one, two = values
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            return f"{other} is {_describe(two)} and {layer} is {_describe(one)}: only equal ones add in the kernel"
        return self._make(match)

    def _may_activate(self, match: Match) -> str | None:
        layer = match["layer"]
        reason = self._make(match, match.anchor)
        if reason is not None or len(layer.args) == 1:
            return reason
        fused = self.made[match.anchor]
        if fused.activation.onednn != "relu" or fused.geometry is None:
            return f"after an addition the kernels apply ReLU to a convolution, not {fused.activation}"
        return None

    def _may_run_alone(self, match: Match) -> str | None:
        x = match["layer"].args[0].meta.get("val")
        reason = self._make(match)
        if reason is not None or isinstance(x, torch.Tensor):
            return reason or self.made[match.anchor].objection(x)
        return f"the shape of {match['layer'].args[0]} is not known: trace the network with passes.optimize"


def _is_plain_call(match: Match) -> str | None:
    layer = match["layer"]
    module = layer.graph.owning_module.get_submodule(layer.target)
    if isinstance(module, FusedLayer) and module.activation is not None:
        return f"{layer} already ends in {module.activation}"
    if isinstance(module, TRANSPOSED):
        return "it is a transposed convolution, which has no fused form here"
    if layer.kwargs or (len(layer.args) != 1 and not isinstance(module, FusedLayer)):
        return "it is not called with its input alone"
    return opaque(module)


def _describe(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}"


@register
class Contiguity(Pass):
    """Whoever counts on the order of numbers in memory finds the order that the network was written for.

    The convolution kernels leave their result in channels_last memory, where y.view(n, -1) is an error and y.flatten(1)
    a copy instead of a view. An operation that makes a new tensor computes the same in any order, and may pass it on.
    For anything else, and for what the network returns, a value that was contiguous is put into contiguous memory.
    """

    name = "contiguity"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Follow the other order from each fused convolution to the first one that may notice."""
        result, editor = PassResult(), Editor(graph_module)
        if _is_channels_last(graph_module):
            return result
        reordered: set[fx.Node] = set()
        for node in list(graph_module.graph.nodes):
            module = editor.module(node)
            is_source = isinstance(module, FusedLayer) and module.geometry is not None
            if not _was_contiguous(node) or not (is_source or reordered.intersection(node.all_input_nodes)):
                continue
            if all(is_fresh(user, editor.module(user)) for user in node.users):
                reordered.add(node)
                continue
            if [user.target for user in node.users] == ["contiguous"]:
                continue
            with node.graph.inserting_after(node):
                straight = node.graph.call_method("contiguous", (node,))
            straight.meta.update(node.meta)
            node.replace_all_uses_with(straight, delete_user_cb=lambda user, straight=straight: user is not straight)
            result.change(node, "its result is put into contiguous memory")
        return result


def _is_channels_last(graph_module: fx.GraphModule) -> bool:
    """Whether the network's images or weights come in channels_last memory, so that it knows no other."""
    inputs = [node.meta.get("val") for node in graph_module.graph.find_nodes(op="placeholder")]
    tensors = [value for value in (*inputs, *graph_module.parameters()) if isinstance(value, torch.Tensor)]
    return any(
        value.dim() == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)
        for value in tensors
    )


def _was_contiguous(node: fx.Node) -> bool:
    """Whether the value was contiguous in the network as it was traced, and may have become something else."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() < 3 or not value.is_contiguous():
        return False
    return value.dim() != 4 or not value.is_contiguous(memory_format=torch.channels_last)
