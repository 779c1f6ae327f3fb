"""Export to ONNX in the QDQ form: our integers and our scales, between QuantizeLinear and DequantizeLinear.

    codes -> DequantizeLinear -> Conv(DequantizeLinear(weight), DequantizeLinear(bias)) -> QuantizeLinear -> codes

ONNX Runtime recognises such a group and replaces it by one int8 kernel (QLinearConv, QLinearAdd, QGemm, ...). ReLU and
ReLU6 need no node: quantization saturates where they do. Only a limit per channel, left by equalization, becomes a Min
of its own. An operation without an integer form is written by PyTorch's own exporter, all of them in one go.

A residual that is added before the one rounding (residual="fused") has no QDQ form. Such a convolution is written with
ConvInteger, whose int32 sums are scaled and added in float: exact, but slower than residual="separate".

A layer whose weights could overflow 16 bits on x86 without VNNI (see `weights.py`) is stored as uint8, code + 128 with
zero point 128: the kernel used then is exact for every weight, but slower. In MobileNetV2 that is the stem alone.

Widths are rounded up to what ONNX Runtime computes fast, with channels of zeros (`_widened`).
"""

import copy
import warnings
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from helpers.files import write_atomically
from helpers.quantization.affine import QuantizationError
from helpers.quantization.integer import Layer, Step
from helpers.quantization.model import QuantizedModel
from helpers.quantization.plan import INPUT, Op, Plan
from helpers.quantization.weights import PAIR_LIMIT, pair_sums

FREE = {0: torch.export.Dim.AUTO}  # the number of images
OPSET = 18
BLOCK = 16  # channels that ONNX Runtime computes at a time
MOST_OFF = 0.05  # a code may round the other way at a tie
IR_VERSION = 8  # the one that belongs to the opset
# Between codes ONNX Runtime would turn these into int8 kernels of its own: it quantizes the weights once more, with no
# regard to saturation, and miscounts the last windows of an average with ceil_mode.
FLOAT_ALONE = {"AveragePool", "Conv", "ConvTranspose"}


class ExportError(QuantizationError):
    """A network that cannot be written as ONNX as asked."""


def to_onnx(model: QuantizedModel, path: str | Path, block: int = BLOCK) -> Path:
    """Write a quantized network as an ONNX file that takes normalised float32 images (N, C, H, W) and gives logits.

    Widths become multiples of `block` where they may, with channels that nobody reads; 1 leaves them as they are.

    Example:
        to_onnx(quantize(model, images, Recipe(residual="separate")), "int8.onnx")
    """
    if not isinstance(model, QuantizedModel):
        found = type(model).__name__
        raise ExportError(f"to_onnx writes quantized networks, not a {found}: quantize it first")
    graph, wide = _Graph(), _widened(model, block)
    graph.put(wide.input, INPUT)
    if wide.float_layers:
        graph.add_floats(wide)
    for step in wide.steps.values():
        getattr(graph, step.op.kind)(step)
    output = graph.real(step.op.name, "output")
    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", *model.input_shape])
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", *step.op.shape])
    written = helper.make_graph(graph.in_order(), "quantized", [image], [result], list(graph.constants.values()))
    opset = helper.make_opsetid("", OPSET)
    proto = helper.make_model(written, opset_imports=[opset], ir_version=IR_VERSION, producer_name="helpers")
    return write_atomically(Path(path), _checked(proto.SerializeToString(), model))


def _widened(model: QuantizedModel, block: int) -> QuantizedModel:
    """The same network, its widths rounded up to multiples of `block` where that is possible; no code changes by it.

    Odd widths cost ONNX Runtime more time than the next multiple: a network pruned to a fifth was slower than the dense
    one. What a new channel holds does not matter, since all weights that read it are 0.
    """
    model = copy.deepcopy(model)
    ops = [step.op for step in model.steps.values()]
    width = {INPUT: model.input_shape[0]} | {op.name: (*op.shape, 1)[0] for op in ops}
    as_wide = {op.name: _as_wide(op, width) for op in ops}
    together = Plan(ops, model.input_shape).tied(lambda op: as_wide[op.name] or ())
    rigid = [edge for op in ops if as_wide[op.name] is None for edge in (op.name, *op.inputs)]
    fixed = {other for edge in (INPUT, ops[-1].name, *rigid) for other in together[edge]}
    factor = dict.fromkeys(width, Fraction(1))  # how much wider an edge gets
    for step, op in zip(model.steps.values(), ops, strict=True):
        own, depthwise = width[op.name], op.attributes.get("groups", 1) > 1
        if op.name not in fixed:
            tied = as_wide[op.name]
            factor[op.name] = factor[tied[0]] if tied else Fraction(-(-own // block) * block, own)
        more = int(own * factor[op.name]) - own
        if isinstance(step, Layer):
            columns = 0 if depthwise else int(step.weight.shape[1] * (factor[op.inputs[0]] - 1))
            step.weight = F.pad(step.weight, (*[0, 0] * (step.weight.ndim - 2), 0, columns, 0, more))
            step.bias = F.pad(step.bias, (0, more))
        if more:
            op.shape = (own + more, *op.shape[1:])
            op.attributes |= {"groups": own + more} if depthwise else {}
            last_again = torch.arange(own + more).clamp(max=own - 1)
            for name in [name for name in ("last", "weight_scale", "unit") if hasattr(step, name)]:
                setattr(step, name, getattr(step, name)[last_again])
    return model


def _as_wide(op: Op, width: dict[str, int]) -> tuple[str, ...] | None:
    """The inputs that are as wide as the output, or as a fixed part of it; None where no width may change."""
    own = width[op.name]
    same = all(count == own for count in (*map(width.get, op.inputs), op.attributes.get("groups", own)))
    if op.kind == "conv" and op.attributes["groups"] == 1:
        return op.inputs[1:]
    if op.kind == "linear" and len(op.shape) == 1:
        return ()
    if op.kind == "reshape" and len(op.shape) == 1:  # flat, a channel's pixels side by side
        return op.inputs
    return op.inputs if op.kind in ("conv", "add", "average_pool", "max_pool", "clamp") and same else None


class _Floats(nn.Module):
    """All operations without an integer form side by side, for one export; each takes as many inputs as it has."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.operations, self.counts = nn.ModuleList(s.module for s in steps), [len(s.op.inputs) for s in steps]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = iter(inputs)
        return tuple(run(*islice(given, count)) for run, count in zip(self.operations, self.counts, strict=True))


class _Graph:
    """An ONNX graph under construction, with a method for each kind of operation."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.coded: dict[str, tuple[str, str, str]] = {}  # for each edge the names of its codes, scale and zero point

    def node(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        """Add a node whose one output has the node's name."""
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: torch.Tensor | np.ndarray) -> str:
        """Add a constant."""
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    def add_floats(self, model: QuantizedModel) -> None:
        """Add what PyTorch's exporter writes for the operations that stayed in float."""
        shapes = {INPUT: model.input_shape} | {step.op.name: step.op.shape for step in model.steps.values()}
        steps = [step for step in model.steps.values() if step.op.kind == "float"]
        edges = {input_name(step, i): edge for step in steps for i, edge in enumerate(step.op.inputs)}
        examples = [torch.zeros(2, *shapes[edge]) for edge in edges.values()]
        exported = _exported(steps, examples, list(edges))
        written, own = exported.model_proto.graph, {name: name for name in ("", *edges)}
        own |= {f"result of {name}": name for name in model.float_layers}
        for node in written.node:
            if node.op_type in FLOAT_ALONE:
                given = [name for name in node.input if name in edges]
                apart = {name: self.apart(name) for name in given}
                node.input[:] = [apart.get(name, name) for name in node.input]
                own |= {name: name for name in apart.values()}
            for names in (node.input, node.output):
                names[:] = [own.get(name, f"float.{name}") for name in names]
            node.name = f"float.{node.name}"
        self.nodes.extend(written.node)
        for constant in written.initializer:
            constant.name = f"float.{constant.name}"
            self.constants[constant.name] = constant

    def apart(self, edge: str) -> str:
        """The same numbers behind a node that keeps ONNX Runtime from merging what stands on its two sides."""
        bounds = [self.constant(f"float.{name}", np.float32(end)) for name, end in (("low", -3e38), ("high", 3e38))]
        return self.node("Clip", [edge, *bounds], f"{edge}.apart")

    def in_order(self) -> list[onnx.NodeProto]:
        """The nodes, each behind those whose results it reads."""
        ordered, known, nodes = [], {"", INPUT, *self.constants}, self.nodes
        while nodes:
            ordered += (ready := [node for node in nodes if known.issuperset(node.input)])
            known.update(name for node in ready for name in node.output)
            nodes = [node for node in nodes if not known.issuperset(node.output)]
        return ordered

    def put(self, step: Step, value: str) -> None:
        """Quantize a float tensor to the codes of a step's output, if it has any; clamp what saturation does not."""
        if not step.coded:
            return
        name = step.op.name
        scale = self.constant(f"{name}.scale", step.out_scale.reshape(()))
        zero = self.constant(f"{name}.zero_point", step.out_zero_point.to(torch.uint8).reshape(()))
        codes = self.node("QuantizeLinear", [value, scale, zero], f"{name}.codes")
        for kind, bound, end in (("Max", step.first, 0), ("Min", step.last, 255)):
            if (bound != end).any():  # in float, since ONNX Runtime has no Min for uint8; every bound is exactly a code
                limit = self.constant(f"{name}.{kind}.limit", step.op.along_channels(step.out.dequantize(bound)))
                exact = self.node("DequantizeLinear", [codes, scale, zero], f"{name}.{kind}.real")
                limited = self.node(kind, [exact, limit], f"{name}.{kind}")
                codes = self.node("QuantizeLinear", [limited, scale, zero], f"{name}.{kind}.codes")
        self.coded[name] = (codes, scale, zero)

    def get(self, step: Step, position: int = 0) -> str:
        """The real numbers of an input; a node for each reader, as the QDQ form wants it."""
        return self.real(step.op.inputs[position], input_name(step, position))

    def real(self, edge: str, name: str) -> str:
        """The real numbers of an edge, under this name if they have to be decoded."""
        return self.node("DequantizeLinear", [*self.coded[edge]], name) if edge in self.coded else edge

    def hand_on(self, step: Step, kind: str, *more: str, **attributes: object) -> None:
        """Codes move or are compared, none is computed."""
        given = [self.coded.get(edge, (edge,)) for edge in step.op.inputs]
        made = self.node(kind, [*(names[0] for names in given), *more], step.op.name, **attributes)
        if len(given[0]) > 1:
            self.coded[step.op.name] = (made, *given[0][1:])

    def reshaped(self, value: str, name: str, *shape: int) -> str:
        """A Reshape node."""
        return self.node("Reshape", [value, self.constant(f"{name}.shape", np.array(shape, np.int64))], name)

    def weight_codes(self, layer: Layer, codes: torch.Tensor) -> tuple[str, str]:
        """A weight's codes and its zero point; with zero point 128 they are stored as uint8."""
        shift, name = weight_zero_point(layer), layer.op.name
        kind = np.uint8 if shift else np.int8
        stored = (codes.cpu().numpy().astype(np.int16) + shift).astype(kind)
        zero = self.constant(f"{name}.weight.zero_point", np.array(shift, kind))
        return self.constant(f"{name}.weight.codes", stored), zero

    def parameters(self, layer: Layer, codes: torch.Tensor, axis: int) -> list[str]:
        """The real weight, from its codes and one scale per output channel, and the real bias from its int32."""
        name = layer.op.name
        stored, zero = self.weight_codes(layer, codes)
        zeros = numpy_helper.to_array(self.constants[zero]).repeat(len(layer.weight_scale))  # the same for each channel
        parts = [stored, self.constant(f"{name}.weight.scale", layer.weight_scale), self.constant(zero, zeros)]
        units = [self.constant(f"{name}.bias.codes", layer.bias), self.constant(f"{name}.unit", layer.unit.float())]
        weight = self.node("DequantizeLinear", parts, f"{name}.weight", axis=axis)
        return [weight, self.node("DequantizeLinear", units, f"{name}.bias", axis=0)]

    def float(self, step: Step) -> None:
        """What `add_floats` wrote, between the edges; an edge without codes only gets the name that it has there."""
        for position, edge in enumerate(step.op.inputs):
            if self.get(step, position) == edge:
                self.node("Identity", [edge], input_name(step, position))
        self.put(step, step.op.name)

    def conv(self, step: Layer) -> None:
        """One int8 convolution; with a residual int32 sums, scaled and added in float, rounded once."""
        name, geometry = step.op.name, {**window(step), "group": step.op.attributes["groups"]}
        if not step.op.residual:
            inputs = [self.get(step), *self.parameters(step, step.weight, axis=0)]
            return self.put(step, self.node("Conv", inputs, name, **geometry))
        codes, _, zero = self.coded[step.op.inputs[0]]
        weight, weight_zero = self.weight_codes(step, step.weight)
        bias = self.constant(f"{name}.bias", step.bias.reshape(-1, 1, 1))
        unit = self.constant(f"{name}.unit", step.unit.float().reshape(-1, 1, 1))
        sums = self.node("ConvInteger", [codes, weight, zero, weight_zero], f"{name}.products", **geometry)
        sums = self.node("Add", [sums, bias], f"{name}.sums")
        real = self.node("Cast", [sums], f"{name}.float", to=TensorProto.FLOAT)
        real = self.node("Mul", [real, unit], f"{name}.real")
        return self.put(step, self.node("Add", [real, self.get(step, 1)], name))

    def linear(self, step: Layer) -> None:
        """One int8 matrix product; more dimensions than two are laid flat for it."""
        name, x = step.op.name, self.get(step)
        parameters = self.parameters(step, step.weight.t(), axis=1)
        if len(step.op.shape) == 1:
            return self.put(step, self.node("Gemm", [x, *parameters], name))
        flat = self.reshaped(x, f"{name}.flat", -1, step.weight.shape[1])
        y = self.node("Gemm", [flat, *parameters], f"{name}.product")
        return self.put(step, self.reshaped(y, name, -1, *step.op.shape))

    def add(self, step: Step) -> None:
        self.put(step, self.node("Add", [self.get(step, 0), self.get(step, 1)], step.op.name))

    def average_pool(self, step: Step) -> None:
        """A mean over windows; with dimensions of size 1 dropped where the network drops them."""
        name, whole = step.op.name, len(step.op.shape) == 3
        y = self.node("AveragePool", [self.get(step)], name if whole else f"{name}.pool", **window(step))
        self.put(step, y if whole else self.reshaped(y, name, 0, *step.op.shape))

    def clamp(self, step: Step) -> None:
        """A clamp of its own is a quantization."""
        self.put(step, self.get(step))

    def max_pool(self, step: Step) -> None:
        self.hand_on(step, "MaxPool", **window(step), ceil_mode=int(step.op.attributes["ceil_mode"]))

    def concat(self, step: Step) -> None:
        self.hand_on(step, "Concat", axis=step.op.attributes["dim"])

    def reshape(self, step: Step) -> None:
        shape = self.constant(f"{step.op.name}.shape", np.array([0, *step.op.shape], np.int64))
        self.hand_on(step, "Reshape", shape)


def _exported(steps: list[Step], examples: list[torch.Tensor], names: list[str]) -> torch.onnx.ONNXProgram:
    """What PyTorch's exporter makes of operations in float; an error says which of them it does not know."""
    outputs = [step.op.name for step in steps]
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporter's notes to itself
            dynamic = ((FREE,) * len(examples),)
            program = torch.export.export(_Floats(steps).eval(), tuple(examples), dynamic_shapes=dynamic)
            program, options = program.run_decompositions(INSTEAD), {"input_names": names}
            options["output_names"] = [f"result of {name}" for name in outputs]  # no names of the program's own
            return torch.onnx.export(program, opset_version=OPSET, dynamo=True, verbose=False, **options)
    except Exception as error:  # whatever it does not know
        for step in steps if len(steps) > 1 else ():
            _exported([step], [examples.pop(0) for _ in step.op.inputs], [])
        while error.__cause__:
            error = error.__cause__
        reason = " ".join(str(error).split())[:200]
        raise ExportError(f"{', '.join(outputs)}: it stayed in float, and has no ONNX form: {reason}") from error


# PyTorch's exporter drops the dimensions that a variance should keep, without a word.
VARIANCES = (torch.ops.aten.var.correction, torch.ops.aten.var.dim)
INSTEAD = dict.fromkeys(VARIANCES, lambda x, *args, **more: x.std(*args, **more).square())


def _checked(proto: bytes, model: QuantizedModel) -> bytes:
    """The file, if ONNX Runtime loads it and finds what the network finds in integers; else raises `ExportError`."""
    import onnxruntime

    options, integer, session = onnxruntime.SessionOptions(), copy.copy(model), None
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    left = f"; look at what stayed in float: {', '.join(model.float_layers)}" if model.float_layers else ""
    for count in (2, 1, 5) if left else (2,):  # what stayed in float may decide by the number of images
        shape, source = (count, *model.input_shape), model.input.out
        x = torch.randn(shape) if source is None else source.dequantize(torch.randint(*source.codes, shape))
        integer._mode = "integer"
        try:
            expected = integer(x)
        except Exception:
            continue  # the network does not take so many
        try:
            session = session or onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
            found = torch.from_numpy(session.run(None, {INPUT: x.numpy()})[0])
        except Exception as error:  # of many classes, all its own
            raise ExportError(f"ONNX Runtime does not run the file, which was not written: {error}{left}") from error
        integer._mode = "simulated"
        # In a deep network a difference grows; then the two modes are as far apart.
        allowed = max(MOST_OFF * expected.norm(), 2 * (integer(x) - expected).norm())
        if found.shape != expected.shape or not (found - expected).norm() <= allowed:
            reason = f"ONNX Runtime finds other numbers than the network for {count} images"
            raise ExportError(f"{reason}, so the file was not written{left}")
    return proto


def input_name(step: Step, position: int) -> str:
    """What an input of an operation is called in the file."""
    return f"{step.op.name}.input{position}"


def window(step: Step) -> dict[str, object]:
    """What ONNX calls the attributes of a window."""
    names = {"kernel": "kernel_shape", "stride": "strides", "dilation": "dilations"}
    geometry = {names[key]: value for key, value in step.op.attributes.items() if key in names}
    padding = step.op.attributes.get("padding", (0, 0))
    return {**geometry, "pads": (*padding, *padding)}


def weight_zero_point(layer: Layer) -> int:
    """0 (stored as int8) where ONNX Runtime's uint8 x int8 product is exact without VNNI, else 128 (uint8).

    Its kernel adds neighbouring products in 16 bits, in the order (row, column, input channel): other pairs than those
    that `weights.py` keeps small. Depthwise convolutions have a kernel of their own, which adds in 32 bits.
    """
    weight = layer.weight
    if weight.ndim == 4 and weight.shape[1] == 1 and weight.shape[0] == layer.op.attributes["groups"]:
        return 0
    in_order = weight.movedim(1, -1).flatten(1).to(torch.int16)
    return 128 if pair_sums(in_order).max() > PAIR_LIMIT else 0
