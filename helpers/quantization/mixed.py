"""Mixed precision: spend bits where they matter, until the file has the wanted size.

The *sensitivity* of a layer at b bits is the harm done when only its weights are rounded to b bits:
the mean Kullback-Leibler divergence of the network's answers from the float network's,

    KL(p || q) = sum p (log p - log q),    p = softmax(float logits), q = softmax(logits with one
    rounded layer)

Harms of different layers are taken to add up. Every layer starts with the most bits; then, step by
step, the layer gives bits away that lose the least per byte saved, until the rest fits.
"""

import itertools
import math
from collections import Counter
from dataclasses import replace

import pandas as pd
import torch
from torch import nn
from tqdm.auto import tqdm

from helpers import metrics
from helpers.dataset import input_of
from helpers.quantization.affine import QuantizationError
from helpers.quantization.model import replay
from helpers.quantization.observers import BATCH, normalised
from helpers.quantization.plan import Op, Plan, Recipe, execute
from helpers.quantization.reader import make_plan
from helpers.quantization.repairs import quantized_op
from helpers.quantization.weights import encode_layer

BITS = (8, 6, 4, 3, 2)


def mixed_recipe(
    model: nn.Module,
    images: torch.Tensor,
    file_bytes: int,
    recipe: Recipe | None = None,
    progress: bool = True,
) -> Recipe:
    """Choose the bits of every layer so that the file that `models.save` writes takes at most
    `file_bytes`.

    A few hundred images are enough. `recipe` says everything else.

    Example:
        recipe = mixed_recipe(model, cifar.train_images[:256], file_bytes=1_500_000)
        q = quantize(model, cifar.train_images[:1024], recipe)
    """
    if (
        getattr(model, "spec", None) is None
    ):  # known before minutes of scanning: the size is that of a saved file
        raise QuantizationError(
            f"{type(model).__name__} cannot be saved yet; say what makes it: models.declare_builder(...)"
        )
    recipe, images = recipe or Recipe(), normalised(model, images)
    shape = tuple(images.shape[1:])
    plan = make_plan(model, shape, recipe)

    def size(layer_bits: dict[str, int]) -> int:  # with ranges of any kind
        return metrics.file_bytes(
            replay(model, replace(recipe, layer_bits=layer_bits).to_json(), shape)
        )

    if file_bytes < (least := size({op.name: min(BITS) for op in plan.layers})):
        raise QuantizationError(
            f"file_bytes={file_bytes}, too few: {min(BITS)} bits everywhere take {least} bytes"
        )
    scan = sensitivity_scan(plan, images, recipe, progress=progress)
    sizes, budget = scan.set_index(["layer", "bits"]).bytes, file_bytes
    while (excess := size(chosen := choose_bits(scan, budget)) - file_bytes) > 0:
        # The header names the bits, so what is not weights changes by a few bytes with the choice.
        budget = max(
            sum(sizes[choice] for choice in chosen.items()) - excess,
            sizes.xs(min(BITS), level="bits").sum(),
        )
    return replace(recipe, layer_bits=chosen)


@torch.no_grad()
def sensitivity_scan(
    plan: Plan, images: torch.Tensor, recipe: Recipe, progress: bool = True
) -> pd.DataFrame:
    """The harm of every layer at every choice of bits: layer, bits, divergence (nats per image),
    bytes.
    """
    harm, values = Counter[tuple[str, int]](), dict[str, torch.Tensor]()
    for x in tqdm(input_of(plan, images).split(BATCH), desc="sensitivity", disable=not progress):
        answers = plan.run(x, values.__setitem__).log_softmax(1)
        for op, choice in itertools.product(plan.layers, BITS):
            rounded = quantized_op(
                op, encode_layer(op, replace(recipe, weight_bits=choice, layer_bits={}))
            )
            other = execute(
                [rounded, *plan.ops[plan.ops.index(op) + 1 :]], values, Op.run
            ).log_softmax(1)
            harm[op.name, choice] += (answers.exp() * (answers - other)).sum().item() / len(images)
    rows = [
        (*key, found, math.ceil(plan[key[0]].weight.numel() * key[1] / 8))
        for key, found in harm.items()
    ]
    return pd.DataFrame(rows, columns=["layer", "bits", "divergence", "bytes"])


def choose_bits(scan: pd.DataFrame, weight_bytes: int) -> dict[str, int]:
    """Bits for every layer: the least harm by a `sensitivity_scan`, greedily, in so many bytes for
    all layers.
    """
    chosen = scan.loc[scan.groupby("layer", sort=False).bits.idxmax()].set_index("layer")
    while (size := chosen.bytes.sum()) > weight_bytes:
        now = chosen.loc[scan.layer].reset_index(drop=True)
        loss = ((scan.divergence - now.divergence) / (now.bytes - scan.bytes))[scan.bits < now.bits]
        if loss.empty:
            raise QuantizationError(
                f"{weight_bytes} bytes are too few: {scan.bits.min()} bits everywhere take {size}"
            )
        best = scan.loc[loss.idxmin()]
        chosen.loc[best.layer] = best[chosen.columns]
    return {layer: int(bits) for layer, bits in chosen.bits.items()}
