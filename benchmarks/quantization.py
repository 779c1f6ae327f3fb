"""Our int8 beside that of ONNX Runtime and PyTorch: accuracy, repairs, size and speed, all from one float network.

    python -m benchmarks.quantization CHECKPOINT accuracy     W8A8 for several calibration draws, ours and the others'
    python -m benchmarks.quantization CHECKPOINT repairs      each repair alone and together; 4 bits; size of each file
    python -m benchmarks.quantization CHECKPOINT speed        milliseconds at batch 1 and 128, interleaved
    python -m benchmarks.quantization CHECKPOINT agreement    the same class from every way to run the integer network

Rows go to data/results/quantization_*.csv. torchao is compared with where it is installed.
"""

import argparse
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from benchmarks import quantization_rivals as rivals
from helpers import data, metrics, models, quantization, training
from helpers.allocator import kept_memory
from helpers.provenance import provenance
from helpers.quantization.entropy import compress

RESULTS = Path(__file__).resolve().parents[1] / "data" / "results"
CALIBRATION = 1024
LEARNED = {"rounding": "learned", "bias_correction": "empirical"}
BROKEN = {"per_channel": False}
RECIPES = {
    "W8A8": {},
    "W8A8, corrected": {"bias_correction": "empirical"},
    "W8A8, learned": LEARNED,
    "W8A8 per tensor": BROKEN,
    "W8A8 per tensor, equalised": BROKEN | {"equalize": True},
    "W8A8 per tensor, equalised, absorbed": BROKEN | {"equalize": True, "absorb_bias": True},
    "W8A8 per tensor, corrected analytically": BROKEN | {"bias_correction": "analytic"},
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
    parser.add_argument("part", choices=("accuracy", "repairs", "speed", "agreement"))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--test-images", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2, help="of each network in `speed`")
    parser.add_argument("--only", nargs="*", help="names of rows")
    arguments = parser.parse_args()
    bench = Bench(models.load(arguments.checkpoint), arguments)
    rows = getattr(bench, arguments.part)()
    table = pd.DataFrame(rows)
    table.assign(**provenance()).to_csv(RESULTS / f"quantization_{arguments.part}.csv", index=False)
    print(table.to_string())


class Bench:
    """The float network, the data, and one method for each part."""

    def __init__(self, model: nn.Module, arguments: argparse.Namespace) -> None:
        self.model, self.arguments = model, arguments
        self.cifar = data.load_cifar10("offline")
        self.rows: list[dict] = []
        self.images = self.cifar.test_images[: arguments.test_images]
        self.labels = self.cifar.test_labels[: arguments.test_images]
        self.folder = Path(tempfile.mkdtemp())

    def wanted(self, name: str) -> bool:
        return not self.arguments.only or name in self.arguments.only

    def calibration(self, draw: int) -> torch.Tensor:
        """The same images for everybody."""
        images = self.cifar.split().train_images
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(draw))
        return images[order[:CALIBRATION]]

    def note(self, name: str, network: Callable, **more: object) -> None:
        """Measure accuracy, and print the row at once: the whole takes long."""
        network = network if isinstance(network, nn.Module) else _Function(network)
        accuracy = 100 * training.evaluate(network, self.images, self.labels).accuracy
        self.rows.append({"name": name, "accuracy": accuracy, "images": len(self.images), **more})
        print(self.rows[-1], flush=True)

    def ours(self, options: dict, draw: int = 0) -> quantization.QuantizedModel:
        quantized = quantization.quantize(self.model, self.calibration(draw), quantization.Recipe(**options))
        quantized.mode = "kernel"
        return quantized

    def accuracy(self) -> list[dict]:
        """W8A8 after training: five draws of calibration images for each method."""
        if self.wanted("float"):
            self.note("float", self.model)
        for draw in range(self.arguments.draws):
            images = self.calibration(draw)
            for name in filter(self.wanted, ("W8A8", "W8A8, corrected")):
                self.note(f"ours {name}", self.ours(RECIPES[name], draw), draw=draw)
            for method in filter(self.wanted, ("MinMax", "Entropy", "Percentile")):
                path = rivals.onnx_runtime_static(self.model, images, method, self.folder / "static.onnx")
                self.note(f"ONNX Runtime {method}", rivals.run_onnx(path), draw=draw)
            if self.wanted("FX"):
                self.note("PyTorch FX", rivals.pytorch_fx(self.model, images), draw=draw)
            if self.wanted("PT2E") and (network := rivals.pytorch_pt2e(self.model, images)):
                self.note("PyTorch PT2E", network, draw=draw)
        return self.rows

    def repairs(self) -> list[dict]:
        """Every recipe on one draw, with the size of its file, plain and entropy-coded."""
        full = models.save(self.model, self.folder / "float.safetensors").stat().st_size
        self.note("float", self.model, bytes=full, share=1.0)
        for name in filter(self.wanted, RECIPES):
            quantized = self.ours(RECIPES[name])
            size = models.save(quantized, self.folder / "quantized.safetensors").stat().st_size
            coded = compress(self.folder / "quantized.safetensors", self.folder / "coded")
            self.note(name, quantized, bytes=size, share=size / full, coded_bytes=coded)
        return self.rows

    def agreement(self) -> list[dict]:
        """How many test images get the same class from integer arithmetic and from each other way to run it."""
        for residual in ("fused", "separate"):
            network = quantization.quantize(self.model, self.calibration(0), quantization.Recipe(residual=residual))
            answers = {}
            for network.mode in quantization.MODES:
                answers[network.mode] = self.answers(network)
            if residual == "separate":
                exported = quantization.to_onnx(network, self.folder / "ours.onnx")
                answers["ONNX Runtime"] = self.answers(rivals.run_onnx(exported))
            exact = answers.pop("integer")
            for name, found in answers.items():
                same = (found == exact).double().mean().item()
                self.rows.append({"residual": residual, "name": name, "agrees": same, "images": len(exact)})
                print(self.rows[-1], flush=True)
        return self.rows

    @torch.no_grad()
    def answers(self, network: Callable) -> torch.Tensor:
        """The class of each test image."""
        return torch.cat([network(data.normalize(part)).argmax(1) for part in self.images.split(250)])

    def speed(self) -> list[dict]:
        """Medians of interleaved runs; `speedup` is against eager float32.

        Once with the memory allocator as it comes, and once with freed memory kept in the process: eager float32 at
        batch 128 makes activations so large that getting memory for them takes longer than computing them.
        """
        images, threads = self.calibration(0), self.arguments.threads
        torch.set_num_threads(threads)
        separate = quantization.quantize(self.model, images, quantization.Recipe(residual="separate"))
        ours = quantization.to_onnx(separate, self.folder / "ours.onnx")
        theirs = rivals.onnx_runtime_static(self.model, images, "MinMax", self.folder / "theirs.onnx")
        networks = {
            "eager float32": self.model.to(memory_format=torch.channels_last),
            "ours, kernel": self.ours({}),
            "PyTorch FX int8": rivals.pytorch_fx(self.model, images),
            "ours in ONNX Runtime": rivals.run_onnx(ours, threads, exact=False),
            "ONNX Runtime static int8": rivals.run_onnx(theirs, threads, exact=False),
            "ONNX Runtime static int8, exact": rivals.run_onnx(theirs, threads, exact=True),
        }
        for allocator, surroundings in (("as it comes", nullcontext), ("memory kept", kept_memory)):
            for batch, rounds in ((1, 60), (128, 10)):
                x = data.normalize(images[:batch]).contiguous(memory_format=torch.channels_last)
                chosen = {name: network for name, network in networks.items() if self.wanted(name)}
                with surroundings():
                    table = metrics.compare_latency(chosen, x, threads, rounds)
                self.rows += table.assign(allocator=allocator).to_dict("records")
        return self.rows


class _Function(nn.Module):
    """A function in a module's clothes."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


if __name__ == "__main__":
    main()
