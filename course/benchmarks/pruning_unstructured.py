"""Zeros instead of missing channels: what unstructured magnitude pruning costs in accuracy, and
what it is worth.

    python -m course.benchmarks.pruning_unstructured

For each sparsity one row in data/results/pruning_unstructured.csv: validation accuracy without
fine-tuning, bytes of the file that `models.save` writes, the same file after entropy coding
(deflate), and the latency of one image, all of them in turn. The network without zeros is the first
row. No choice is made here, and the test images are not read.
"""

import tempfile
import zlib
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from course.benchmarks.common import DENSE, described, origin
from course.lessons.zeros import weights_of, zero_small_weights
from course.reference.table import FOLDER
from helpers import data, metrics, models, training
from helpers.files import write_atomically
from helpers.provenance import provenance

RESULTS = FOLDER / "pruning_unstructured.csv"
EXAMPLE = torch.zeros(1, 3, 32, 32)
SPARSITIES = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def share_of_zeros(model: nn.Module) -> float:
    """How many of the weights of all convolutions and linear layers are zero."""
    weights = weights_of(model)
    return 1 - sum(int(w.count_nonzero()) for w in weights) / sum(w.numel() for w in weights)


def main(argv: list[str] | None = None) -> None:
    parser = described(__doc__)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=DENSE, help="the dense network")
    parser.add_argument(
        "--data", choices=data.SOURCES, default="local", help="where CIFAR-10 comes from"
    )
    parser.add_argument("--runs", type=int, default=31, help="timed passes of each network")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="the table to write (default: %(default)s)"
    )
    arguments = parser.parse_args(argv)
    split, dense = (
        data.load_cifar10(arguments.data).split(),
        models.load(arguments.checkpoint).eval(),
    )
    networks = {sparsity: zero_small_weights(dense, sparsity) for sparsity in SPARSITIES}
    timed = metrics.compare_latency(networks, EXAMPLE, threads=1, runs=arguments.runs)
    rows = []
    for sparsity, network in networks.items():
        found = training.evaluate(network, split.validation_images, split.validation_labels)
        with tempfile.TemporaryDirectory() as folder:
            stored = models.save(network, Path(folder) / "model.safetensors").read_bytes()
        row = {"sparsity": sparsity, "zeros": share_of_zeros(network), "validation": found.accuracy}
        row |= {"low": found.interval[0], "high": found.interval[1], "images": found.n}
        rows.append(
            row | {"file_bytes": len(stored), "coded_bytes": len(zlib.compress(stored, level=6))}
        )
    table = pd.DataFrame(rows).assign(latency_ms=timed.median_ms, iqr_ms=timed.iqr_ms)
    table = table.assign(**origin(arguments.checkpoint) | provenance(0) | {"threads": 1})
    write_atomically(arguments.output, table.to_csv(index=False))
    print(table.iloc[:, :10].to_string(index=False))


if __name__ == "__main__":
    main()
