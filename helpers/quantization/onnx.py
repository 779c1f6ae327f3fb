"""Export to ONNX in the QDQ form: our integers and our scales, between QuantizeLinear and
DequantizeLinear.

    codes -> DequantizeLinear -> Conv(DequantizeLinear(weight), DequantizeLinear(bias)) ->
    QuantizeLinear -> codes

ONNX Runtime recognises such a group and replaces it by one int8 kernel (QLinearConv, QLinearAdd,
QGemm, ...). ReLU and ReLU6 need no node: quantization saturates where they do. Only a limit per
channel, left by equalization, becomes a Min of its own. An operation without an integer form is
written by PyTorch's own exporter, all of them in one go.

A residual that is added before the one rounding (residual="fused") has no QDQ form. Such a
convolution is left to a kernel in float, which gives the same codes, but is slower than
residual="separate".

A layer whose weights could overflow 16 bits on x86 without VNNI (see `weights.py`) is stored as
uint8, code + 128 with zero point 128: the kernel used then is exact for every weight, but slower.
Widths are rounded up to what ONNX Runtime computes fast (`channels.py`), and the file is tried out
(`verify.py`).
"""

import warnings
from graphlib import TopologicalSorter
from itertools import islice
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, compose, helper, numpy_helper
from torch import nn

from helpers.files import write_atomically
from helpers.quantization.affine import QuantizationError
from helpers.quantization.channels import widened
from helpers.quantization.integer import Layer, Step
from helpers.quantization.model import QuantizedModel
from helpers.quantization.plan import INPUT
from helpers.quantization.verify import verify_onnx
from helpers.quantization.weights import pairs_fit

OPSET = 18
BLOCK = 16  # channels that ONNX Runtime computes at a time
FLOAT = "in float: "  # begins the names of what PyTorch's exporter wrote


def to_onnx(model: QuantizedModel, path: str | Path, block: int = BLOCK) -> Path:
    """Write a quantized network as an ONNX file that takes normalised float32 images (N, C, H, W)
    and gives logits.

    Widths become multiples of `block` where they may, with channels that nobody reads; 1 leaves
    them as they are.

    Example:
        to_onnx(quantize(model, images, Recipe(residual="separate")), "int8.onnx")
    """
    if not isinstance(model, QuantizedModel):
        raise QuantizationError(
            f"to_onnx writes quantized networks, not a {type(model).__name__}: quantize it first"
        )
    graph, wide = _Graph(), widened(model, block)
    graph.put(wide.input, INPUT)
    if more := sum(wide.input.op.shape) - sum(
        model.input.op.shape
    ):  # in channels; there may be no dimension at all
        pads, (codes, *grid) = (
            graph.constant(f"{INPUT}.pads", torch.tensor([0] * 5 + [more, 0, 0])),
            graph.coded[INPUT],
        )
        graph.coded[INPUT] = (graph.node("Pad", [codes, pads], f"{INPUT}.widened"), *grid)
    if floats := [step for step in wide.steps.values() if step.op.kind == "float"]:
        exported = compose.add_prefix(_exported(floats, wide.plan.shapes).model_proto, FLOAT).graph
        graph.nodes.extend(exported.node)
        graph.constants |= {constant.name: constant for constant in exported.initializer}
    for step in wide.steps.values():
        getattr(graph, step.op.kind)(step)
    output = graph.real(step.op.name, "output" if "output" not in graph.coded else "output.real")
    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", *model.input_shape])
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", *step.op.shape])
    written = helper.make_graph(
        graph.in_order(), "quantized", [image], [result], list(graph.constants.values())
    )
    opset = helper.make_opsetid("", OPSET)
    proto = helper.make_model_gen_version(written, opset_imports=[opset], producer_name="helpers")
    verify_onnx(proto.SerializeToString(), model)
    return write_atomically(Path(path), proto.SerializeToString())


class _Graph:
    """An ONNX graph under construction, with a method for each kind of operation."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.coded: dict[
            str, tuple[str, str, str]
        ] = {}  # for each edge the names of its codes, scale and zero point

    def node(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        """Add a node whose one output has the node's name."""
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: torch.Tensor) -> str:
        self.constants[name] = numpy_helper.from_array(
            value.detach().cpu().contiguous().numpy(), name
        )
        return name

    def in_order(self) -> list[onnx.NodeProto]:
        """The nodes, each behind those whose results it reads."""
        makers = {name: i for i, node in enumerate(self.nodes) for name in node.output}
        needs = {
            i: [makers[name] for name in node.input if name in makers]
            for i, node in enumerate(self.nodes)
        }
        return [self.nodes[i] for i in TopologicalSorter(needs).static_order()]

    def put(self, step: Step, value: str) -> None:
        """Quantize a float tensor to the codes of a step's output, if it has any; clamp what
        saturation does not.
        """
        if not step.coded:
            return
        name = step.op.name
        scale = self.constant(f"{name}.scale", step.out_scale.reshape(()))
        zero = self.constant(f"{name}.zero_point", step.out_zero_point.to(torch.uint8).reshape(()))
        codes = self.node("QuantizeLinear", [value, scale, zero], f"{name}.codes")
        for kind, bound, end in (("Max", step.first, 0), ("Min", step.last, 255)):
            if (
                bound != end
                # in float, since ONNX Runtime has no Min for uint8; every bound is exactly a code
            ).any():
                limit = self.constant(
                    f"{name}.{kind}.limit", step.op.along_channels(step.out.dequantize(bound))
                )
                exact = self.node("DequantizeLinear", [codes, scale, zero], f"{name}.{kind}.real")
                limited = self.node(kind, [exact, limit], f"{name}.{kind}")
                codes = self.node("QuantizeLinear", [limited, scale, zero], f"{name}.{kind}.codes")
        self.coded[name] = (codes, scale, zero)

    def get(self, step: Step, position: int = 0) -> str:
        """The real numbers of an input; a node for each reader, as the QDQ form wants it."""
        return self.real(step.op.inputs[position], input_name(step, position))

    def real(self, edge: str, name: str) -> str:
        """The real numbers of an edge, under this name if they have to be decoded."""
        return (
            self.node("DequantizeLinear", [*self.coded[edge]], name) if edge in self.coded else edge
        )

    def reshaped(self, value: str, name: str, *shape: int) -> str:
        return self.node(
            "Reshape", [value, self.constant(f"{name}.shape", torch.tensor(shape))], name
        )

    def parameters(self, layer: Layer, codes: torch.Tensor, axis: int) -> list[str]:
        """The real weight, from its codes and one scale per output channel, and the real bias from
        its int32.
        """
        # ONNX Runtime pairs neighbours in the order (row, column, input channel), other ones than
        # `weights.py` keeps small. Its kernel for depthwise convolutions adds in 32 bits.
        depthwise = layer.codes.shape[1] == 1 and layer.op.attributes.get("groups") == len(
            layer.codes
        )
        exact, name = depthwise or pairs_fit(layer.codes.movedim(1, -1).flatten(1)), layer.op.name
        shift, kind = (0, torch.int8) if exact else (128, torch.uint8)
        parts = {"codes": (codes.short() + shift).to(kind), "scale": layer.weight_scale}
        parts["zero_point"] = torch.full((len(layer.weight_scale),), shift, dtype=kind)
        weight = [self.constant(f"{name}.weight.{part}", value) for part, value in parts.items()]
        bias = [
            self.constant(f"{name}.bias.codes", layer.bias),
            self.constant(f"{name}.unit", layer.unit.float()),
        ]
        weight = self.node("DequantizeLinear", weight, f"{name}.weight", axis=axis)
        return [weight, self.node("DequantizeLinear", bias, f"{name}.bias", axis=0)]

    def conv(self, step: Layer) -> None:
        """One int8 convolution; a residual is added in float, before the one rounding."""
        name, inputs = step.op.name, [self.get(step), *self.parameters(step, step.codes, axis=0)]
        y = self.node(
            "Conv", inputs, f"{name}.product" if step.op.residual else name, **attributes(step)
        )
        self.put(step, self.node("Add", [y, self.get(step, 1)], name) if step.op.residual else y)

    def linear(self, step: Layer) -> None:
        """One int8 matrix product; more dimensions than two are laid flat for it."""
        name, x = step.op.name, self.get(step)
        parameters = self.parameters(step, step.codes.t(), axis=1)
        if len(step.op.shape) == 1:
            return self.put(step, self.node("Gemm", [x, *parameters], name))
        flat = self.reshaped(x, f"{name}.flat", -1, step.codes.shape[1])
        y = self.node("Gemm", [flat, *parameters], f"{name}.product")
        return self.put(step, self.reshaped(y, name, -1, *step.op.shape))

    def add(self, step: Step) -> None:
        self.put(step, self.node("Add", [self.get(step, 0), self.get(step, 1)], step.op.name))

    def average_pool(self, step: Step) -> None:
        """A mean over windows; with dimensions of size 1 dropped where the network drops them."""
        name, whole = step.op.name, len(step.op.shape) == 3
        y = self.node(
            "AveragePool", [self.get(step)], name if whole else f"{name}.pool", **attributes(step)
        )
        self.put(step, y if whole else self.reshaped(y, name, 0, *step.op.shape))

    def clamp(self, step: Step) -> None:
        """A clamp of its own is a quantization."""
        self.put(step, self.get(step))

    def hand_on(self, step: Step) -> None:
        """Codes move or are compared, none is computed."""
        given, name = [self.coded.get(edge, (edge,)) for edge in step.op.inputs], step.op.name
        shape = (
            [self.constant(f"{name}.shape", torch.tensor([0, *step.op.shape]))]
            if step.op.kind == "reshape"
            else []
        )
        kind = {"max_pool": "MaxPool", "concat": "Concat", "reshape": "Reshape"}[step.op.kind]
        made = self.node(kind, [*(names[0] for names in given), *shape], name, **attributes(step))
        if len(given[0]) > 1:
            self.coded[name] = (made, *given[0][1:])

    max_pool = concat = reshape = hand_on

    def float(self, step: Step) -> None:
        """What PyTorch's exporter wrote, between the edges.

        Between codes ONNX Runtime would turn it into int8 kernels of its own: it quantizes weights
            once more, with no
        regard to saturation, and miscounts the last windows of an average with ceil_mode. A Clip
        keeps it from that.
        """
        ends = [
            self.constant(f"{FLOAT}{name}", torch.tensor(end))
            for name, end in (("low", -3e38), ("high", 3e38))
        ]
        for position, edge in enumerate(step.op.inputs):
            kind, limits = ("Clip", ends) if edge in self.coded else ("Identity", [])
            self.node(kind, [self.get(step, position), *limits], FLOAT + input_name(step, position))
        result = self.node("Identity", [f"{FLOAT}result of {step.op.name}"], step.op.name)
        self.put(step, result)


class _Floats(nn.Module):
    """Operations side by side, for one export; each takes as many inputs as it has."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.operations, self.counts = (
            nn.ModuleList(s.module for s in steps),
            [len(s.op.inputs) for s in steps],
        )

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = iter(inputs)
        return tuple(
            run(*islice(given, count))
            for run, count in zip(self.operations, self.counts, strict=True)
        )


def _exported(steps: list[Step], shapes: dict[str, tuple[int, ...]]) -> torch.onnx.ONNXProgram:
    """What PyTorch's exporter makes of operations in float; an error says which of them it does not
    know.
    """
    inputs = {input_name(step, i): edge for step in steps for i, edge in enumerate(step.op.inputs)}
    outputs, examples = (
        [step.op.name for step in steps],
        [torch.zeros(2, *shapes[edge]) for edge in inputs.values()],
    )
    names = {"input_names": [*inputs], "output_names": [f"result of {name}" for name in outputs]}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporter's notes to itself
            free = (({0: torch.export.Dim.AUTO},) * len(examples),)  # the number of images
            program = torch.export.export(
                _Floats(steps).eval(), tuple(examples), dynamic_shapes=free
            )
            return torch.onnx.export(
                program, opset_version=OPSET, dynamo=True, verbose=False, **names
            )
    except Exception as error:  # whatever it does not know
        for step in steps if len(steps) > 1 else ():
            _exported([step], shapes)
        while error.__cause__:
            error = error.__cause__
        reason = " ".join(str(error).split())[:200]
        raise QuantizationError(
            f"{', '.join(outputs)}: it stayed in float, and has no ONNX form: {reason}"
        ) from error


def input_name(step: Step, position: int) -> str:
    """What an input of an operation is called in the file."""
    return f"{step.op.name}.input{position}"


def attributes(step: Step) -> dict[str, object]:
    """What ONNX calls the attributes of an operation."""
    names = {
        "kernel": "kernel_shape",
        "stride": "strides",
        "dilation": "dilations",
        "padding": "pads",
    }
    names |= {"groups": "group", "ceil_mode": "ceil_mode", "dim": "axis"}
    twice = {
        key: value * 2 for key, value in step.op.attributes.items() if key == "padding"
    }  # at both ends
    return {names[key]: value for key, value in {**step.op.attributes, **twice}.items()}
