"""An ONNX graph under construction, with a method for each kind of operation."""

from graphlib import TopologicalSorter

import onnx
import torch
from onnx import TensorProto, compose, helper, numpy_helper
from torch import Tensor

from helpers.quantization.integer import Layer, Step
from helpers.quantization.onnx.floats import OPSET, export_floats, input_name
from helpers.quantization.plan import INPUT
from helpers.quantization.weights import pairs_fit

FLOAT = "in float: "  # prefix of the names that PyTorch's exporter wrote
LARGEST_CODE = 255  # of uint8, whatever the bits of an activation are
ATTRIBUTES = {  # what ONNX calls the attributes of an operation
    "kernel": "kernel_shape",
    "stride": "strides",
    "dilation": "dilations",
    "padding": "pads",
    "groups": "group",
    "ceil_mode": "ceil_mode",
    "dim": "axis",
}
# In later opsets the operations that PyTorch's exporter writes are the same.
LAST_CHANGE = 21
# Integer types of few bits, narrowest first: bits, type, and the opset that brought it.
# ONNX Runtime knows 2 bits since version 1.24.
NARROW_TYPES = ((2, TensorProto.INT2, 25), (4, TensorProto.INT4, 21))


class Graph:
    """Nodes and constants by name.

    Attributes:
        coded: for each edge that carries codes the names of its codes, scale and zero point.
        opset: the oldest that has all that is in the graph.
    """

    def __init__(self) -> None:
        self.opset = OPSET
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.coded: dict[str, tuple[str, str, str]] = {}

    def node(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        """Add a node whose one output has the node's name."""
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: Tensor) -> str:
        """Add a constant of this name."""
        self.constants[name] = numpy_helper.from_array(value.numpy(), name)
        return name

    def in_order(self) -> list[onnx.NodeProto]:
        """The nodes, each behind those whose results it reads."""
        makers = {name: i for i, node in enumerate(self.nodes) for name in node.output}
        needs = {
            i: [makers[name] for name in node.input if name in makers]
            for i, node in enumerate(self.nodes)
        }
        return [self.nodes[i] for i in TopologicalSorter(needs).static_order()]

    def pad_input(self, channels: int) -> None:
        """Add channels of zeros to the image's codes."""
        codes, *affine = self.coded[INPUT]
        ends = [0, 0, 0, 0, 0, channels, 0, 0]  # before and behind (N, C, H, W)
        pads = self.constant(f"{INPUT}.pads", torch.tensor(ends))
        self.coded[INPUT] = (self.node("Pad", [codes, pads], f"{INPUT}.widened"), *affine)

    def encode(self, step: Step, value: str) -> None:
        """Turn a float tensor into the codes of a step's output, if that is coded at all."""
        if not step.has_codes:
            return
        name = step.op.name
        scale = self.constant(f"{name}.scale", step.out_scale.reshape(()))
        zero = self.constant(f"{name}.zero_point", step.out_zero_point.to(torch.uint8).reshape(()))
        codes = self.node("QuantizeLinear", [value, scale, zero], f"{name}.codes")
        # Saturation clamps only to 0 and 255.
        for kind, bound, end in (("Max", step.first, 0), ("Min", step.last, LARGEST_CODE)):
            if (bound == end).all():
                continue
            # In float, since ONNX Runtime has no Min for uint8; every bound is exactly a code.
            bounds = step.op.along_channels(step.out.dequantize(bound))
            limit = self.constant(f"{name}.{kind}.limit", bounds)
            exact = self.node("DequantizeLinear", [codes, scale, zero], f"{name}.{kind}.real")
            limited = self.node(kind, [exact, limit], f"{name}.{kind}")
            codes = self.node("QuantizeLinear", [limited, scale, zero], f"{name}.{kind}.codes")
        self.coded[name] = (codes, scale, zero)

    def decoded_input(self, step: Step, position: int = 0) -> str:
        """The real numbers of a step's input, decoded once more for each reader, as QDQ asks."""
        return self.decoded(step.op.inputs[position], input_name(step, position))

    def decoded(self, edge: str, name: str) -> str:
        """The real numbers of an edge, by this name where codes have to be decoded."""
        if edge not in self.coded:
            return edge
        return self.node("DequantizeLinear", [*self.coded[edge]], name)

    def reshaped(self, value: str, name: str, *shape: int) -> str:
        """A tensor in another shape; 0 keeps a dimension, -1 takes what is left."""
        size = self.constant(f"{name}.shape", torch.tensor(shape))
        return self.node("Reshape", [value, size], name)

    def parameters(self, layer: Layer, codes: Tensor, axis: int) -> list[str]:
        """The real weight, from its codes and one scale per output channel, and the real bias from
        its int32.

        A layer whose weights could overflow 16 bits on x86 without VNNI (see `weights.py`) is
        stored as uint8, code + 128 with zero point 128: the kernel used then is exact for every
        weight, but slower.
        """
        name = layer.op.name
        outputs = len(layer.codes)
        # ONNX Runtime pairs neighbours in the order (row, column, input channel): other pairs than
        # those that `weights.py` keeps small. Its depthwise kernel adds in 32 bits.
        depthwise = layer.codes.shape[1] == 1 and layer.op.attributes.get("groups") == outputs
        zero = torch.tensor(0, dtype=torch.int8)
        if not depthwise and not pairs_fit(layer.codes.movedim(1, -1).flatten(1)):
            zero = torch.tensor(128, dtype=torch.uint8)
        weight = [
            self.weight_codes(layer, (codes.short() + zero).to(zero.dtype)),
            self.constant(f"{name}.weight.scale", layer.weight_scale),
            self.constant(f"{name}.weight.zero_point", zero.expand(outputs)),
        ]
        bias = [
            self.constant(f"{name}.bias.codes", layer.bias),
            self.constant(f"{name}.unit", layer.unit.float()),
        ]
        weight = self.node("DequantizeLinear", weight, f"{name}.weight", axis=axis)
        return [weight, self.node("DequantizeLinear", bias, f"{name}.bias", axis=0)]

    def weight_codes(self, layer: Layer, codes: Tensor) -> str:
        """Codes of 4 bits or fewer go two or four to a byte; a Cast, which ONNX Runtime computes
        once while it loads the file, makes whole bytes of them for its kernels.
        """
        name = f"{layer.op.name}.weight.codes"
        for bits, narrow, opset in NARROW_TYPES:
            if layer.bits <= bits:
                packed = codes.numpy().astype(helper.tensor_dtype_to_np_dtype(narrow))
                self.constants[name] = numpy_helper.from_array(packed, f"{name}.packed")
                self.opset = max(self.opset, opset)
                return self.node("Cast", [f"{name}.packed"], name, to=TensorProto.INT8)
        return self.constant(name, codes)

    def conv(self, step: Layer) -> None:
        """One int8 convolution; a residual is added in float, before the one rounding."""
        name = step.op.name
        inputs = [self.decoded_input(step), *self.parameters(step, step.codes, axis=0)]
        product = f"{name}.product" if step.op.residual else name
        y = self.node("Conv", inputs, product, **attributes(step))
        if step.op.residual:
            y = self.node("Add", [y, self.decoded_input(step, 1)], name)
        self.encode(step, y)

    def linear(self, step: Layer) -> None:
        """One int8 matrix product; more dimensions than two are laid flat for it."""
        name = step.op.name
        x = self.decoded_input(step)
        parameters = self.parameters(step, step.codes.t(), axis=1)
        if len(step.op.shape) == 1:
            y = self.node("Gemm", [x, *parameters], name)
        else:
            x = self.reshaped(x, f"{name}.flat", -1, step.codes.shape[1])
            y = self.node("Gemm", [x, *parameters], f"{name}.product")
            y = self.reshaped(y, name, -1, *step.op.shape)
        self.encode(step, y)

    def add(self, step: Step) -> None:
        """A sum in float, between codes."""
        inputs = [self.decoded_input(step, position) for position in (0, 1)]
        self.encode(step, self.node("Add", inputs, step.op.name))

    def average_pool(self, step: Step) -> None:
        """A mean over windows; with dimensions of size 1 dropped where the network drops them."""
        name = step.op.name
        loses_dimensions = len(step.op.shape) != 3
        pool = f"{name}.pool" if loses_dimensions else name
        y = self.node("AveragePool", [self.decoded_input(step)], pool, **attributes(step))
        if loses_dimensions:
            y = self.reshaped(y, name, 0, *step.op.shape)
        self.encode(step, y)

    def clamp(self, step: Step) -> None:
        """A clamp alone is a quantization."""
        self.encode(step, self.decoded_input(step))

    def copy_codes(self, step: Step) -> None:
        """Codes move or are compared, none is computed."""
        name = step.op.name
        sources = [self.coded.get(edge, (edge,)) for edge in step.op.inputs]
        inputs = [source[0] for source in sources]
        if step.op.kind == "reshape":
            made = self.reshaped(inputs[0], name, 0, *step.op.shape)
        else:
            kind = {"max_pool": "MaxPool", "concat": "Concat"}[step.op.kind]
            made = self.node(kind, inputs, name, **attributes(step))
        if len(sources[0]) > 1:
            self.coded[name] = (made, *sources[0][1:])

    max_pool = concat = reshape = copy_codes

    def add_floats(self, steps: list[Step], shapes: dict[str, tuple[int, ...]]) -> None:
        """Take over what PyTorch's exporter writes of operations in float, for the opset of all
        that is in the graph already.
        """
        if not steps:
            return
        program = export_floats(steps, shapes, min(self.opset, LAST_CHANGE))
        exported = compose.add_prefix(program.model_proto, FLOAT).graph
        self.nodes.extend(exported.node)
        self.constants |= {constant.name: constant for constant in exported.initializer}

    def float(self, step: Step) -> None:
        """What PyTorch's exporter wrote, between the edges.

        Between codes ONNX Runtime would put int8 kernels of its own in its place: they quantize
        weights once more, with no regard to saturation, and miscount the last windows of an average
        with ceil_mode. A Clip prevents that.
        """
        low = self.constant(f"{FLOAT}low", torch.tensor(-3e38))
        high = self.constant(f"{FLOAT}high", torch.tensor(3e38))
        for position, edge in enumerate(step.op.inputs):
            value = self.decoded_input(step, position)
            name = FLOAT + input_name(step, position)
            if edge in self.coded:
                self.node("Clip", [value, low, high], name)
            else:
                self.node("Identity", [value], name)
        result = self.node("Identity", [f"{FLOAT}result of {step.op.name}"], step.op.name)
        self.encode(step, result)


def attributes(step: Step) -> dict[str, object]:
    """The attributes of an operation, as ONNX names them."""
    found = {ATTRIBUTES[key]: value for key, value in step.op.attributes.items()}
    if "pads" in found:
        found["pads"] = found["pads"] * 2  # at both ends
    return found
