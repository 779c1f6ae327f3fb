"""Our int8 beside that of ONNX Runtime, OpenVINO's NNCF and PyTorch, all from one float network,
for several calibration draws.

    python -m course.benchmarks.quantization

Rows go to data/results/quantization_accuracy.csv as soon as they are known, and a row that is
there, for the same bytes of the checkpoint, is not computed again. torchao and nncf come with
pip install -e '.[rivals]'.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from course.benchmarks import quantization_rivals as rivals
from course.benchmarks.common import DENSE, KnownRows, described, need
from helpers import data, models, quantization

CALIBRATION, BATCH, DRAWS = 1024, 250, 3
OURS = {"ours W8A8": {}, "ours W8A8, corrected": {"bias_correction": "empirical"}}
Way = Callable[[], Callable[[torch.Tensor], torch.Tensor]]


def main() -> None:
    parser = described(__doc__)
    parser.parse_args()
    need(parser, "torchao", "nncf", "openvino")
    model, cifar = models.load(DENSE).eval(), data.load_cifar10("local")
    table = KnownRows("quantization_accuracy", DENSE, images=len(cifar.test_images))
    for draw in range(DRAWS):
        ways = compared(model, calibration(cifar, draw)) | (
            {"float": lambda: model} if draw == 0 else {}
        )
        for name, way in ways.items():
            if not table.find(name=name, draw=draw):
                right = (
                    (classes(way(), cifar.test_images) == cifar.test_labels).double().mean().item()
                )
                table.add({"name": name, "draw": draw, "accuracy": 100 * right})
    print(table.mine().groupby("name").accuracy.agg(["mean", "min", "max", "count"]).to_string())


def calibration(cifar: data.Dataset, draw: int) -> torch.Tensor:
    """The same images for everybody."""
    images = cifar.split().train_images
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(draw))
    return images[order[:CALIBRATION]]


def compared(model: nn.Module, images: torch.Tensor) -> dict[str, Way]:
    """Every way to int8 by name; nothing is computed before one is called."""

    def ours(options: dict) -> quantization.QuantizedModel:
        quantized = quantization.quantize(model, images, quantization.Recipe(**options))
        quantized.mode = "kernel"
        return quantized

    def onnx_runtime(method: str) -> Callable:
        with TemporaryDirectory() as folder:
            target = Path(folder) / "static.onnx"
            return rivals.run_onnx(rivals.onnx_runtime_static(model, images, method, target))

    def openvino_nncf() -> Callable:
        with TemporaryDirectory() as folder:
            target = Path(folder) / "static.xml"
            return rivals.run_openvino(rivals.nncf_static(model, images, target))

    ways = {name: partial(ours, options) for name, options in OURS.items()}
    ways |= {
        f"ONNX Runtime {method}": partial(onnx_runtime, method)
        for method in ("MinMax", "Entropy", "Percentile")
    }
    ways["PyTorch FX"] = partial(rivals.pytorch_fx, model, images)
    ways["PyTorch PT2E"] = partial(rivals.pytorch_pt2e, model, images)
    ways["OpenVINO NNCF"] = openvino_nncf
    return ways


@torch.no_grad()
def classes(network: Callable, images: torch.Tensor) -> torch.Tensor:
    """The class of each image."""
    return torch.cat([network(data.normalize(part)).argmax(1) for part in images.split(BATCH)])


if __name__ == "__main__":
    main()
