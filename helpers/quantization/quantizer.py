"""From a float network and calibration images to a quantized network."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from helpers import models, passes
from helpers.graphs.errors import GraphMismatch
from helpers.quantization import reader, repairs
from helpers.quantization.affine import Affine
from helpers.quantization.model import QuantizedModel
from helpers.quantization.observers import CalibrationError, batches, calibrate, check_images, quantized_edges
from helpers.quantization.plan import Plan, Recipe
from helpers.quantization.weights import encode_weights

__all__ = ["assemble", "make_plan", "quantize", "replay"]


def quantize(
    model: nn.Module, images: torch.Tensor, recipe: Recipe | None = None, verify: bool = True
) -> QuantizedModel:
    """Quantize a float network. The network itself is not changed.

    Args:
        model: in eval mode, on the CPU; BatchNorm is folded here.
        images: calibration images from the training set, uint8, or float already normalised; (N, C, H, W).
        recipe: what to choose; the defaults are 8 bits, per channel.
        verify: compare the plan, in float and without rounding, with the network on the first calibration images.

    Returns:
        The quantized network, in mode "simulated".

    Raises:
        QuantizationError (or a subclass): NaN or wrong shape in the images or weights, an unsupported layer with
            unsupported="refuse", an unknown name in layer_bits, a plan that does not compute the network.

    Example:
        q = quantize(model, cifar.train_images[:1024], Recipe(weight_bits=8))
        q.mode = "integer"
        logits = q(data.normalize(cifar.test_images[:100]))
    """
    recipe = recipe or Recipe()
    check_images(images, tuple(getattr(images, "shape", ()))[1:])
    try:
        plan = make_plan(model, tuple(images.shape[1:]), recipe, next(batches(images)) if verify else None)
    except GraphMismatch as error:
        shape = tuple(images.shape)
        raise CalibrationError(f"calibration images: the network does not take shape {shape}: {error}") from error
    edges = calibrate(plan, images, recipe)
    weights = encode_weights(plan, recipe)
    weights = repairs.repair_weights(plan, edges, weights, images, recipe)
    return assemble(model, plan, edges, weights, recipe)


def make_plan(model: nn.Module, input_shape: Sequence[int], recipe: Recipe, images: torch.Tensor | None = None) -> Plan:
    """Fold a float network, read it as a plan, and apply the repairs that work on float weights.

    Args:
        model: the float network, in eval mode.
        input_shape: of one image.
        recipe: what to choose.
        images: normalised images on which the plan is compared with the network; None leaves that out.
    """
    example = torch.zeros(2, *input_shape)
    folded, _ = passes.optimize(model, (example,), level="fold", verify=False)  # the plan is compared instead
    plan = reader.read(folded, example, recipe)
    if images is not None:
        reader.verify(plan, model, folded, images)
    return repairs.repair_plan(plan, recipe)


def assemble(
    model: nn.Module, plan: Plan, edges: dict[str, Affine], weights: dict[str, Any], recipe: Recipe
) -> QuantizedModel:
    """Put the parts together and note how to rebuild the structure, so that `models.save` can write the result."""
    quantized = QuantizedModel(plan, edges, weights, recipe).eval()
    arguments = {"recipe": recipe.to_json(), "input_shape": list(plan.input_shape)}
    models.record(quantized, source=model, step="quantize", **arguments)
    return quantized


def replay(model: nn.Module, recipe: Mapping[str, Any], input_shape: Sequence[int]) -> QuantizedModel:
    """The structure of a quantized network, for a file's tensors to fill; all ranges are placeholders.

    Args:
        model: the float network, with any weights.
        recipe: as `Recipe.to_json` gave it.
        input_shape: of one image.
    """
    recipe = Recipe.from_json(recipe)
    plan = make_plan(model.eval(), input_shape, recipe)
    placeholder = Affine(torch.tensor(1.0), torch.tensor(0, dtype=torch.int32), recipe.activation_bits, signed=False)
    edges = dict.fromkeys(quantized_edges(plan), placeholder)
    return QuantizedModel(plan, edges, encode_weights(plan, recipe), recipe).eval()
