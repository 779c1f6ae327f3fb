"""Chooses, for every convolution and every fused layer, the kernel that it runs on: by target, dtype and shape.

On the CPU three kernels compete for a 1x1 convolution. It is a matrix product, and oneDNN prepares itself for a product
in fewer steps than for a convolution: at batch 1 that is a quarter of the time of MobileNetV2's small layers. PyTorch's
own product needs no oneDNN, but its activation goes over the result again.
"""

from dataclasses import replace

from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.layers import CONVS
from helpers.graphs.replacing import VALUES, inherit
from helpers.passes.folder import Pass, PassResult
from helpers.passes.fused_calls import FUSED, LayerCall, NotReadable, read
from helpers.passes.fused_ops import objection
from helpers.passes.kernels import CONV_KERNELS, LINEAR_KERNELS, Operands
from helpers.passes.registry import register

# The quickest first, as it was for every 1x1 layer of MobileNetV2 at batch 1, 8 and 128 (AVX-512, 1 and 2 threads).
PREFERRED = ["onednn_product", "onednn", "gemm", "cudnn"]


def choose(call: Operands) -> tuple[str, str | None]:
    """The best kernel for a call on the device where its weight is.

    Returns:
        The kernel's name and None; or "plain" and the reasons against each kernel of this target.

    Example:
        >>> choose(Operands(x, weight, geometry=Geometry()))
        ('onednn_product', None)
    """
    target = call.weight.device.type
    kernels = LINEAR_KERNELS if call.geometry is None else CONV_KERNELS
    objections = {name: objection(call, name) for name, kernel in kernels.items() if kernel.target == target}
    able = [name for name, reason in objections.items() if reason is None]
    if not able:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in objections.items())
        return "plain", reasons or f"no fused kernel is known for {target}"
    return min(able, key=PREFERRED.index), None


@register
class KernelSelection(Pass):
    """Every fused layer, and every convolution on its own, gets the best kernel that can run it."""

    name = "kernel_selection"
    kernels = ("course::conv_act", "course::linear_act")

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Choose for each layer, and write the choice into the graph."""
        result, editor = PassResult(), Editor(graph_module)
        for node in list(graph_module.graph.nodes):
            if type(editor.module(node)) not in CONVS and node.target not in FUSED:
                continue
            try:
                call = read(node)
                kernel, reason = choose(call.operands())
            except NotReadable as error:
                result.decline(node, str(error))
                continue
            if reason is not None:
                result.decline(node, f"stays a plain composition: {reason}")
            elif kernel != call.kernel:
                _rewrite(node, replace(call, kernel=kernel), editor)
                result.change(node, f"runs on {kernel}")
        return result


def _rewrite(node: fx.Node, call: LayerCall, editor: Editor) -> None:
    """Write the call in the node's place; it inherits what is known about the node."""
    with node.graph.inserting_before(node):
        new = call.insert(node.graph)
    inherit([new, *(operand for operand in new.all_input_nodes if operand.op == "get_attr")], node)
    new.meta.update({key: node.meta[key] for key in VALUES if key in node.meta})
    editor.replace(node, new)
