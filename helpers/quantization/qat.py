"""Quantization-aware training (QAT): the network learns with the rounding it will have.

In the forward pass each weight and each edge goes through fake quantization,

    v = x / s        code = clamp(round(v) + z, first, last)        x' = s (code - z)

Rounding has no useful slope, so it is given the slope 1 (the straight-through estimator), d x' / d x = 1 inside the
range, its first and last code included, and 0 outside. The step size s is learned as well; the chain rule gives, as in
the LSQ paper,

    d x' / d s = round(v) - v inside,  first - z or last - z outside

times 1 / sqrt(values that share s * last), which keeps its steps in proportion to those of the weights. The bias is
rounded too, to whole units of input scale * weight scale, which is coarse when both have few bits. Zero points stay as
calibrated. BatchNorm is folded before: the weights that are trained are the weights that are rounded.

After S. Esser et al., "Learned Step Size Quantization", arXiv:1902.08153.
"""

import dataclasses
from types import SimpleNamespace

import torch
from torch import nn

from helpers import training
from helpers.dataset import Dataset, adopt, input_of, normalization_of
from helpers.quantization.affine import Affine, code_range
from helpers.quantization.model import QuantizedModel, module_key
from helpers.quantization.observers import batches, calibrate, check_images
from helpers.quantization.plan import HANDS_ON, INPUT, Op, Plan, Recipe, execute
from helpers.quantization.reader import make_plan
from helpers.quantization.weights import LayerWeights, encode_weights, nearest_codes, pair_sums, per_row

__all__ = ["QatNetwork", "fake_quantize", "prepare", "train"]

CALIBRATION_IMAGES = 1024
SHORT = training.Config(epochs=2, lr=0.005, weight_decay=0.0, ema=0.99, distill=0.7, label_smoothing=0.0)


def train(
    model: nn.Module, cifar: Dataset, recipe: Recipe, config: training.Config = SHORT, progress: bool = True
) -> QuantizedModel:
    """Quantize a network and train a copy on, with its float self as the teacher if `config.distill` asks for one."""
    adopt(cifar, model)
    images = cifar.split().train_images[:CALIBRATION_IMAGES]
    network = prepare(model, images, recipe)
    teacher = model if config.distill > 0 else None
    training.finetune(network, cifar, teacher=teacher, config=config, progress=progress)
    return network.convert()


def prepare(model: nn.Module, images: torch.Tensor, recipe: Recipe) -> "QatNetwork":
    """A network that computes with rounded weights and activations, and can be trained.

    Example:
        network = prepare(model, cifar.train_images[:1024], Recipe(weight_bits=4))
        training.finetune(network, cifar, teacher=model, config=...)
        quantized = network.convert()
    """
    check_images(images)
    images = input_of(model, images)
    plan = make_plan(model, images.shape[1:], recipe, next(batches(images)))
    return QatNetwork(model, plan, calibrate(plan, images, recipe), encode_weights(plan, recipe), recipe)


class QatNetwork(nn.Module):
    """A plan with trainable weights, biases and step sizes."""

    def __init__(
        self, model: nn.Module, plan: Plan, edges: dict[str, Affine], weights: dict[str, LayerWeights], recipe: Recipe
    ) -> None:
        super().__init__()
        self.input_normalization = normalization_of(model)
        self.origin = SimpleNamespace(spec=getattr(model, "spec", None), input_normalization=self.input_normalization)
        self.plan, self.recipe, origins = plan, recipe, plan.origins()
        layers = {module_key(op.name): QatLayer(op, weights[op.name], recipe) for op in plan.layers}
        self.layers = nn.ModuleDict(layers)
        self.coded_by = {edge: origins[edge] for edge in edges}
        self.edges = nn.ModuleDict({module_key(e): QatEdge(edges[e]) for e in edges if self.coded_by[e] == e})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of normalised images, with every rounding in place."""
        return execute(self.plan.ops, self._round(INPUT, x), self._compute)

    def _compute(self, op: Op, *inputs: torch.Tensor) -> torch.Tensor:
        if module_key(op.name) not in self.layers:
            return op.run(*inputs) if op.kind in HANDS_ON else self._round(op.name, op.run(*inputs))
        source_scale = positive(self.edges[module_key(self.coded_by[op.inputs[0]])].scale)
        return self._round(op.name, self.layers[module_key(op.name)].run(op, source_scale, *inputs))

    def _round(self, edge: str, x: torch.Tensor) -> torch.Tensor:
        return self.edges[module_key(self.coded_by[edge])](x) if edge in self.coded_by else x

    def convert(self) -> QuantizedModel:
        """The integer network that this one has learned to be."""
        weights = {op.name: self.layers[module_key(op.name)].convert() for op in self.plan.layers}
        edges = {edge: self.edges[module_key(origin)].convert() for edge, origin in self.coded_by.items()}
        return QuantizedModel(self.origin, self.plan, edges, weights, self.recipe)


class QatLayer(nn.Module):
    """Weight, bias and step size (one per output channel, or one) of a layer."""

    def __init__(self, op: Op, start: LayerWeights, recipe: Recipe) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(op.weight.clone()), nn.Parameter(op.bias.clone())
        self.scale = nn.Parameter(start.scale.clone() if recipe.per_channel else start.scale[:1].clone())
        self.bits, self.codes = start.bits, code_range(start.bits, signed=True, narrow=True)
        self.small_pairs = start.bits == 8 and start.small_pairs

    def run(self, op: Op, source_scale: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        """The operation with its weight and bias rounded."""
        scale = self.step_size()
        unit = (source_scale * scale).detach()
        bias = self.bias + (torch.round(self.bias / unit) * unit - self.bias).detach()
        weight = fake_quantize(self.weight, per_row(scale, self.weight), 0, *self.codes)
        return dataclasses.replace(op, weight=weight, bias=bias).run(*inputs)

    def step_size(self) -> torch.Tensor:
        """The learned step size, large enough that no pair overflows where none did (see `weights.py`)."""
        scale = positive(self.scale)
        if not self.small_pairs:
            return scale
        least = pair_sums(self.weight.detach()).flatten(1).amax(1) / self.codes[1]
        return torch.maximum(scale, least if len(scale) > 1 else least.max())

    def convert(self) -> LayerWeights:
        """The integers."""
        weight, scale = self.weight.detach(), self.step_size().detach().expand(len(self.weight)).clone()
        codes = nearest_codes(weight, scale, self.bits)
        return LayerWeights(codes.cpu(), scale.cpu(), self.bias.detach().cpu().clone(), self.bits)


class QatEdge(nn.Module):
    """The learned step size of an edge."""

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self.scale, self.affine = nn.Parameter(affine.scale.clone()), affine
        self.register_buffer("zero_point", affine.zero_point.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values rounded to what codes can stand for."""
        return fake_quantize(x, positive(self.scale), self.zero_point, *self.affine.codes)

    def convert(self) -> Affine:
        """The parameters as calibration would give them."""
        return dataclasses.replace(self.affine, scale=positive(self.scale).detach().cpu())


def positive(scale: torch.Tensor) -> torch.Tensor:
    """A step size that training may have moved to the other side of zero."""
    return scale.abs().clamp(min=torch.finfo(torch.float32).tiny)


class FakeQuantize(torch.autograd.Function):
    """Rounding to what codes can stand for; composed of plain operations it takes more than twice as long."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | int, first: int, last: int):
        """The rounded values."""
        code = (x / scale).round_().add_(zero_point)
        rounded = code.clamp(first, last).sub_(zero_point).mul_(scale)
        ctx.save_for_backward(x, scale, code, rounded)
        ctx.first, ctx.last = first, last
        return rounded

    @staticmethod
    def backward(ctx, slope: torch.Tensor):
        """With x' = s (code - z), d x' / d s is (x' - x) / s inside the range and x' / s outside."""
        x, scale, code, rounded = ctx.saved_tensors
        inside = torch.ops.aten.hardtanh_backward(slope, code, ctx.first - 0.5, ctx.last + 0.5)
        along_scale = (slope * rounded).addcmul_(inside, x, value=-1).sum_to_size(scale.shape) / scale
        damping = (x.numel() / scale.numel() * ctx.last) ** -0.5
        return inside, along_scale * damping, None, None, None


fake_quantize = FakeQuantize.apply  # of x, scale, zero point, first and last code
