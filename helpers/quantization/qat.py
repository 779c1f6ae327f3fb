"""Quantization-aware training (QAT): the network learns with the rounding it will have.

In the forward pass each weight and each edge goes through fake quantization,

    v = x / s        code = clamp(round(v) + z, first, last)        x' = s (code - z)

Rounding has no useful slope, so it is given the slope 1 (the straight-through estimator): the
slope of x' in x is 1 inside the range, its first and last code included, and 0 outside. The step
size s is learned as well; the chain rule gives, as in the LSQ paper,

    d x' / d s = round(v) - v inside,  first - z or last - z outside

where n values share s, the slope is multiplied by 1 / sqrt(n * last): that keeps the steps of s in
proportion to those of the weights. The bias is rounded too, to whole units of input scale * weight
scale. Zero points stay as calibrated. BatchNorm is folded before.

After S. Esser et al., "Learned Step Size Quantization", arXiv:1902.08153.
"""

from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from helpers import models, training
from helpers.quantization.affine import SMALLEST_SCALE, Affine, QuantizationError, code_range
from helpers.quantization.lowering import make_plan
from helpers.quantization.model import QuantizedModel
from helpers.quantization.observers import BATCH, calibrate
from helpers.quantization.plan import INPUT, KEEPS_CODES, Plan, Recipe, execute
from helpers.quantization.verify import calibration_input
from helpers.quantization.weights import LARGEST_SUM, LayerWeights, encode_weights, nearest

SHORT = training.Config(
    epochs=2, lr=0.005, weight_decay=0.0, ema=0.99, distill=0.7, label_smoothing=0.0
)


def prepare(model: nn.Module, images: Tensor, recipe: Recipe) -> "QatNetwork":
    """A network that computes with rounded weights and activations, and can be trained.

    Example:
        network = prepare(model, cifar.split().train_images[:1024], Recipe(weight_bits=4))
        training.finetune(network, cifar, teacher=model, config=SHORT)
        quantized = network.convert()
    """
    if recipe.rounding != "nearest" or recipe.bias_correction:
        raise QuantizationError(
            "training chooses codes and biases itself: leave rounding and bias_correction out"
        )
    images = calibration_input(model, images)
    plan = make_plan(model, images.shape[1:], recipe, images[:BATCH])
    edges = calibrate(plan, images, recipe)
    network = QatNetwork(model, plan, edges, encode_weights(plan, recipe), recipe)
    network.convert()  # what cannot become integers is refused before the training, not after it
    return network


class QatNetwork(nn.Module):
    """A plan with trainable weights, biases and step sizes: one for each edge, and one for each row
    of a weight or for all of it.
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
        self.origin = SimpleNamespace(spec=models.spec_of(model))
        if hasattr(model, "input_normalization"):  # another takes that of its first images
            self.input_normalization = model.input_normalization
        self.plan = plan
        self.recipe = recipe
        self.edges = edges
        self.origins = plan.origins()
        start = {f"edge {edge}": edges[edge].scale for edge in edges if self.origins[edge] == edge}
        for op in plan.layers:
            start[f"weight {op.name}"] = op.weight
            start[f"bias {op.name}"] = op.bias
            layer = weights[op.name]
            if recipe.per_channel:  # with which a filter of zeros still has its bias
                layer = layer.with_room_for_bias(edges[op.inputs[0]].scale)
            start[f"scale {op.name}"] = layer.scale if recipe.per_channel else layer.scale[:1]
        # What stayed in float is trained as it is.
        self.floats = nn.ModuleList(op.module for op in plan.ops if op.module is not None)
        # A ParameterDict refuses dots.
        self.trained = nn.ParameterDict(
            {key.replace(".", "/"): tensor.clone() for key, tensor in start.items()}
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits of normalised images, with every rounding in place."""
        return execute(self.plan.ops, {INPUT: self._round(INPUT, x)}, self._compute)

    def _compute(self, op, *inputs):
        if op.kind in KEEPS_CODES:
            return op.run(*inputs)
        if op.weight is not None:
            op = self._rounded_layer(op)
        return self._round(op.name, op.run(*inputs))

    def _rounded_layer(self, op):
        """A layer with its weight and its bias rounded as `Layer` will round them."""
        scale, weight, bias = self._parameters_of(op)
        source = self._step_size("edge", self.origins[op.inputs[0]]).detach()
        least_scale = bias.detach().abs() / (source * LARGEST_SUM)  # so that the bias fits int32
        if not self.recipe.per_channel:
            least_scale = least_scale.amax()
        scale = torch.maximum(scale, least_scale)
        unit = source * scale.detach()
        bias = bias + (torch.round(bias / unit) * unit - bias).detach()
        first, last = code_range(self.recipe.bits_of(op.name), signed=True)
        weight = fake_quantize(weight, scale, 0, first, last)
        return replace(op, weight=weight, bias=bias)

    def _round(self, edge, x):
        if edge not in self.edges:
            return x
        affine = self.edges[edge]
        scale = self._step_size("edge", self.origins[edge])
        return fake_quantize(x, scale, int(affine.zero_point), *affine.codes)

    def _trained(self, kind, name):
        return self.trained[f"{kind} {name}".replace(".", "/")]

    def _step_size(self, kind, name):
        """A trained step size, made positive: training may have moved it across zero."""
        return self._trained(kind, name).abs().clamp(min=SMALLEST_SCALE)

    def _parameters_of(self, op):
        """The trained scale, weight and bias of a layer."""
        scale = self._step_size("scale", op.name)
        return scale, self._trained("weight", op.name), self._trained("bias", op.name)

    def convert(self) -> QuantizedModel:
        """The integer network that this one has learned to be."""
        edges = {}
        for edge, affine in self.edges.items():
            scale = self._step_size("edge", self.origins[edge]).detach().cpu()
            edges[edge] = replace(affine, scale=scale)
        weights = {}
        for op in self.plan.layers:
            scale, weight, bias = (tensor.detach().cpu() for tensor in self._parameters_of(op))
            scale = scale.expand(len(weight))
            weights[op.name] = nearest(weight, scale, bias, self.recipe.bits_of(op.name))
        if hasattr(self, "input_normalization"):
            self.origin.input_normalization = self.input_normalization
        return QuantizedModel(self.origin, self.plan, edges, weights, self.recipe).cpu()


def fake_quantize(x: Tensor, scale: Tensor, zero_point: int, first: int, last: int) -> Tensor:
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
