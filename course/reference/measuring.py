"""What a row says about a saved network: everything follows from the file."""

import hashlib
import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from helpers import metrics, models, pruning, training
from helpers.data import Dataset, load_cifar10
from helpers.provenance import cpu_name, provenance
from helpers.quantization import QuantizedModel, kernels
from helpers.quantization.integer import Layer


def row(path: Path, evaluated: Mapping[str, Any]) -> dict[str, Any]:
    """All columns of a network but its names: what follows from its file, and what `evaluate` found
    for it.
    """
    origin, here = models.read_header(path)[1].get("provenance", {}), provenance()
    return {
        "status": "measured",
        **evaluated,
        "split": "test",
        "seed": origin.get("seed"),
        **derived(path),
        "weights": weights_of(path),
        "command": origin.get("command"),
        "trained_on": origin.get("device"),
        "device": cpu_name(),
        **{name: here[name] for name in ("date", "torch", "torchvision", "python")},
    }


def evaluate(model: nn.Module, cifar: Dataset) -> dict[str, Any]:
    """Accuracy on the test images, read once, on the validation images, and on the committed
    sample.
    """
    split, found = cifar.split(), training.evaluate(model, cifar.test_images, cifar.test_labels)
    chosen_on, (low, high) = (
        training.evaluate(model, split.validation_images, split.validation_labels),
        found.interval,
    )
    accuracies = {
        "validation_accuracy": chosen_on.accuracy,
        "sample_accuracy": sample_accuracy(model),
    }
    return {"accuracy": found.accuracy, "low": low, "high": high, "images": found.n} | accuracies


def weights_of(path: Path) -> str:
    """A short hash of a network: its structure and tensors, not what its file says about them."""
    spec, _ = models.read_header(path)
    digest = hashlib.sha256(
        json.dumps([spec.builder, spec.arguments, spec.steps], sort_keys=True).encode()
    )
    with safe_open(path, "pt") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()[:12]


def in_integers(model: nn.Module) -> nn.Module:
    """A quantized network in real int8, or without such kernels in integers; any other as it is."""
    if isinstance(model, QuantizedModel):
        model.mode = "kernel" if kernels.available() else "integer"
    return model


def derived(path: Path) -> dict[str, Any]:
    """What follows from the file alone, on any machine: parameters, multiply-adds, bits, bytes."""
    model, structure, example = models.load(path), float_structure(path), torch.zeros(1, 3, 32, 32)
    quantized = isinstance(model, QuantizedModel)
    bits = (
        {step.bits for step in model.steps.values() if isinstance(step, Layer)}
        if quantized
        else {32}
    )
    return {
        "params": metrics.count_parameters(structure),
        "macs": metrics.count_macs(structure, example),
        "dead_channels": (
            None
            if quantized
            else sum(map(len, pruning.remove_dead_channels(model, example)[1].values()))
        ),
        "weight_bits": str(*bits) if len(bits) == 1 else "mixed",
        "file_bytes": path.stat().st_size,
        # As xz -6e writes it: the entropy coder of LZMA, which gives back the very same bytes.
        "coded_bytes": (
            len(lzma.compress(path.read_bytes(), preset=6 | lzma.PRESET_EXTREME))
            if quantized
            else None
        ),
    }


def float_structure(path: Path, factory: str | None = None) -> nn.Module:
    """The float network behind a quantized file, with arbitrary weights; it has as many
    multiplications.
    """
    spec, _ = models.read_header(path)
    steps = [step["step"] for step in spec.steps]
    before = spec.steps[: steps.index("quantize")] if "quantize" in steps else spec.steps
    return models.structure(models.Spec(spec.builder, spec.arguments, before), path, factory).eval()


def sample_accuracy(model: nn.Module) -> float:
    """Accuracy on the committed test images, which anybody can check in seconds."""
    sample = load_cifar10("sample")
    return training.evaluate(model, sample.test_images, sample.test_labels).accuracy
