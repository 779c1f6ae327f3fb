"""An ONNX graph under construction: codes travel between the operations, each with its scale and zero point."""

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from helpers.quantization.layers import Layer
from helpers.quantization.model import QuantizedModel
from helpers.quantization.plan import INPUT
from helpers.quantization.steps import Step
from helpers.quantization.weights import PAIR_LIMIT

__all__ = ["OnnxGraph", "weight_zero_point"]


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
