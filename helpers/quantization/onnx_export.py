"""Export to ONNX in the QDQ form: our integers and our scales, between QuantizeLinear and DequantizeLinear.

    codes -> DequantizeLinear -> Conv(DequantizeLinear(weight), DequantizeLinear(bias)) -> QuantizeLinear -> codes

ONNX Runtime recognises such a group and replaces it by one int8 kernel (QLinearConv, QLinearAdd, QGemm, ...);
`runtime_operators` shows what it really runs. ReLU and ReLU6 need no node: quantization saturates where they do. Only a
limit per channel, left by equalisation, becomes a Min of its own.

A residual that is added before the one rounding (residual="fused") has no QDQ form. Such a convolution is written with
ConvInteger, whose int32 sums are scaled and added in float: exact, but slower than residual="separate".

Saturation. On x86 without VNNI, ONNX Runtime multiplies uint8 by int8 with vpmaddubsw, which adds pairs of products in
16 bits (see `weights.py`). A layer whose weights could overflow there is stored as uint8, code + 128 with zero point
128: the kernel used then is exact for every weight, but slower. With weight_range="pairs" that is the stem alone.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from helpers.files import write_atomically
from helpers.quantization.affine import QuantizationError
from helpers.quantization.layers import Layer
from helpers.quantization.model import QuantizedModel
from helpers.quantization.onnx_graph import OnnxGraph
from helpers.quantization.steps import Step

__all__ = ["ExportError", "runtime_operators", "session", "to_onnx"]

OPSET = 17
IR_VERSION = 8  # the one that belongs to the opset


class ExportError(QuantizationError):
    """A network that cannot be written as ONNX as asked."""


def to_onnx(model: QuantizedModel, path: str | Path) -> Path:
    """Write a quantized network as an ONNX file.

    Args:
        model: every operation must have an integer form.
        path: the file to write.

    Returns:
        The path. The file takes normalised float32 images (N, C, H, W), any N, and gives logits.

    Example:
        to_onnx(quantize(model, images, Recipe(residual="separate")), "int8.onnx")
    """
    if model.float_layers:
        raise ExportError(f"{model.float_layers} stayed in float and have no ONNX form here; replace these layers")
    graph = OnnxGraph(model)
    for step in model.steps.values():
        _WRITERS[step.op.kind](graph, step)
    opset = helper.make_opsetid("", OPSET)
    proto = helper.make_model(graph.finish(step), opset_imports=[opset], ir_version=IR_VERSION, producer_name="helpers")
    onnx.checker.check_model(proto, full_check=True)
    return write_atomically(Path(path), proto.SerializeToString())


def session(path: str | Path, threads: int = 0) -> onnxruntime.InferenceSession:
    """Open an ONNX file on the CPU.

    Args:
        path: an ONNX file.
        threads: for each operation; 0 leaves the choice to ONNX Runtime.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def runtime_operators(path: str | Path) -> Counter[str]:
    """How often ONNX Runtime runs each operator, after its own optimisation of the file.

    Example:
        >>> runtime_operators("int8.onnx")["QLinearConv"]
        52
    """
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns that the optimised file fits this processor only: that is meant
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


def _write_conv(graph: OnnxGraph, step: Layer) -> None:
    if step.op.residual:
        return _write_conv_with_residual(graph, step)
    inputs = [graph.get(step), graph.weight(step, step.weight, axis=0), graph.bias(step)]
    return _put(graph, step, graph.node("Conv", inputs, step.op.name, **_geometry(step)))


def _write_conv_with_residual(graph: OnnxGraph, step: Layer) -> None:
    """(int32 sums + bias) * unit + residual, rounded once."""
    name = step.op.name
    codes, _, zero = graph.coded[step.op.inputs[0]]
    weight, weight_zero = graph.codes(step, step.weight)
    sums = graph.node("ConvInteger", [codes, weight, zero, weight_zero], f"{name}.products", **_geometry(step))
    sums = graph.node("Add", [sums, graph.constant(f"{name}.bias", step.bias.reshape(-1, 1, 1))], f"{name}.sums")
    real = graph.node("Cast", [sums], f"{name}.float", to=onnx.TensorProto.FLOAT)
    real = graph.node(
        "Mul", [real, graph.constant(f"{name}.unit", step.unit.float().reshape(-1, 1, 1))], f"{name}.real"
    )
    _put(graph, step, graph.node("Add", [real, graph.get(step, 1)], name))


def _write_linear(graph: OnnxGraph, step: Layer) -> None:
    inputs = [graph.get(step), graph.weight(step, step.weight.t(), axis=1), graph.bias(step)]
    _put(graph, step, graph.node("Gemm", inputs, step.op.name))


def _write_add(graph: OnnxGraph, step: Step) -> None:
    _put(graph, step, graph.node("Add", [graph.get(step, 0), graph.get(step, 1)], step.op.name))


def _write_average_pool(graph: OnnxGraph, step: Step) -> None:
    window = {"kernel_shape": step.op.attributes["kernel"], "strides": step.op.attributes["stride"]}
    _put(graph, step, graph.node("AveragePool", [graph.get(step)], step.op.name, **window))


def _write_clamp(graph: OnnxGraph, step: Step) -> None:
    graph.put(step, graph.get(step))


def _write_max_pool(graph: OnnxGraph, step: Step) -> None:
    codes, *where = graph.coded[step.op.inputs[0]]
    a = step.op.attributes
    window = {"kernel_shape": a["kernel"], "strides": a["stride"], "dilations": a["dilation"], "pads": a["padding"] * 2}
    graph.coded[step.op.name] = (graph.node("MaxPool", [codes], step.op.name, **window), *where)


def _write_reshape(graph: OnnxGraph, step: Step) -> None:
    codes, *where = graph.coded[step.op.inputs[0]]
    shape = graph.constant(f"{step.op.name}.shape", np.array([0, *step.op.shape], np.int64))  # 0 keeps the batch
    graph.coded[step.op.name] = (graph.node("Reshape", [codes, shape], step.op.name), *where)


def _put(graph: OnnxGraph, step: Step, value: str) -> None:
    """Hand a result on as codes; the network's last layer leaves it in float."""
    if step.coded:
        graph.put(step, value)


def _geometry(step: Layer) -> dict[str, object]:
    """The attributes of a convolution in ONNX's words."""
    a = step.op.attributes
    return {"strides": a["stride"], "pads": a["padding"] * 2, "dilations": a["dilation"], "group": a["groups"]}


_WRITERS: dict[str, Callable[[OnnxGraph, Step], None]] = {
    "conv": _write_conv,
    "linear": _write_linear,
    "add": _write_add,
    "average_pool": _write_average_pool,
    "clamp": _write_clamp,
    "max_pool": _write_max_pool,
    "reshape": _write_reshape,
}
