"""What is to be done and how: a `Plan` is a folded network as a short list of operations, a
`Recipe` says how to round.

A graph says how the network was written; the plan says what an integer engine has to do. The plan
of the shipped network `tiny` has twelve operations:

    name                 kind          inputs                             clamp   shape
    stem.0               conv          input                              0, inf  16, 32, 32
    block1.conv1         conv          stem.0                             0, inf  16, 32, 32
    block1.conv2         conv          block1.conv1, stem.0               0, inf  16, 32, 32
    ...
    pool                 average_pool  block3.downsample.0                        64, 1, 1
    flatten              reshape       pool                                       64
    classifier           linear        flatten                                    10

BatchNorm is folded, a ReLU is the clamp of the operation before it, and the shortcut of block1 is
the second input of block1.conv2, which adds it before the one rounding. What an operation computes
travels on an *edge* of the same name. Calibrated on 64 images, the codes on three edges mean

    input         0.01614 * (code - 123)
    stem.0        0.04661 * (code - 0)
    block1.conv2  0.06671 * (code - 0)

At one place of the first channel, block1.conv2 has the int32 sum 9133 for a test image, and the
shortcut has the code 3. With their factors the output's code is

    round(9133 * 0.001861 + 3 * 0.6987) + 0 = 19        the second factor is 0.04661 / 0.06671

Float network, quantized network and network in training run through the same loop, `execute`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.quantization.affine import QuantizationError, code_range

INPUT = "input"  # the edge that the network's input travels on
KEEPS_CODES = ("reshape", "max_pool", "concat")  # their output has the codes of their inputs
KEEPS_CHANNELS = ("add", "average_pool", "max_pool", "clamp")  # they mix no channels
Watch = Callable[[str, Tensor], None] | None

CHOICES: dict[str, tuple] = {
    "observer": ("minmax", "percentile", "mse"),
    "weight_observer": ("minmax", "mse"),
    "residual": ("fused", "separate"),
    "bias_correction": (None, "empirical"),
    "rounding": ("nearest", "learned"),
    "per_channel": (True, False),
    "equalize": (True, False),
}


@dataclass(frozen=True)
class Recipe:
    """How to quantize a network. It goes into the saved file.

    Attributes:
        weight_bits, layer_bits: 2 to 8, for all layers, and for single ones by name. A layer that
            is called twice has two names.
        activation_bits: 2 to 8; activations are unsigned codes with a zero point.
        per_channel: one weight scale per output channel instead of one per layer.
        observer: how calibration chooses the range of an activation.
        weight_observer: how the range of weights is chosen; at 8 bits it matters only in layers
            whose pairs of weights do not fit (`weights.py`).
        residual: "fused" adds the residual before the one rounding; "separate" rounds the
            convolution first.
        equalize, bias_correction, rounding: the repairs, see `equalization.py` and `repairs.py`.
            "learned" rounding leaves means to bias correction: use both.
    """

    weight_bits: int = 8
    layer_bits: Mapping[str, int] = field(default_factory=dict)
    activation_bits: int = 8
    per_channel: bool = True
    observer: str = "mse"
    weight_observer: str = "minmax"
    residual: str = "fused"
    equalize: bool = False
    bias_correction: str | None = None
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        for bits in (self.weight_bits, self.activation_bits, *self.layer_bits.values()):
            code_range(bits, signed=True)
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise QuantizationError(
                    f"Recipe.{name}: expected one of {allowed}, got {getattr(self, name)!r}"
                )

    def bits_of(self, layer: str) -> int:
        """The weight bits of one layer."""
        return self.layer_bits.get(layer, self.weight_bits)

    as_dict = dataclasses.asdict


@dataclass
class PlanOp:
    """One operation.

    Attributes:
        name: of the operation and of the edge that carries its output.
        kind: one of `_FLOAT`.
        inputs: names of the edges it reads; a conv with two inputs adds the second one (the
            residual) to its output.
        weight, bias: float parameters of conv and linear; the bias is never None there.
        clamp: (low, high), applied last; either may be infinite, and high one number per channel.
        attributes: stride, padding, dilation, groups of a conv; kernel and stride of a pool, of
            a max_pool also padding, dilation, ceil_mode; dim of a concat.
        shape: of one output, without the batch.
        module: what computes a "float" operation.
        node: name of the graph's node whose value the edge carries.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    weight: Tensor | None = None
    bias: Tensor | None = None
    clamp: tuple[float, float | Tensor] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    module: nn.Module | None = None
    node: str = ""

    @property
    def residual(self) -> str | None:
        """The edge that a convolution adds to its output, or None."""
        return self.inputs[1] if self.kind == "conv" and len(self.inputs) == 2 else None

    def along_channels(self, numbers: Tensor) -> Tensor:
        """Shape one number per channel so that it broadcasts against the output."""
        behind = 0 if self.kind == "linear" else len(self.shape) - 1
        return numbers.reshape(-1, *[1] * behind)

    def run(self, *inputs: Tensor) -> Tensor:
        """Compute the operation in float, and clamp the result."""
        y = _FLOAT[self.kind](self, *inputs)
        if self.clamp is None:
            return y
        low, high = self.clamp
        if isinstance(high, Tensor):
            return y.clamp(min=low).minimum(self.along_channels(high.to(y)))
        return F.hardtanh(y, low, high)  # as clamp, with a much faster backward pass


# Attributes of a max_pool, in the order of PyTorch's arguments.
WINDOW = ("kernel", "stride", "padding", "dilation", "ceil_mode")


def _average_pool(op, x):
    y = F.avg_pool2d(x, op.attributes["kernel"], op.attributes["stride"])
    return y.reshape(len(x), *op.shape)  # the dimensions of size 1 may be gone


def _max_pool(op, x):
    # Contiguous: in channels_last PyTorch keeps positions within an image in the image's own type,
    # which for codes ends at 255.
    return F.max_pool2d(x.contiguous(), *(op.attributes[name] for name in WINDOW))


def _float_module(op, *inputs):
    # It may write in place, and it may call view: so it gets copies, contiguous ones.
    return op.module(*(x.clone(memory_format=torch.contiguous_format) for x in inputs))


_FLOAT: dict[str, Callable[..., Tensor]] = {
    "conv": lambda op, x, *more: sum(more, F.conv2d(x, op.weight, op.bias, **op.attributes)),
    "linear": lambda op, x: F.linear(x, op.weight, op.bias),
    "add": lambda op, x, y: x + y,
    "average_pool": _average_pool,
    "max_pool": _max_pool,
    "reshape": lambda op, x: x.reshape(x.shape[0], *op.shape),
    "concat": lambda op, *inputs: torch.cat(inputs, **op.attributes),
    "clamp": lambda op, x: x,
    "float": _float_module,
}


def execute(
    ops: list[PlanOp], edges: dict[str, Any], compute: Callable[..., Any], watch: Watch = None
) -> Any:
    """Run operations in order and return what the last one computes. A value is let go of after its
    last reader.

    Args:
        edges: what the edges before the first operation carry: of a whole network, {INPUT: x}.
        compute: gets an operation and the values of its inputs.
        watch: gets the name and the value of every edge.
    """
    last_reader = {edge: op for op in ops for edge in op.inputs}
    edges = dict(edges)
    if watch:
        for name, value in edges.items():
            watch(name, value)
    for op in ops:
        edges[op.name] = compute(op, *map(edges.__getitem__, op.inputs))
        if watch:
            watch(op.name, edges[op.name])
        for name in op.inputs:
            if last_reader[name] is op:
                edges.pop(name, None)
    return edges[ops[-1].name]


@dataclass
class Plan:
    """The operations in the order in which they run; the last one makes the network's output."""

    ops: list[PlanOp]
    input_shape: tuple[int, ...]

    def __getitem__(self, name: str) -> PlanOp:
        return {op.name: op for op in self.ops}[name]

    @property
    def layers(self) -> list[PlanOp]:
        """The operations that have weights."""
        return [op for op in self.ops if op.weight is not None]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every edge, without the batch."""
        return {INPUT: self.input_shape} | {op.name: op.shape for op in self.ops}

    @property
    def output(self) -> str:
        """The edge that carries the network's output."""
        return self.ops[-1].name

    def readers(self, *edges: str) -> list[PlanOp]:
        """The operations that read one of these edges."""
        return [op for op in self.ops if not set(edges).isdisjoint(op.inputs)]

    def tied(self, alike: Callable[[PlanOp], Iterable[str]]) -> dict[str, tuple[str, ...]]:
        """Join edges into groups: for each edge its group, in the order of the plan.

        Example: in x -> relu -> y -> linear -> z, where relu alone joins its input to its output, x
        and y have the group (x, y), and z has (z,).

        Args:
            alike: says for an operation which of its inputs belong to the group of its output.
        """
        groups = {edge: (edge,) for edge in self.shapes}
        for op in self.ops:
            for edge in alike(op):
                both = groups[edge] + groups[op.name]
                joined = tuple(name for name in self.shapes if name in both)
                groups |= dict.fromkeys(joined, joined)
        return groups

    def tied_by(self, *kinds: str) -> dict[str, tuple[str, ...]]:
        """The groups where operations of these kinds join all their inputs to their output."""
        return self.tied(lambda op: op.inputs if op.kind in kinds else ())

    def origins(self) -> dict[str, str]:
        """For each edge the first one that shares its `Affine`."""
        return {edge: group[0] for edge, group in self.tied_by(*KEEPS_CODES).items()}

    def quantized_edges(self) -> list[str]:
        """The edges that carry codes, in the order of the plan.

        Two kinds of edges carry floats: those that only "float" operations touch, and the network's
        output if it is a sum without clamp and shortcut (of a layer, an addition, an average),
        reshaped or not.
        """
        coded = {edge for op in self.ops if op.kind != "float" for edge in (op.name, *op.inputs)}
        ends = self.tied_by("reshape")[self.output]
        last = next(op for op in self.ops if op.name in ends)
        adds_up = last.kind not in (*KEEPS_CODES, "clamp")
        if adds_up and last.clamp is None and last.residual is None:
            coded -= {*ends}
        return [edge for edge in self.shapes if edge in coded]

    @torch.no_grad()
    def run(self, x: Tensor, watch: Watch = None) -> Tensor:
        """Compute the network in float from normalised input; `watch` as in `execute`."""
        return execute(self.ops, {INPUT: x}, PlanOp.run, watch)
