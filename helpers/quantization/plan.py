"""What is to be done and how: a `Plan` is a folded network as a short list of operations, a
`Recipe` says how to round.

A graph says how the network was written; the plan says what an integer engine has to do. An
activation that follows an operation is that operation's `clamp`, and (for residual="fused") an
addition belongs to the convolution before it. Float network, quantized network and network in
training run through the same loop, `execute`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from helpers.quantization.affine import QuantizationError, code_range

INPUT = "input"  # the edge that the network's input travels on
HANDS_ON = ("reshape", "max_pool", "concat")  # their output has the codes of their inputs
Watch = Callable[[str, torch.Tensor], None] | None

CHOICES: dict[str, tuple] = {
    "observer": ("minmax", "percentile", "mse"),
    "weight_observer": ("minmax", "mse"),
}
CHOICES |= {"residual": ("fused", "separate"), "bias_correction": (None, "empirical")}
CHOICES |= {"rounding": ("nearest", "learned")}


@dataclass(frozen=True)
class Recipe:
    """How to quantize a network. It goes into the saved file.

    Attributes:
        weight_bits, layer_bits: 2 to 8, for all layers, and for single ones by name (a further call
            has its own).
        activation_bits: 2 to 8; activations are unsigned codes with a zero point.
        per_channel: one weight scale per output channel instead of one per layer.
        observer, weight_observer: how the range of an activation follows from calibration, and of
            weights below 8 bits.
        residual: "fused" adds the residual before the one rounding; "separate" rounds the
            convolution first.
        equalize, bias_correction, rounding: the repairs, see `channels.py` and `repairs.py`.
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

    to_json = dataclasses.asdict


@dataclass
class Op:
    """One operation.

    Attributes:
        name: of the operation and of the edge that carries its output.
        kind: one of `_FLOAT`.
        inputs: names of the edges it reads; a conv with two inputs adds the second one (the
            residual) to its output.
        weight, bias: float parameters of conv and linear; the bias is never None there.
        clamp: (low, high), applied last; either may be infinite, and high one number per channel.
        attributes: stride, padding, dilation, groups of a conv; kernel, stride, padding of a pool;
            dim of a concat.
        shape: of one output, without the batch.
        module: what computes a "float" operation.
        node: name of the graph's node whose value the edge carries.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    clamp: tuple[float, float | torch.Tensor] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    module: nn.Module | None = None
    node: str = ""

    @property
    def residual(self) -> str | None:
        """The edge that a convolution adds to its output, or None."""
        return self.inputs[1] if self.kind == "conv" and len(self.inputs) == 2 else None

    def along_channels(self, numbers: torch.Tensor) -> torch.Tensor:
        """Shape one number per channel so that it broadcasts against the output."""
        return numbers.reshape(-1, *[1] * (0 if self.kind == "linear" else len(self.shape) - 1))

    def run(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Compute the operation in float, and clamp the result."""
        y = _FLOAT[self.kind](self, *inputs)
        if self.clamp is None:
            return y
        low, high = self.clamp
        if isinstance(high, torch.Tensor):
            return y.clamp(min=low).minimum(self.along_channels(high.to(y)))
        return F.hardtanh(y, low, high)  # the same numbers as clamp, and a much faster way back


WINDOW = (
    "kernel",
    "stride",
    "padding",
    "dilation",
    "ceil_mode",
)  # attributes of a pool, as PyTorch takes them
_FLOAT: dict[str, Callable[..., torch.Tensor]] = {
    "conv": lambda op, x, *residual: sum(
        residual, F.conv2d(x, op.weight, op.bias, **op.attributes)
    ),
    "linear": lambda op, x: F.linear(x, op.weight, op.bias),
    "add": lambda op, x, y: x + y,
    # The dimensions of size 1 may be gone.
    "average_pool": lambda op, x: F.avg_pool2d(x, *map(op.attributes.get, WINDOW[:2])).reshape(
        len(x), *op.shape
    ),
    # In channels_last PyTorch counts the places of an image in the image's own type, which ends at
    # 255 for codes.
    "max_pool": lambda op, x: F.max_pool2d(x.contiguous(), *map(op.attributes.get, WINDOW)),
    "reshape": lambda op, x: x.reshape(x.shape[0], *op.shape),
    "concat": lambda op, *inputs: torch.cat(inputs, **op.attributes),
    "clamp": lambda op, x: x,
    # A copy, since it may write in place, and in the order that it was written for: it may call
    # view.
    "float": lambda op, *inputs: op.module(
        *(x.clone(memory_format=torch.contiguous_format) for x in inputs)
    ),
}


def execute(ops: list[Op], x: Any, compute: Callable[..., Any], watch: Watch = None) -> Any:
    """Run operations in order, let go of each edge after its last reader, and return the value of
    the last edge.

    `x` is the network's input; for the last operations of a network, what all edges before them
    carry, by name.
    """
    last_reader, edges = (
        {edge: op for op in ops for edge in op.inputs},
        {**x} if isinstance(x, dict) else {INPUT: x},
    )
    if watch:
        watch(INPUT, x)
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

    ops: list[Op]
    input_shape: tuple[int, ...]

    def __getitem__(self, name: str) -> Op:
        return {op.name: op for op in self.ops}[name]

    @property
    def layers(self) -> list[Op]:
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

    def readers(self, *edges: str) -> list[Op]:
        """The operations that read one of these edges."""
        return [op for op in self.ops if not set(edges).isdisjoint(op.inputs)]

    def tied(self, inputs: Callable[[Op], tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """For each edge those, in order, that it belongs with, if an output belongs with these
        inputs of its op.
        """
        groups = {edge: (edge,) for edge in self.shapes}
        for op in self.ops:
            for edge in inputs(op):
                together = tuple(
                    name for name in self.shapes if name in groups[edge] + groups[op.name]
                )
                groups |= dict.fromkeys(together, together)
        return groups

    def origins(self) -> dict[str, str]:
        """For each edge the first that has the same codes: some operations only hand codes on."""
        return {
            edge: tied[0]
            for edge, tied in self.tied(lambda op: op.inputs * (op.kind in HANDS_ON)).items()
        }

    @torch.no_grad()
    def run(self, x: torch.Tensor, watch: Watch = None) -> torch.Tensor:
        """Compute the network in float from normalised input; `watch` gets the name and the value
        of every edge.
        """
        return execute(self.ops, x, Op.run, watch)
