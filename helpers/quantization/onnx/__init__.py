"""Export to ONNX in the QDQ form: our integers and our scales, between QuantizeLinear and
DequantizeLinear.

    codes -> DequantizeLinear -> Conv(DequantizeLinear(weight), DequantizeLinear(bias))
          -> QuantizeLinear -> codes

ONNX Runtime recognises such a group and replaces it by one int8 kernel (QLinearConv, QLinearAdd,
QGemm, ...). ReLU and ReLU6 need no node: quantization saturates where they do. Only a limit per
channel, left by equalization, becomes a Min. An operation without an integer form is written by
PyTorch's own exporter, all of them in one go.

Weights of 4 bits or fewer are stored so; a file with 2-bit weights needs ONNX Runtime 1.24.

A residual that is added before the one rounding (residual="fused") has no QDQ form. Such a
convolution is left to a kernel in float, which gives the same codes, but is slower than
residual="separate".

    graph.py     a node, or a few, for each operation
    floats.py    the operations that stayed in float
    widening.py  widths that ONNX Runtime computes fast
    check.py     the file is tried out before it is written
"""

from pathlib import Path

from onnx import TensorProto, helper

from helpers.files import write_atomically
from helpers.quantization.affine import QuantizationError
from helpers.quantization.model import QuantizedModel
from helpers.quantization.onnx.check import verify_onnx
from helpers.quantization.onnx.graph import Graph
from helpers.quantization.onnx.widening import widened
from helpers.quantization.plan import INPUT

BLOCK = 16  # channels that ONNX Runtime computes at a time


def to_onnx(model: QuantizedModel, path: str | Path, block: int = BLOCK) -> Path:
    """Write a quantized network as an ONNX file that takes normalised float32 images (N, C, H, W)
    and gives logits.

    Widths become multiples of `block` where they may, with channels that nothing reads; 1 leaves
    them as they are.

    Example:
        to_onnx(quantize(model, images, Recipe(residual="separate")), "int8.onnx")
    """
    if not isinstance(model, QuantizedModel):
        raise QuantizationError(
            f"to_onnx writes quantized networks, not a {type(model).__name__}: quantize it first"
        )
    wide = widened(model, block)
    graph = Graph()
    graph.put(wide.input, INPUT)
    more = sum(wide.input.op.shape) - sum(model.input.op.shape)  # channels of the image
    if more:
        graph.pad_input(more)
    graph.add_floats([wide.step(name) for name in wide.float_layers], wide.plan.shapes)
    for step in wide.steps.values():
        getattr(graph, step.op.kind)(step)
    last = wide.plan.ops[-1]
    output = graph.real(last.name, "output" if "output" not in graph.coded else "output.real")
    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", *model.input_shape])
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", *last.shape])
    written = helper.make_graph(
        graph.in_order(), "quantized", [image], [result], list(graph.constants.values())
    )
    opset = helper.make_opsetid("", graph.opset)
    proto = helper.make_model_gen_version(written, opset_imports=[opset], producer_name="helpers")
    content = proto.SerializeToString()
    verify_onnx(content, model)
    return write_atomically(Path(path), content)
