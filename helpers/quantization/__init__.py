"""Quantization from the formula to real int8.

How a network becomes integers, and which file holds the step:

    fold BatchNorm     passes.optimize(model, example, level="fold")      -> GraphModule
    read the graph     plan.read(graph_module, example, recipe)           -> Plan: a short list of `Op`s (float)
    repair (optional)  repairs.repair_plan(plan, recipe)                  -> Plan (equalised, high biases absorbed)
    watch activations  calibration.calibrate(plan, images, recipe)        -> {edge: Affine}
    round the weights  weights.encode_weights(plan, recipe)               -> {op: LayerWeights}
    repair (optional)  repairs.repair_weights(plan, edges, weights, images, recipe)    -> {op: LayerWeights}
    put together       model.QuantizedModel(plan, edges, weights, recipe)

`quantizer.quantize` is these seven lines.

A `Plan` lists its `Op`s in the order in which they run. Each op has a `name`, a `kind` ("conv", "linear", "add",
"average_pool", "max_pool", "reshape", "clamp" or "float"), the names of its input edges, its float `weight` and
`bias`, its `clamp` and its attributes. The output of an op is an *edge* of the same name; the network input is the
edge "input". BatchNorm is folded, an activation that follows an op is its `clamp` = (low, high) where None means no
bound and high may be one number per channel, and with `residual="fused"` an addition becomes the `residual` edge of
its convolution. `plan.run(x)` computes it all in float and `plan.run(x, watch=f)` calls f(edge, tensor) on the way.
A repair works on a `plan.copy()` and changes `op.weight`, `op.bias` and `op.clamp`.

Every edge carries one unsigned per-tensor `Affine` (`reshape` and `max_pool` share that of their input). The last edge
carries none: the last layer turns its int32 sums into float logits.

A `LayerWeights` holds the integer `codes` (int8, symmetric, narrow), the `scale` per output channel, the `bits` and
the float `bias`. Learned rounding replaces `codes`, bias correction replaces `bias`; the bits of one layer come from
`recipe.layer_bits`.

A `QuantizedModel` is an nn.Module with one `Step` module per op (`q.steps[name]`). A step holds as buffers `weight`
(int8 codes, packed when saved), `weight_scale`, `bias` (int32, in units of input scale * weight scale), `out_scale`
and `out_zero_point`; all other integers (multipliers, shifts, code clamps) follow from these and are computed again
after loading. Each step has three methods, `simulated` (float), `integer` (integer tensors only) and `kernel` (oneDNN
int8), and `q.mode` says which of them `q(x)` calls.
"""

from helpers.quantization.affine import Affine, QuantizationError
from helpers.quantization.mixed_precision import mixed_recipe
from helpers.quantization.model import MODES, QuantizedModel
from helpers.quantization.onnx_export import to_onnx
from helpers.quantization.plan import Plan
from helpers.quantization.quantizer import quantize, replay
from helpers.quantization.recipe import Recipe
from helpers.quantization.weight_only import weights_only

__all__ = [
    "MODES",
    "Affine",
    "Plan",
    "QuantizationError",
    "QuantizedModel",
    "Recipe",
    "mixed_recipe",
    "quantize",
    "replay",
    "to_onnx",
    "weights_only",
]
