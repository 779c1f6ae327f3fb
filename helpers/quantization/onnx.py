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
import torch
from onnx import TensorProto, helper, numpy_helper

from helpers.files import write_atomically
from helpers.quantization.affine import QuantizationError
from helpers.quantization.integer import Layer, Step
from helpers.quantization.model import QuantizedModel
from helpers.quantization.plan import INPUT
from helpers.quantization.weights import PAIR_LIMIT

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


class OnnxGraph:
    """Nodes and constants; begins with the quantized input.

    Attributes:
        coded: for each edge the names of its codes, scale and zero point.
    """

    def __init__(self, model: QuantizedModel) -> None:
        self.input_shape = model.input_shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.coded: dict[str, tuple[str, str, str]] = {}
        self.put(model.input, INPUT)

    def node(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        """Add a node whose one output has the node's name."""
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: torch.Tensor | np.ndarray) -> str:
        """Add a constant."""
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    def put(self, step: Step, value: str) -> None:
        """Quantize a float tensor to the codes of a step's output, and clamp what saturation does not clamp."""
        name = step.op.name
        scale = self.constant(f"{name}.scale", step.out_scale.reshape(()))
        zero = self.constant(f"{name}.zero_point", step.out_zero_point.to(torch.uint8).reshape(()))
        codes = self.node("QuantizeLinear", [value, scale, zero], f"{name}.codes")
        for kind, bound, end in (("Max", step.first, 0), ("Min", step.last, 255)):
            if (bound != end).any():  # in float, since ONNX Runtime has no Min for uint8; every bound is exactly a code
                real = (bound.to(torch.int32) - step.out_zero_point) * step.out_scale
                limit = self.constant(f"{name}.{kind}.limit", real.reshape(-1, *[1] * (len(step.op.shape) - 1)))
                exact = self.node("DequantizeLinear", [codes, scale, zero], f"{name}.{kind}.real")
                limited = self.node(kind, [exact, limit], f"{name}.{kind}")
                codes = self.node("QuantizeLinear", [limited, scale, zero], f"{name}.{kind}.codes")
        self.coded[name] = (codes, scale, zero)

    def get(self, step: Step, position: int = 0) -> str:
        """The real numbers of an input; a node for each reader, as the QDQ form wants it."""
        edge = step.op.inputs[position]
        return self.node("DequantizeLinear", [*self.coded[edge]], f"{step.op.name}.input{position}")

    def codes(self, layer: Layer, codes: torch.Tensor) -> tuple[str, str]:
        """A weight's codes and its zero point; with zero point 128 they are stored as uint8."""
        shift = weight_zero_point(layer)
        stored = codes.cpu().numpy().astype(np.int16) + shift
        kind = np.uint8 if shift else np.int8
        zero = self.constant(f"{layer.op.name}.weight.zero_point", np.array(shift, kind))
        return self.constant(f"{layer.op.name}.weight.codes", stored.astype(kind)), zero

    def weight(self, layer: Layer, codes: torch.Tensor, axis: int) -> str:
        """The real weight, from its codes and one scale per output channel."""
        stored, zero = self.codes(layer, codes)
        scale = self.constant(f"{layer.op.name}.weight.scale", layer.weight_scale)
        zeros = numpy_helper.to_array(self.constants[zero]).repeat(len(layer.weight_scale))
        parts = [stored, scale, self.constant(zero, zeros)]  # the same for each channel
        return self.node("DequantizeLinear", parts, f"{layer.op.name}.weight", axis=axis)

    def bias(self, layer: Layer) -> str:
        """The real bias, from int32 in units of input scale * weight scale."""
        name = layer.op.name
        parts = [self.constant(f"{name}.bias.codes", layer.bias), self.constant(f"{name}.unit", layer.unit.float())]
        return self.node("DequantizeLinear", parts, f"{name}.bias", axis=0)

    def finish(self, last: Step) -> onnx.GraphProto:
        """The graph, whose output is that of the last step."""
        output = self.nodes[-1].output[0]
        if last.op.name in self.coded:
            output = self.node("DequantizeLinear", [*self.coded[last.op.name]], "output")
        image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", *self.input_shape])
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", *last.op.shape])
        return helper.make_graph(self.nodes, "quantized", [image], [result], list(self.constants.values()))


def weight_zero_point(layer: Layer) -> int:
    """0 (stored as int8) where ONNX Runtime's uint8 x int8 product is exact without VNNI, else 128 (uint8).

    Its kernel adds neighbouring products in 16 bits, in the order (row, column, input channel) of the weights. A layer
    with more than one input channel and a kernel larger than 1 x 1 thus meets other pairs than those that
    `weights.py` keeps small. Depthwise convolutions have a kernel of their own, which adds in 32 bits.
    """
    weight = layer.weight
    if weight.ndim == 4 and weight.shape[1] == 1 and weight.shape[0] == layer.op.attributes["groups"]:
        return 0
    order = weight.movedim(1, -1).flatten(1).to(torch.int16)
    pairs = torch.nn.functional.pad(order, (0, order.shape[1] % 2)).unflatten(1, (-1, 2))
    largest = torch.maximum(pairs.clamp(min=0).sum(2), pairs.clamp(max=0).sum(2).neg()).max()
    return 128 if largest > PAIR_LIMIT else 0


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
    real = graph.node("Cast", [sums], f"{name}.float", to=TensorProto.FLOAT)
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
