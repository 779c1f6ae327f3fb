"""Mixed precision: spend bits where they matter, until the file has the wanted size.

The *sensitivity* of a layer at b bits is the harm done when only its weights are rounded to b bits:
the mean Kullback-Leibler divergence of the network's answers from the float network's. With
p = softmax(float logits) and q = softmax(logits with one rounded layer),

    KL(p || q) = sum p (log p - log q)

Harms of different layers are taken to add up. Every layer starts with the most bits; then, step by
step, the layer that does the least harm per byte saved gives bits away, until the file fits.
"""

import math
from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from helpers import metrics
from helpers.quantization.affine import QuantizationError
from helpers.quantization.lowering import make_plan
from helpers.quantization.model import replay
from helpers.quantization.observers import BATCH
from helpers.quantization.plan import Plan, PlanOp, Recipe, execute
from helpers.quantization.repairs import quantized_op
from helpers.quantization.verify import calibration_input
from helpers.quantization.weights import encode_layer

BITS = (8, 6, 4, 3, 2)


def mixed_recipe(
    model: nn.Module,
    images: Tensor,
    file_bytes: int,
    recipe: Recipe | None = None,
) -> Recipe:
    """Choose the bits of every layer so that the file that `models.save` writes takes at most
    `file_bytes`.

    A few hundred images are enough. `recipe` says everything else.

    Example:
        images = cifar.split().train_images
        recipe = mixed_recipe(model, images[:256], file_bytes=1_500_000)
        q = quantize(model, images[:1024], recipe)
    """
    recipe = recipe or Recipe()
    images = calibration_input(model, images)
    shape = tuple(images.shape[1:])
    plan = make_plan(model, shape, recipe)

    def size(layer_bits):
        chosen = replace(recipe, layer_bits=layer_bits)
        return metrics.file_bytes(replay(model, chosen.as_dict(), shape))

    fewest = min(BITS)
    least = size({op.name: fewest for op in plan.layers})
    if file_bytes < least:
        raise QuantizationError(
            f"file_bytes={file_bytes}, too few: {fewest} bits everywhere take {least} bytes"
        )
    scan = sensitivity_scan(plan, images, recipe)
    weight_bytes = scan.set_index(["layer", "bits"]).bytes
    budget = file_bytes
    while True:
        chosen = choose_bits(scan, budget)
        excess = size(chosen) - file_bytes
        if excess <= 0:
            return replace(recipe, layer_bits=chosen)
        # The header names the bits: the rest of the file grows or shrinks with the choice, too.
        tried = budget
        budget = max(
            sum(weight_bytes[choice] for choice in chosen.items()) - excess,
            weight_bytes.xs(fewest, level="bits").sum(),
        )
        if budget == tried:  # fewer bits of a tiny layer save nothing but in the header
            return replace(recipe, layer_bits=dict.fromkeys(chosen, fewest))


@torch.no_grad()
def sensitivity_scan(plan: Plan, images: Tensor, recipe: Recipe) -> pd.DataFrame:
    """The harm of every layer at every choice of bits.

    Args:
        images: as the plan takes them.

    Returns:
        A table of layer, bits, divergence (nats per image) and bytes.
    """
    layers = {
        (op.name, bits): encode_layer(op, replace(recipe, weight_bits=bits, layer_bits={}))
        for op in plan.layers
        for bits in BITS
    }
    harm = dict.fromkeys(layers, 0.0)
    values: dict[str, Tensor] = {}
    for x in tqdm(images.split(BATCH), desc="sensitivity"):
        answers = log_probabilities(plan.run(x, values.__setitem__))
        for key, layer in layers.items():
            op = plan[key[0]]
            later = plan.ops[plan.ops.index(op) + 1 :]
            # From the rounded layer on: what comes before it is the same.
            scores = execute([quantized_op(op, layer), *later], values, PlanOp.run)
            lost = answers.exp() * (answers - log_probabilities(scores))
            # Of a class that is ruled out nothing is lost; in numbers, 0 times infinity.
            lost = lost.where(answers > -math.inf, 0)
            harm[key] += lost.sum().item() / len(images)
    table = [
        (name, bits, harm[name, bits], math.ceil(layer.codes.numel() * bits / 8))
        for (name, bits), layer in layers.items()
    ]
    return pd.DataFrame(table, columns=["layer", "bits", "divergence", "bytes"])


def log_probabilities(scores: Tensor) -> Tensor:
    """Of each class; a single score says yes or no, and stands against 0 as in the sigmoid."""
    if scores.ndim == 1:
        scores = scores.unsqueeze(1)
    if scores.shape[1] == 1:
        scores = torch.cat([scores, torch.zeros_like(scores)], dim=1)
    return scores.log_softmax(1)


def choose_bits(scan: pd.DataFrame, weight_bytes: int) -> dict[str, int]:
    """Bits for every layer: the least harm by a `sensitivity_scan`, greedily.

    Args:
        weight_bytes: what the weights of all layers may take together.
    """
    chosen = scan.loc[scan.groupby("layer", sort=False).bits.idxmax()].set_index("layer")
    while (size := chosen.bytes.sum()) > weight_bytes:
        now = chosen.loc[scan.layer].reset_index(drop=True)
        fewer = scan.bytes < now.bytes
        loss_per_byte = (scan.divergence - now.divergence) / (now.bytes - scan.bytes)
        loss_per_byte = loss_per_byte[fewer]
        if loss_per_byte.empty:
            raise QuantizationError(
                f"{weight_bytes} bytes are too few: {scan.bits.min()} bits everywhere take {size}"
            )
        best = scan.loc[loss_per_byte.idxmin()]
        chosen.loc[best.layer] = best[chosen.columns]
    return {layer: int(bits) for layer, bits in chosen.bits.items()}
