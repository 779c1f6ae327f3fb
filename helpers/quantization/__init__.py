"""Quantization from the formula to real int8. Read the files in this order:

    affine.py        scale, zero point, codes: quantize and dequantize one tensor; a real factor as
                     multiplier and shift
    plan.py          `Plan`, a folded network as a short list of operations in float, with a worked
                     example, and `Recipe`, how to round it
    lowering.py      from a network to a plan
    observers.py     calibration: which range each activation has      -> {edge: Affine}
    weights.py       weights as integer codes, packed in files         -> {op: LayerWeights}
    integer.py       what each operation does to codes: simulated, integer, kernel
    kernels.py       sums in int32, and oneDNN's int8 convolutions
    model.py         `quantize`, the steps above in a row              -> QuantizedModel
    verify.py        what may be quantized, and that a plan computes what its network does

and these when they are needed:

    equalization.py  other scales for channels, and still the same network
    repairs.py       learned rounding (AdaRound) and bias correction
    qat.py           training with the rounding in place (QAT, fake quantization)
    mixed.py         bits per layer for a file of a given size
    onnx/            the same integers for ONNX Runtime

The output of an operation is an *edge* of the same name; the network's input is the edge "input".
Most edges carry codes, whose meaning one unsigned per-tensor `Affine` gives (`reshape`, `max_pool`
and `concat` share that of their inputs). An edge carries floats if only operations in float touch
it, or if it is the output of a last layer, which turns its int32 sums (accumulators) into logits
(see `Plan.quantized_edges`).

A `QuantizedModel` has one `Step` module per operation (`q.step(name)`). A step holds as buffers
`weight` (int8 codes; below 8 bits they are packed, and `codes` has them unpacked), `weight_scale`,
`bias` (int32, in units of input scale * weight scale), `out_scale`, `out_zero_point`, and the
bounds of its codes, `first` and `last`; all other integers are computed again after loading.
"""

from helpers.quantization.affine import Affine, QuantizationError
from helpers.quantization.lowering import make_plan
from helpers.quantization.mixed import mixed_recipe
from helpers.quantization.model import MODES, QuantizedModel, quantize, replay
from helpers.quantization.onnx import to_onnx
from helpers.quantization.plan import Plan, Recipe
