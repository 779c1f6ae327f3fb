"""The content of an ONNX file, tried out before it is written."""

from onnx import TensorProto, helper

from helpers.quantization.model import QuantizedModel
from helpers.quantization.onnx.check import verify_onnx
from helpers.quantization.onnx.graph import Graph
from helpers.quantization.onnx.widening import widened
from helpers.quantization.plan import INPUT


def content_of(model: QuantizedModel, block: int) -> bytes:
    """A network as ONNX, its widths multiples of `block` where possible."""
    wide = widened(model, block)
    graph = Graph()
    graph.encode(wide.input, INPUT)
    more = sum(wide.input.op.shape) - sum(model.input.op.shape)  # channels of the image
    if more:
        graph.pad_input(more)
    for step in wide.steps.values():
        getattr(graph, step.op.kind)(step)
    graph.add_floats([wide.step(name) for name in wide.float_layers], wide.plan.shapes)
    last = wide.plan.ops[-1]
    output = graph.decoded(last.name, "output" if "output" not in graph.coded else "output.real")
    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", *model.input_shape])
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", *last.shape])
    written = helper.make_graph(
        graph.in_order(), "quantized", [image], [result], list(graph.constants.values())
    )
    opset = helper.make_opsetid("", graph.opset)
    proto = helper.make_model_gen_version(written, opset_imports=[opset], producer_name="helpers")
    content = proto.SerializeToString()
    verify_onnx(content, model)
    return content
