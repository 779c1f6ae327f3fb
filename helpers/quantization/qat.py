"""Quantization-aware training (QAT): the network learns with the rounding it will have.

In the forward pass each weight and each edge goes through fake quantization,

    v = x / s        code = clamp(round(v) + z, first, last)        x' = s (code - z)

Rounding has no useful slope, so it is given the slope 1 (the straight-through estimator), d x' / d
x = 1 inside the range, its first and last code included, and 0 outside. The step size s is learned
as well; the chain rule gives, as in the LSQ paper,

    d x' / d s = round(v) - v inside,  first - z or last - z outside

times 1 / sqrt(values that share s * last), which keeps its steps in proportion to those of the
weights. The bias is rounded too, to whole units of input scale * weight scale. Zero points stay as
calibrated. BatchNorm is folded before.

After S. Esser et al., "Learned Step Size Quantization", arXiv:1902.08153.
"""

import dataclasses
from types import SimpleNamespace

import torch
from torch import nn

from helpers import training
from helpers.dataset import normalization_of
from helpers.quantization.affine import Affine, QuantizationError, code_range
from helpers.quantization.integer import LARGEST_SUM
from helpers.quantization.model import QuantizedModel
from helpers.quantization.observers import BATCH, calibrate, normalised
from helpers.quantization.plan import HANDS_ON, INPUT, Op, Plan, Recipe, execute
from helpers.quantization.reader import make_plan
from helpers.quantization.weights import LayerWeights, encode_weights, nearest

SHORT = training.Config(
    epochs=2, lr=0.005, weight_decay=0.0, ema=0.99, distill=0.7, label_smoothing=0.0
)


def prepare(model: nn.Module, images: torch.Tensor, recipe: Recipe) -> "QatNetwork":
    """A network that computes with rounded weights and activations, and can be trained.

    Example:
        network = prepare(model, cifar.train_images[:1024], Recipe(weight_bits=4))
        training.finetune(network, cifar, teacher=model, config=SHORT)
        quantized = network.convert()
    """
    if recipe.rounding != "nearest" or recipe.bias_correction:
        raise QuantizationError(
            "training chooses codes and biases itself: leave rounding and bias_correction out"
        )
    images = normalised(model, images)
    plan = make_plan(model, images.shape[1:], recipe, images[:BATCH])
    network = QatNetwork(
        model, plan, calibrate(plan, images, recipe), encode_weights(plan, recipe), recipe
    )
    network.convert()  # what cannot become integers is refused before the training, not after it
    return network


class QatNetwork(nn.Module):
    """A plan with trainable weights, biases and step sizes: of each edge, and of each row of a
    weight or all of it.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        edges: dict[str, Affine],
        weights: dict[str, LayerWeights],
        recipe: Recipe,
    ) -> None:
        super().__init__()
        self.input_normalization = normalization_of(model)
        self.origin = SimpleNamespace(
            spec=getattr(model, "spec", None), input_normalization=self.input_normalization
        )
        self.plan, self.recipe, self.edges, self.origins = plan, recipe, edges, plan.origins()
        start = {
            f"edge {edge}": affine.scale
            for edge, affine in edges.items()
            if self.origins[edge] == edge
        }
        for op in plan.layers:
            scale = weights[op.name].scale[: None if recipe.per_channel else 1]
            start |= {
                f"weight {op.name}": op.weight,
                f"bias {op.name}": op.bias,
                f"scale {op.name}": scale,
            }
        self.floats = nn.ModuleList(
            op.module for op in plan.ops if op.module is not None
        )  # trained as they are
        # A ParameterDict refuses dots.
        self.trained = nn.ParameterDict(
            {key.replace(".", "/"): tensor.clone() for key, tensor in start.items()}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of normalised images, with every rounding in place."""
        return execute(self.plan.ops, self._round(INPUT, x), self._compute)

    def _compute(self, op: Op, *inputs: torch.Tensor) -> torch.Tensor:
        if op.weight is not None:
            scale, weight, bias = (
                self._trained(kind, op.name) for kind in ("scale", "weight", "bias")
            )
            source = self._trained("edge", self.origins[op.inputs[0]]).detach()
            least = bias.detach().abs() / (
                source * LARGEST_SUM
            )  # as in `Layer`: the bias has to fit int32
            scale = torch.maximum(scale, least if self.recipe.per_channel else least.amax())
            unit = source * scale.detach()
            bias = bias + (torch.round(bias / unit) * unit - bias).detach()
            codes = code_range(self.recipe.bits_of(op.name), signed=True)
            op = dataclasses.replace(op, weight=fake_quantize(weight, scale, 0, *codes), bias=bias)
        return op.run(*inputs) if op.kind in HANDS_ON else self._round(op.name, op.run(*inputs))

    def _round(self, edge: str, x: torch.Tensor) -> torch.Tensor:
        if edge not in self.edges:
            return x
        scale, affine = self._trained("edge", self.origins[edge]), self.edges[edge]
        return fake_quantize(x, scale, int(affine.zero_point), *affine.codes)

    def _trained(self, kind: str, name: str) -> torch.Tensor:
        """A trained tensor; training may have moved a step size to the other side of zero."""
        tensor = self.trained[f"{kind} {name}".replace(".", "/")]
        return (
            tensor.abs().clamp(min=torch.finfo(torch.float32).tiny)
            if kind in ("edge", "scale")
            else tensor
        )

    def convert(self) -> QuantizedModel:
        """The integer network that this one has learned to be."""
        edges, weights = {}, {}
        for edge, affine in self.edges.items():
            scale = self._trained("edge", self.origins[edge]).detach().cpu()
            edges[edge] = dataclasses.replace(affine, scale=scale)
        for op in self.plan.layers:
            weight, scale, bias = (
                self._trained(kind, op.name).detach().cpu() for kind in ("weight", "scale", "bias")
            )
            weights[op.name] = nearest(
                weight, scale.expand(len(weight)), bias, self.recipe.bits_of(op.name)
            )
        return QuantizedModel(self.origin, self.plan, edges, weights, self.recipe).cpu()


def fake_quantize(
    x: torch.Tensor, scale: torch.Tensor, zero_point: int, first: int, last: int
) -> torch.Tensor:
    """Round to what codes can stand for: with one scale for all of x, or one for each row."""
    zeros = torch.full((scale.numel(),), float(zero_point), device=x.device)
    damping = (x.numel() / scale.numel() * last) ** -0.5
    if len(zeros) == 1:
        return torch._fake_quantize_learnable_per_tensor_affine(
            x, scale.reshape(1), zeros, first, last, damping
        )
    return torch._fake_quantize_learnable_per_channel_affine(
        x, scale, zeros, 0, first, last, damping
    )
