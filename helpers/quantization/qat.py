"""Quantization-aware training: the network learns with the rounding it will have.

Every weight and every edge is rounded in the forward pass, and the way back treats rounding as if it were not there;
step sizes are learned like weights (`qat_layers.py` has the formulas). BatchNorm is dealt with in one of two ways:

    folded   before training: the weights that are trained are the weights that are rounded
    kept     it stays a layer of its own while the network trains, so that it keeps steadying the training; at the end
             its statistics are measured again, for rounding has moved them, and it is folded into the scales:
             a (s code) + c = (|a| s) (sign(a) code) + c needs no new codes
"""

from collections.abc import Mapping
from types import SimpleNamespace

import torch
from torch import nn

from helpers import training
from helpers.data import Cifar10
from helpers.pruning.recovery import reestimate_batchnorm
from helpers.quantization.affine import Affine, QuantizationError
from helpers.quantization.calibration import batches, calibrate, check_images
from helpers.quantization.model import QuantizedModel
from helpers.quantization.normals import batch_norms
from helpers.quantization.plan import INPUT, Plan, last_uses
from helpers.quantization.qat_layers import NormalizedLayer, QatEdge, QatLayer
from helpers.quantization.quantizer import assemble, make_plan
from helpers.quantization.recipe import Recipe
from helpers.quantization.weights import LayerWeights, encode_weights

__all__ = ["BATCHNORM", "QatNetwork", "finished", "prepare", "train"]

BATCHNORM = ("folded", "kept")

CALIBRATION_IMAGES = 1024
SHORT = training.Config(epochs=2, lr=0.005, weight_decay=0.0, ema=0.99, distill=0.7, label_smoothing=0.0)


def train(
    model: nn.Module,
    cifar: Cifar10,
    recipe: Recipe,
    config: training.Config = SHORT,
    batchnorm: str = "folded",
    progress: bool = True,
) -> QuantizedModel:
    """Quantize a network and train it on, with its float self as the teacher.

    Args:
        model: the trained float network; it is not changed.
        cifar: the data; the first training images calibrate the ranges to start from.
        recipe: bits and form of the result.
        config: how to train; distill > 0 asks for the teacher.
        batchnorm: "folded" or "kept", see the top of this file.
        progress: show a bar.

    Returns:
        The quantized network, in mode "simulated".
    """
    images = cifar.split().train_images[:CALIBRATION_IMAGES]
    network = prepare(model, images, recipe, batchnorm)
    teacher = model if config.distill > 0 else None
    training.finetune(network, cifar, teacher=teacher, config=config, progress=progress)
    return finished(network, images)


def finished(network: "QatNetwork", images: torch.Tensor) -> QuantizedModel:
    """The integer network, after kept BatchNorms have been measured again on training images."""
    if any(isinstance(layer, NormalizedLayer) for layer in network.layers.values()):
        reestimate_batchnorm(network, batches(images))
    return network.convert()


def prepare(model: nn.Module, images: torch.Tensor, recipe: Recipe, batchnorm: str = "folded") -> "QatNetwork":
    """A network that computes with rounded weights and activations, and can be trained.

    Args:
        model: in eval mode; it is not changed.
        images: calibration images, uint8 or normalised.
        recipe: bits and form of the result.
        batchnorm: "folded" or "kept", see the top of this file.

    Example:
        network = prepare(model, cifar.train_images[:1024], Recipe(weight_bits=4))
        training.finetune(network, cifar, teacher=model, config=...)
        quantized = network.convert()
    """
    check_images(images, tuple(getattr(images, "shape", ()))[1:])
    if batchnorm not in BATCHNORM:
        raise QuantizationError(f"batchnorm: expected one of {BATCHNORM}, got {batchnorm!r}")
    if batchnorm == "kept" and (recipe.equalize or recipe.absorb_bias or not recipe.per_channel):
        raise QuantizationError(
            "batchnorm='kept' goes into per-channel scales at the end: leave equalize and absorb_bias out, and"
            " per_channel on, or fold it first (batchnorm='folded')"
        )
    plan = make_plan(model, tuple(images.shape[1:]), recipe)
    norms = {n: norm for n, norm in batch_norms(plan, model) if plan[n].kind == "conv" and batchnorm == "kept"}
    return QatNetwork(model, plan, calibrate(plan, images, recipe), encode_weights(plan, recipe), recipe, norms)


class QatNetwork(nn.Module):
    """A plan with trainable weights, biases and step sizes."""

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        edges: dict[str, Affine],
        weights: dict[str, LayerWeights],
        recipe: Recipe,
        norms: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        self.origin = SimpleNamespace(spec=getattr(model, "spec", None))  # how to rebuild the float network
        self.plan, self.recipe = plan, recipe
        self.layers = nn.ModuleDict()
        for op in plan.layers:
            layer = QatLayer(op, weights[op.name], recipe)
            self.layers[_key(op.name)] = NormalizedLayer(layer, norms[op.name]) if op.name in norms else layer
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
                source_scale = self.edges[_key(self.coded_by[op.inputs[0]])].step_size()
                value = self.layers[_key(op.name)].run(op, source_scale, *inputs)
            else:
                value = op.run(*inputs)
            values[op.name] = self._round(op.name, value)
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


def _origin(plan: Plan, edge: str) -> str:
    """The edge that an edge has its step size from: reshaping and max pooling only hand codes on."""
    while edge != INPUT and plan[edge].kind in ("reshape", "max_pool"):
        edge = plan[edge].inputs[0]
    return edge


def _key(name: str) -> str:
    return name.replace(".", "/")  # a ModuleDict refuses dots
