"""Our int8 beside that of ONNX Runtime and PyTorch: accuracy, repairs, sizes and agreement, all from one float network.

    python -m course.benchmarks.quantization FILE accuracy     W8A8 for several calibration draws, ours and the others'
    python -m course.benchmarks.quantization FILE repairs      each repair alone and together; 4 bits; size of each file
    python -m course.benchmarks.quantization FILE agreement    the same class from every way to run the integer network

Rows go to data/results/quantization_*.csv as soon as they are known, and a row that is there, for the same bytes of the
checkpoint, is not computed again. torchao is compared with where it is installed.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from course.benchmarks import quantization_rivals as rivals
from course.benchmarks.common import KnownRows
from course.reference.entropy import compress
from helpers import data, models, quantization

CALIBRATION, BATCH = 1024, 250
LEARNED = {"rounding": "learned", "bias_correction": "empirical"}
BROKEN = {"per_channel": False}
FOUR_BITS = {"weight_bits": 4, "weight_observer": "mse"}
RECIPES = {
    "W8A8": {},
    "W8A8, corrected": {"bias_correction": "empirical"},
    "W8A8, learned": LEARNED,
    "W8A8 per tensor": BROKEN,
    "W8A8 per tensor, equalised": BROKEN | {"equalize": True},
    "W8A8 per tensor, corrected empirically": BROKEN | {"bias_correction": "empirical"},
    "W8A8 per tensor, equalised, corrected": BROKEN | {"equalize": True, "bias_correction": "empirical"},
    "W8A8 per tensor, equalised, learned": BROKEN | {"equalize": True} | LEARNED,
    "W4A8": FOUR_BITS,
    "W4A8, corrected": FOUR_BITS | {"bias_correction": "empirical"},
    "W4A8, learned": FOUR_BITS | LEARNED,
    "W3A8, learned": {"weight_bits": 3, "weight_observer": "mse"} | LEARNED,
}
Way = Callable[[], Callable[[torch.Tensor], torch.Tensor]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("part", choices=("accuracy", "repairs", "agreement"))
    parser.add_argument("--draws", type=int, default=5)
    arguments = parser.parse_args()
    model, cifar = models.load(arguments.checkpoint).eval(), data.load_cifar10("offline")
    table = KnownRows(f"quantization_{arguments.part}", arguments.checkpoint, images=len(cifar.test_images))
    if arguments.part == "agreement":
        agreement(table, model, cifar)
        print(table.mine().to_string())
        return
    for draw in range(arguments.draws if arguments.part == "accuracy" else 1):
        images = calibration(cifar, draw)
        ways = compared(model, images) if arguments.part == "accuracy" else recipes(model, images)
        ways |= {"float": lambda: model} if draw == 0 else {}
        for name, way in ways.items():
            if not table.find(name=name, draw=draw):
                note(table, name, draw, way(), cifar)
    print(table.mine().groupby("name").accuracy.agg(["mean", "min", "max", "count"]).to_string())


def calibration(cifar: data.Dataset, draw: int) -> torch.Tensor:
    """The same images for everybody."""
    images = cifar.split().train_images
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(draw))
    return images[order[:CALIBRATION]]


def recipes(model: nn.Module, images: torch.Tensor, names: tuple[str, ...] = tuple(RECIPES)) -> dict[str, Way]:
    """Our own ways to int8, by name, not yet gone."""

    def ours(options: dict) -> quantization.QuantizedModel:
        quantized = quantization.quantize(model, images, quantization.Recipe(**options))
        quantized.mode = "kernel"
        return quantized

    return {name: partial(ours, RECIPES[name]) for name in names}


def compared(model: nn.Module, images: torch.Tensor) -> dict[str, Way]:
    """Ours and the others'."""

    def onnx_runtime(method: str) -> Callable:
        target = Path(tempfile.mkdtemp()) / "static.onnx"
        return rivals.run_onnx(rivals.onnx_runtime_static(model, images, method, target))

    ways = {f"ours {name}": way for name, way in recipes(model, images, ("W8A8", "W8A8, corrected")).items()}
    ways |= {f"ONNX Runtime {method}": partial(onnx_runtime, method) for method in ("MinMax", "Entropy", "Percentile")}
    ways["PyTorch FX"] = partial(rivals.pytorch_fx, model, images)
    return ways | ({"PyTorch PT2E": partial(rivals.pytorch_pt2e, model, images)} if find_spec("torchao") else {})


def note(table: KnownRows, name: str, draw: int, network: Callable, cifar: data.Dataset) -> None:
    """Measure a network and keep its row; of our own ones also the size of the file, plain and entropy-coded."""
    right = (classes(network, cifar.test_images) == cifar.test_labels).double().mean().item()
    row = {"name": name, "draw": draw, "accuracy": 100 * right}
    if table.path.stem.endswith("repairs"):
        with tempfile.TemporaryDirectory() as folder:
            path = models.save(network, Path(folder) / "network.safetensors")
            row["bytes"] = path.stat().st_size
            row["coded_bytes"] = None if name == "float" else compress(path, Path(folder) / "coded")
    table.add(row)


@torch.no_grad()
def classes(network: Callable, images: torch.Tensor) -> torch.Tensor:
    """The class of each image."""
    return torch.cat([network(data.normalize(part)).argmax(1) for part in images.split(BATCH)])


def agreement(table: KnownRows, model: nn.Module, cifar: data.Dataset) -> None:
    """The share of images that get the same class from integer arithmetic and from each other way to run it."""
    for residual in ("fused", "separate"):
        network = quantization.quantize(model, calibration(cifar, 0), quantization.Recipe(residual=residual))
        found = {}
        for network.mode in quantization.MODES:
            found[network.mode] = classes(network, cifar.test_images)
        if residual == "separate":  # the form that ONNX can say
            with tempfile.TemporaryDirectory() as folder:
                exported = quantization.to_onnx(network, Path(folder) / "ours.onnx")
                found["ONNX Runtime"] = classes(rivals.run_onnx(exported), cifar.test_images)
        exact = found.pop("integer")
        for name, other in found.items():
            if not table.find(residual=residual, name=name):
                table.add({"residual": residual, "name": name, "agrees": (other == exact).double().mean().item()})


if __name__ == "__main__":
    main()
