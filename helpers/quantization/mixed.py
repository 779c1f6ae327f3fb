"""Mixed precision: spend bits where they matter, until the file has the wanted size.

The *sensitivity* of a layer at b bits is the harm done when only its weights are rounded to b bits: the mean
Kullback-Leibler divergence of the network's answers from the float network's,

    KL(p || q) = sum p (log p - log q),    p = softmax(float logits), q = softmax(logits with one rounded layer)

Harms of different layers are taken to add up. Every layer starts with the most bits; then, step by step, the layer
gives bits away that lose the least per byte saved, until the rest fits.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from torch import nn
from tqdm.auto import tqdm

from helpers import models
from helpers.dataset import input_of
from helpers.quantization.affine import QuantizationError
from helpers.quantization.model import replay
from helpers.quantization.observers import batches, check_images
from helpers.quantization.plan import Op, Plan, Recipe
from helpers.quantization.reader import make_plan
from helpers.quantization.repairs import quantized_op
from helpers.quantization.weights import encode_layer, packed_bytes

__all__ = ["BudgetError", "choose_bits", "mixed_recipe", "sensitivity_scan"]

BITS = (8, 6, 4, 3, 2)


class BudgetError(QuantizationError):
    """A size that no choice of bits can reach."""


def mixed_recipe(
    model: nn.Module, images: torch.Tensor, file_bytes: int, recipe: Recipe | None = None, progress: bool = True
) -> Recipe:
    """Choose the bits of every layer so that the saved network takes at most `file_bytes`.

    Args:
        model: the float network, in eval mode, from `models`.
        images: a few hundred images, uint8 or normalised; training or validation images.
        file_bytes: size of the file that `models.save` writes, scales, biases and header included.
        recipe: everything else.
        progress: show a bar.

    Raises:
        BudgetError: even the fewest bits take more.

    Example:
        recipe = mixed_recipe(model, cifar.train_images[:256], file_bytes=1_500_000)
        q = quantize(model, cifar.train_images[:1024], recipe)
    """
    recipe = recipe or Recipe()
    check_images(images)
    images = input_of(model, images)
    shape = tuple(images.shape[1:])
    scan = sensitivity_scan(make_plan(model, shape, recipe), images, recipe, progress=progress)
    sizes = scan.set_index(["layer", "bits"]).bytes
    budget = file_bytes
    while True:  # the header names the bits, so what is not weights changes by a few bytes with the choice
        chosen = choose_bits(scan, budget)
        written = written_bytes(model, replace(recipe, layer_bits=chosen), shape)
        if written <= file_bytes:
            return replace(recipe, layer_bits=chosen)
        overhead = written - sum(sizes[choice] for choice in chosen.items())
        budget = min(file_bytes - overhead, budget - 1)


def written_bytes(model: nn.Module, recipe: Recipe, input_shape: tuple[int, ...]) -> int:
    """The size of the file of a quantized network, which does not depend on what its ranges are."""
    with TemporaryDirectory() as folder:
        path = models.save(replay(model, recipe.to_json(), input_shape), Path(folder) / "size.safetensors")
        return path.stat().st_size


@torch.no_grad()
def sensitivity_scan(
    plan: Plan, images: torch.Tensor, recipe: Recipe, bits: Sequence[int] = BITS, progress: bool = True
) -> pd.DataFrame:
    """Measure the harm of every layer at every choice of bits.

    Returns:
        One row per layer and choice: layer, bits, divergence (nats per image), bytes.
    """
    harm: Counter[tuple[str, int]] = Counter()
    parts = list(batches(images))
    with tqdm(total=len(parts) * len(plan.layers), desc="sensitivity", disable=not progress) as bar:
        for x in parts:
            values: dict[str, torch.Tensor] = {}
            answers = plan.run(x, values.__setitem__).log_softmax(1)
            for op in plan.layers:
                for choice in bits:
                    layer = encode_layer(op, replace(recipe, weight_bits=choice, layer_bits={}))
                    other = _run_from(plan, quantized_op(op, layer), values).log_softmax(1)
                    harm[op.name, choice] += (answers.exp() * (answers - other)).sum().item() / len(images)
                bar.update()
    sizes = {op.name: op.weight.numel() for op in plan.layers}
    rows = [(name, choice, found, packed_bytes(sizes[name], choice)) for (name, choice), found in harm.items()]
    return pd.DataFrame(rows, columns=["layer", "bits", "divergence", "bytes"])


def _run_from(plan: Plan, changed: Op, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """The network's output when one operation changes: what comes before it is known."""
    known, fresh = dict(values), {changed.name}
    for op in plan.ops:
        if op.name in fresh or fresh.intersection(op.inputs):
            op = changed if op.name == changed.name else op
            known[op.name] = op.run(*(known[edge] for edge in op.inputs))
            fresh.add(op.name)
    return known[plan.output]


def choose_bits(scan: pd.DataFrame, weight_bytes: int) -> dict[str, int]:
    """Bits for every layer: the least harm, greedily, within a budget.

    Args:
        scan: from `sensitivity_scan`.
        weight_bytes: what all layers together may take.

    Raises:
        BudgetError: even the fewest bits take more.
    """
    by_layer = scan.sort_values("bits", ascending=False, kind="stable").groupby("layer", sort=False)
    left = {name: list(zip(t.bits, t.divergence, t.bytes, strict=True)) for name, t in by_layer}  # the first is chosen
    least = sum(table[-1][2] for table in left.values())
    if least > weight_bytes:
        fewest = min(table[-1][0] for table in left.values())
        raise BudgetError(f"{weight_bytes} bytes are too few: {fewest} bits everywhere take {least}; allow that many")
    while sum(table[0][2] for table in left.values()) > weight_bytes:
        _, name, to = min(
            ((harm - table[0][1]) / (table[0][2] - size), name, to)
            for name, table in left.items()
            for to, (_, harm, size) in enumerate(table)
            if to > 0
        )
        left[name] = left[name][to:]
    return {name: int(table[0][0]) for name, table in left.items()}
