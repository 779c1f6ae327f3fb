"""What one deploys: the ONNX file of each reference network, its bytes, and its accuracy in ONNX
Runtime.

    python -m course.benchmarks.deployed

Weights of 4 bits or fewer are stored in 4 or 2 bits; ONNX Runtime computes with 8. The test images
are read once for each file, and nothing is chosen. The rows go to data/results/deployed.csv.
"""

import tempfile
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from course.benchmarks.common import described
from course.benchmarks.quantization_rivals import export_float, run_onnx
from course.reference.table import DEPLOYED, load
from helpers import data, models, quantization
from helpers.dataset import Dataset, input_of
from helpers.files import write_atomically
from helpers.provenance import provenance

BATCH = 500
THREADS = 2


def exported(model: nn.Module, path: Path) -> Path:
    """The file that one deploys: a float network as PyTorch writes it, integers as we do."""
    if isinstance(model, quantization.QuantizedModel):
        return quantization.to_onnx(model, path)
    return export_float(model, path)


def correct(path: Path, cifar: Dataset) -> int:
    """How many test images the file gets right; its sums of integers are exact on any processor."""
    network, right = run_onnx(path, THREADS, exact=True), 0
    for images, labels in zip(
        cifar.test_images.split(BATCH), cifar.test_labels.split(BATCH), strict=True
    ):
        right += int((network(input_of(None, images)).argmax(1) == labels).sum())
    return right


def measured(names: list[str], cifar: Dataset) -> pd.DataFrame:
    """One row for each network whose file is in data/checkpoints/."""
    rows = []
    for name in names:
        model = models.load(models.CHECKPOINTS / f"{name}.safetensors")
        with tempfile.TemporaryDirectory() as folder:
            path = exported(model, Path(folder) / f"{name}.onnx")
            count = len(cifar.test_labels)
            rows.append(
                {
                    "name": name,
                    "onnx_bytes": path.stat().st_size,
                    "accuracy": correct(path, cifar) / count,
                    "images": count,
                }
            )
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    described(__doc__).parse_args()
    cifar = data.load_cifar10("local")
    torch.set_num_threads(THREADS)
    names = [n for n in load().name if (models.CHECKPOINTS / f"{n}.safetensors").exists()]
    table = measured(names, cifar)
    write_atomically(DEPLOYED, table.assign(**provenance()).to_csv(index=False))


if __name__ == "__main__":
    main()
