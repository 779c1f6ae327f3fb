"""Quantization-aware training: the network learns with the rounding it will have.

BatchNorm is folded first, so that the weights that are trained are the weights that are rounded. In the forward pass
each weight and each edge goes through

    v = x / s        code = clamp(round(v) + z, first, last)        x' = s (code - z)

Rounding has no useful slope, so it is given the slope 1 (the straight-through estimator), d x' / d x = 1 inside the
range and 0 outside. The step size s is learned as well; the chain rule gives, as in the LSQ paper,

    d x' / d s = round(v) - v inside,  first - z or last - z outside

times 1 / sqrt(values that share s * last), which keeps its steps in proportion to those of the weights. The bias is
rounded too, to whole units of input scale * weight scale, which is coarse when both have few bits.

After S. Esser et al., "Learned Step Size Quantization", arXiv:1902.08153. Zero points stay as calibrated.
"""

import dataclasses
from types import SimpleNamespace

import torch
from torch import nn

from helpers import training
from helpers.data import Cifar10
from helpers.quantization.affine import Affine, code_range, encode
from helpers.quantization.calibration import calibrate, check_images
from helpers.quantization.model import QuantizedModel
from helpers.quantization.plan import INPUT, Op, Plan, last_uses
from helpers.quantization.quantizer import assemble, make_plan
from helpers.quantization.recipe import Recipe
from helpers.quantization.weights import LayerWeights, encode_weights, pair_sums, per_row

__all__ = ["QatNetwork", "fake_quantize", "prepare", "train"]

CALIBRATION_IMAGES = 1024
SHORT = training.Config(epochs=2, lr=0.005, weight_decay=0.0, ema=0.99, distill=0.7, label_smoothing=0.0)


def train(
    model: nn.Module,
    cifar: Cifar10,
    recipe: Recipe,
    config: training.Config = SHORT,
    progress: bool = True,
) -> QuantizedModel:
    """Quantize a network and train it on, with its float self as the teacher.

    Args:
        model: the trained float network; it is not changed.
        cifar: the data; the first training images calibrate the ranges to start from.
        recipe: bits and form of the result.
        config: how to train; distill > 0 asks for the teacher.
        progress: show a bar.

    Returns:
        The quantized network, in mode "simulated".
    """
    network = prepare(model, cifar.split().train_images[:CALIBRATION_IMAGES], recipe)
    teacher = model if config.distill > 0 else None
    training.finetune(network, cifar, teacher=teacher, config=config, progress=progress)
    return network.convert()


def prepare(model: nn.Module, images: torch.Tensor, recipe: Recipe) -> "QatNetwork":
    """A network that computes with rounded weights and activations, and can be trained.

    Args:
        model: in eval mode; it is not changed.
        images: calibration images, uint8 or normalised.
        recipe: bits and form of the result.

    Example:
        network = prepare(model, cifar.train_images[:1024], Recipe(weight_bits=4))
        training.finetune(network, cifar, teacher=model, config=...)
        quantized = network.convert()
    """
    check_images(images, tuple(getattr(images, "shape", ()))[1:])
    plan = make_plan(model, tuple(images.shape[1:]), recipe)
    return QatNetwork(model, plan, calibrate(plan, images, recipe), encode_weights(plan, recipe), recipe)


class QatNetwork(nn.Module):
    """A plan with trainable weights, biases and step sizes."""

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        edges: dict[str, Affine],
        weights: dict[str, LayerWeights],
        recipe: Recipe,
    ) -> None:
        super().__init__()
        self.origin = SimpleNamespace(spec=getattr(model, "spec", None))  # how to rebuild the float network
        self.plan, self.recipe = plan, recipe
        self.layers = nn.ModuleDict({_key(op.name): QatLayer(op, weights[op.name], recipe) for op in plan.layers})
        self.coded_by = {edge: _origin(plan, edge) for edge in edges}
        self.edges = nn.ModuleDict({_key(e): QatEdge(edges[e]) for e in edges if self.coded_by[e] == e})
        for op in plan.layers:
            op.weight, op.bias = op.weight.detach(), op.bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of normalised images, with every rounding in place."""
        values = {INPUT: self._round(INPUT, x)}
        for op, done in zip(self.plan.ops, last_uses(self.plan.ops), strict=True):
            inputs = [values[edge] for edge in op.inputs]
            if _key(op.name) in self.layers:
                op = self.layers[_key(op.name)].rounded(op, self.edges[_key(self.coded_by[op.inputs[0]])].step_size())
            values[op.name] = self._round(op.name, op.run(*inputs))
            for edge in done:
                del values[edge]
        return values[self.plan.output]

    def convert(self) -> QuantizedModel:
        """The integer network that this one has learned to be."""
        plan = self.plan.copy()
        weights = {op.name: self.layers[_key(op.name)].convert() for op in plan.layers}
        edges = {edge: self.edges[_key(origin)].convert() for edge, origin in self.coded_by.items()}
        return assemble(self.origin, plan, edges, weights, self.recipe)

    def _round(self, edge: str, x: torch.Tensor) -> torch.Tensor:
        return self.edges[_key(edge)](x) if _key(edge) in self.edges else x


class QatLayer(nn.Module):
    """Weight, bias and step size (one per output channel, or one) of a layer."""

    def __init__(self, op: Op, start: LayerWeights, recipe: Recipe) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(op.weight.clone()), nn.Parameter(op.bias.clone())
        self.scale = nn.Parameter(start.scale.clone() if recipe.per_channel else start.scale[:1].clone())
        self.bits, self.keep_pairs = start.bits, recipe.weight_range == "pairs" and start.bits == 8

    def rounded(self, op: Op, source_scale: torch.Tensor) -> Op:
        """The operation with its weight and bias rounded."""
        scale = self.step_size()
        unit = (source_scale * scale).detach()
        bias = self.bias + (torch.round(self.bias / unit) * unit - self.bias).detach()
        codes = code_range(self.bits, signed=True, narrow=True)
        return dataclasses.replace(
            op, weight=fake_quantize(self.weight, per_row(scale, self.weight), 0, *codes), bias=bias
        )

    def step_size(self) -> torch.Tensor:
        """The learned step size, positive, and for 8 bits large enough that no pair of weights overflows."""
        scale = self.scale.abs().clamp(min=torch.finfo(torch.float32).tiny)
        if self.keep_pairs:
            least = pair_sums(self.weight.detach()) / code_range(8, signed=True)[1]
            scale = torch.maximum(scale, least if len(scale) > 1 else least.max())
        return scale

    def convert(self) -> LayerWeights:
        """The integers."""
        weight, scale = self.weight.detach(), self.step_size().detach().expand(len(self.weight)).clone()
        codes = encode(weight, per_row(scale, weight), torch.tensor(0), *code_range(self.bits, True, narrow=True))
        return LayerWeights(codes.cpu(), scale.cpu(), self.bias.detach().cpu().clone(), self.bits)


class QatEdge(nn.Module):
    """Step size of an edge."""

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self.scale, self.bits = nn.Parameter(affine.scale.clone()), affine.bits
        self.register_buffer("zero_point", affine.zero_point.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values rounded to what codes can stand for."""
        return fake_quantize(x, self.step_size(), self.zero_point, *code_range(self.bits, signed=False))

    def step_size(self) -> torch.Tensor:
        """The learned step size, positive."""
        return self.scale.abs().clamp(min=torch.finfo(torch.float32).tiny)

    def convert(self) -> Affine:
        """The parameters as calibration would give them."""
        return Affine(self.step_size().detach().cpu(), self.zero_point.cpu(), self.bits, signed=False)


def fake_quantize(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | int, first: int, last: int
) -> torch.Tensor:
    """Round x to the values that codes can stand for; the slopes are those at the top of this file.

    Example:
        >>> fake_quantize(torch.tensor([0.26, 9.0]), torch.tensor(0.5), 0, -7, 7)
        tensor([0.5000, 3.5000])
    """
    damping = (x.numel() / scale.numel() * last) ** -0.5
    scale = (scale * damping) + (scale - scale * damping).detach()  # the value of scale, with a damped slope
    v = x / scale
    code = (v + (torch.round(v) - v).detach() + zero_point).clamp(first, last)
    return (code - zero_point) * scale


def _origin(plan: Plan, edge: str) -> str:
    """The edge that an edge has its step size from: reshaping and max pooling only hand codes on."""
    while edge != INPUT and plan[edge].kind in ("reshape", "max_pool"):
        edge = plan[edge].inputs[0]
    return edge


def _key(name: str) -> str:
    return name.replace(".", "/")  # a ModuleDict refuses dots
