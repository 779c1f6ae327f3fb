"""The whole way in one call: dense, pruned, fine-tuned, quantized, with one row of honest numbers per stage."""

import copy
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from helpers import metrics, pruning, quantization, training
from helpers.data import Dataset
from helpers.provenance import provenance

CALIBRATION_IMAGES = 1024
LATENCY_BATCHES = (1, 128)


@dataclass(frozen=True)
class Compressed:
    """What `compress` gives: the network of each stage, in order, and the table about them."""

    stages: dict[str, nn.Module]
    table: pd.DataFrame

    @property
    def model(self) -> nn.Module:
        """The network of the last stage."""
        return list(self.stages.values())[-1]


def compress(
    model: nn.Module,
    cifar: Dataset,
    prune_ratio: float = 0.5,
    finetune_epochs: int = 5,
    recipe: quantization.Recipe | None = None,
    scope: str = "hidden",
    checkpoint: str | Path | None = None,
    seed: int = 0,
    latency_runs: int = 10,
    progress: bool = True,
) -> Compressed:
    """Prune, fine-tune with the dense network as teacher, quantize; the given network stays as it is.

    Args:
        model: a trained network, in eval mode.
        cifar: fine-tuning and calibration see training images only; each row reads the test images once.
        prune_ratio: the share of channels taken from each group.
        finetune_epochs: 0 leaves the stage out.
        recipe: how to quantize; the defaults are 8 bits, per channel.
        scope: "hidden" or "all", see `pruning.prune`.
        checkpoint: where fine-tuning keeps its resumable state.
        seed: of fine-tuning.
        latency_runs: timed passes per stage and batch size.
        progress: show bars.

    Example:
        >>> result = compress(models.pretrained(), load_cifar10(), prune_ratio=0.5)  # doctest: +SKIP
        >>> result.table[["stage", "accuracy", "file_bytes"]]  # doctest: +SKIP
    """
    example = torch.zeros(1, *cifar.test_images.shape[1:])
    stages = {"dense": model, "pruned": pruning.prune(model, example, ratio=prune_ratio, scope=scope)}
    if finetune_epochs:
        stages["fine-tuned"] = recovered(stages["pruned"], model, cifar, finetune_epochs, checkpoint, seed, progress)
    calibration = cifar.split().train_images[:CALIBRATION_IMAGES]
    quantized = quantization.quantize(list(stages.values())[-1].eval(), calibration, recipe)
    quantized.mode = "kernel"
    stages["quantized"] = quantized
    rows = [describe(name, network, cifar, example, progress) for name, network in stages.items()]
    # The quantized network multiplies as often as the one it was made from, only in integers.
    rows[-1] |= {key: rows[-2][key] for key in ("params", "macs")}
    table = pd.DataFrame(rows).merge(latencies(stages, example, latency_runs), on="stage")
    return Compressed(stages, table.assign(**provenance(seed)))


def recovered(
    pruned: nn.Module,
    teacher: nn.Module,
    cifar: Dataset,
    epochs: int,
    checkpoint: str | Path | None,
    seed: int,
    progress: bool,
) -> nn.Module:
    """A fine-tuned copy of the pruned network."""
    student = copy.deepcopy(pruned)
    config = training.Config(epochs=epochs, lr=0.02, ema=0.99, distill=0.7, seed=seed)
    training.finetune(student, cifar, teacher, config, checkpoint, progress)
    return student


def describe(stage: str, network: nn.Module, cifar: Dataset, example: torch.Tensor, progress: bool) -> dict:
    """Accuracy on the test images, and what the network costs wherever it runs."""
    result = training.evaluate(network, cifar.test_images, cifar.test_labels, progress=progress)
    low, high = result.interval
    row = {"stage": stage, "accuracy": result.accuracy, "low": low, "high": high, "test_images": result.n}
    if isinstance(network, quantization.QuantizedModel):
        return row | {"file_bytes": metrics.file_bytes(network)}
    return row | vars(metrics.profile(network, example))


def latencies(stages: dict[str, nn.Module], example: torch.Tensor, runs: int) -> pd.DataFrame:
    """Median and spread at each batch size, all stages in turn."""
    timed = {name: in_faster_layout(network) for name, network in stages.items()}
    columns = [pd.Series(list(stages), name="stage")]
    for batch in LATENCY_BATCHES:
        x = torch.randn(batch, *example.shape[1:]).contiguous(memory_format=torch.channels_last)
        table = metrics.compare_latency(timed, x, runs=runs, warmup=2)
        columns += [table.median_ms.rename(f"batch{batch}_ms"), table.iqr_ms.rename(f"batch{batch}_iqr_ms")]
    return pd.concat(columns, axis=1)


def in_faster_layout(network: nn.Module) -> nn.Module:
    """A copy of a float network in channels_last, which is its faster layout; integers have their own."""
    if isinstance(network, quantization.QuantizedModel):
        return network
    return copy.deepcopy(network).to(memory_format=torch.channels_last)
