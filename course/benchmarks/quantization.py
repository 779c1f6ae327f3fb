"""Our int8 beside that of ONNX Runtime and PyTorch: accuracy, repairs, size and speed, all from one float network.

    python -m course.benchmarks.quantization FILE accuracy     W8A8 for several calibration draws, ours and the others'
    python -m course.benchmarks.quantization FILE repairs      each repair alone and together; 4 bits; size of each file
    python -m course.benchmarks.quantization FILE speed        milliseconds at batch 1 and 128, interleaved
    python -m course.benchmarks.quantization FILE agreement    the same class from every way to run the integer network
    python -m course.benchmarks.quantization FILE layers       the same codes in each layer, given the same input

Rows go to data/results/quantization_*.csv. Those of the first two parts go there as soon as they are known, and a row
that is there, for the same bytes of the checkpoint, is not computed again. torchao is compared with where it is
installed.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from course.benchmarks import quantization_rivals as rivals
from course.benchmarks.known_rows import KnownRows, origin
from course.benchmarks.quantization_agreement import agreement, layers
from course.benchmarks.quantization_speed import speed
from course.reference.entropy import compress
from helpers import data, models, quantization, training
from helpers.provenance import provenance

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results"
CALIBRATION, LAYER_IMAGES, SPEED_IMAGES = 1024, 64, 128
LEARNED = {"rounding": "learned", "bias_correction": "empirical"}
BROKEN = {"per_channel": False}
RECIPES = {
    "W8A8": {},
    "W8A8, corrected": {"bias_correction": "empirical"},
    "W8A8, learned": LEARNED,
    "W8A8 per tensor": BROKEN,
    "W8A8 per tensor, equalised": BROKEN | {"equalize": True},
    "W8A8 per tensor, corrected empirically": BROKEN | {"bias_correction": "empirical"},
    "W8A8 per tensor, equalised, corrected": BROKEN | {"equalize": True, "bias_correction": "empirical"},
    "W8A8 per tensor, equalised, learned": BROKEN | {"equalize": True} | LEARNED,
    "W4A8": {"weight_bits": 4, "weight_observer": "mse"},
    "W4A8, corrected": {"weight_bits": 4, "weight_observer": "mse", "bias_correction": "empirical"},
    "W4A8, learned": {"weight_bits": 4, "weight_observer": "mse"} | LEARNED,
    "W3A8, learned": {"weight_bits": 3, "weight_observer": "mse"} | LEARNED,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("part", choices=("accuracy", "repairs", "speed", "agreement", "layers"))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--test-images", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2, help="of each network in `speed`")
    parser.add_argument("--only", nargs="*", help="names of rows")
    arguments = parser.parse_args()
    print(getattr(Bench(arguments), arguments.part)().to_string())


class Bench:
    """The float network, the data, and one method for each part."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.model = arguments, models.load(arguments.checkpoint).eval()
        self.cifar = data.load_cifar10("offline")
        self.images = self.cifar.test_images[: arguments.test_images]
        self.labels = self.cifar.test_labels[: arguments.test_images]
        self.folder = Path(tempfile.mkdtemp())

    def calibration(self, draw: int) -> torch.Tensor:
        """The same images for everybody."""
        images = self.cifar.split().train_images
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(draw))
        return images[order[:CALIBRATION]]

    def accuracy(self) -> pd.DataFrame:
        """W8A8 after training: several draws of calibration images for each method."""
        table = self.table("accuracy")
        for draw in range(self.arguments.draws):
            for name, make in self.methods(draw).items():
                self.note(table, name, draw, make)
        return table.mine().groupby("name").accuracy.agg(["mean", "min", "max", "count"])

    def methods(self, draw: int) -> dict[str, Callable[[], Callable]]:
        """Every way to int8 on one draw, by name, not yet made."""
        images = self.calibration(draw)
        ways: dict[str, Callable[[], Callable]] = {"float": lambda: self.model} if draw == 0 else {}
        ways |= {f"ours {name}": partial(self.ours, RECIPES[name], draw) for name in ("W8A8", "W8A8, corrected")}
        for method in ("MinMax", "Entropy", "Percentile"):
            ways[f"ONNX Runtime {method}"] = partial(self.onnx_runtime, images, method)
        ways["PyTorch FX"] = partial(rivals.pytorch_fx, self.model, images)
        if find_spec("torchao"):
            ways["PyTorch PT2E"] = partial(rivals.pytorch_pt2e, self.model, images)
        return ways

    def repairs(self) -> pd.DataFrame:
        """Every recipe on one draw, with the size of its file, plain and entropy-coded."""
        table = self.table("repairs")
        self.note(table, "float", 0, lambda: self.model, sized=True)
        for name, options in RECIPES.items():
            self.note(table, name, 0, partial(self.ours, options), sized=True)
        return table.mine()[["name", "accuracy", "bytes", "coded_bytes"]]

    def note(self, table: KnownRows, name: str, draw: int, make: Callable[[], Callable], sized: bool = False) -> None:
        """Make a network, measure it and keep the row at once, unless it is known or not asked for."""
        if table.find(name=name, draw=draw) or (self.arguments.only and name not in self.arguments.only):
            return
        network = make()
        module = network if isinstance(network, nn.Module) else _Function(network)
        row = {"name": name, "draw": draw}
        row["accuracy"] = 100 * training.evaluate(module, self.images, self.labels).accuracy
        if sized:
            path = models.save(module, self.folder / "network.safetensors")
            row["bytes"] = path.stat().st_size
            row["coded_bytes"] = compress(path, self.folder / "coded") if network is not self.model else None
        table.add(row)

    def ours(self, options: dict, draw: int = 0) -> quantization.QuantizedModel:
        quantized = quantization.quantize(self.model, self.calibration(draw), quantization.Recipe(**options))
        quantized.mode = "kernel"
        return quantized

    def onnx_runtime(self, images: torch.Tensor, method: str) -> Callable:
        return rivals.run_onnx(rivals.onnx_runtime_static(self.model, images, method, self.folder / "static.onnx"))

    def agreement(self) -> pd.DataFrame:
        """How many test images get the same class from integer arithmetic and from each other way to run it."""
        return self.write("agreement", agreement(self.model, self.calibration(0), self.images, self.folder))

    def layers(self) -> pd.DataFrame:
        """The same for the codes of each layer, on a few calibration images."""
        images = self.calibration(0)
        return self.write("layers", layers(self.model, images, images[:LAYER_IMAGES], self.folder))

    def speed(self) -> pd.DataFrame:
        """Milliseconds of every form, beside those of its half-pruned twin."""
        threads, only = self.arguments.threads, self.arguments.only
        images = self.calibration(0)[:SPEED_IMAGES]  # milliseconds do not depend on the scales
        return self.write("speed", speed(self.model, images, threads, self.folder, only))

    def table(self, part: str) -> KnownRows:
        """The rows of a part that takes long."""
        return KnownRows(path_of(part), self.arguments.checkpoint, images=len(self.images))

    def write(self, part: str, rows: pd.DataFrame) -> pd.DataFrame:
        """Keep the rows of a part that is measured in one go."""
        rows.assign(**origin(self.arguments.checkpoint), **provenance()).to_csv(path_of(part), index=False)
        return rows


def path_of(part: str) -> Path:
    """Where the rows of a part go."""
    return RESULTS / f"quantization_{part}.csv"


class _Function(nn.Module):
    """A function in a module's clothes."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


if __name__ == "__main__":
    main()
