"""One clock for all speeds: milliseconds of the reference networks in every engine, for 1 image and
for 128.

    python -m course.benchmarks.speed

PyTorch as it comes (eager, channels_last), this course's fused float network and int8 kernels, ONNX
Runtime in float32 and int8, and OpenVINO (pip install -e '.[rivals]'), both
from the files that this course exports; "its own" is the int8 file that the engine's own quantizer
makes of the same network (OpenVINO's is NNCF). Each engine has a process of its own for each
network, because thread pools that spin spoil each other's times. Each keeps the memory that it
freed. Networks take turns of two rounds each, in drawn order; in each round every engine has a
turn, in drawn order. Times depend on the structure of a
network and not on its weights, so those are drawn. The rows go to data/results/speed.csv.
"""

import itertools
import os
import random
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from course.benchmarks.common import Worker, described, need
from course.reference.measuring import float_structure
from course.reference.table import SPEED, load
from helpers import metrics, models, passes, quantization
from helpers.allocator import kept_memory
from helpers.files import write_atomically
from helpers.provenance import provenance

BATCHES = (1, 128)
SECONDS_PER_TURN, PAUSE_SECONDS = 0.2, 0.02
PASSES, ROUNDS = 8, 2  # through all networks, in drawn order; in each of them
THREADS = 2
CALIBRATION = 128  # ONNX Runtime takes two batches of 64 at a time
THEIRS = (".static.onnx", ".xml")  # ONNX Runtime's own quantizer, OpenVINO's


@dataclass(frozen=True)
class Forms:
    """One network in every form that an engine takes."""

    network: nn.Module
    quantized: quantization.QuantizedModel
    float_file: Path
    int8_file: Path
    theirs: dict[str, Path | None]  # int8 by the engines' own quantizers, by ending


def forms(name: str, network: nn.Module, folder: Path) -> Forms:
    """Every form of a network, whose weights are drawn anew."""
    torch.manual_seed(0)
    for weight in network.parameters():
        if weight.dim() > 1:
            # Normally distributed, as trained weights are; of uniform ones too many would be near
            # the largest.
            nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
    metrics.randomize_batchnorm(network, 0)
    images = torch.randint(0, 256, (CALIBRATION, 3, 32, 32), dtype=torch.uint8)
    # The one form of a residual addition that engines have an int8 kernel for.
    separate = quantization.quantize(network, images, quantization.Recipe(residual="separate"))
    int8_file = quantization.to_onnx(separate, folder / f"{name}-int8.onnx")
    quantized = quantization.quantize(network, images)
    quantized.mode = "kernel"
    float_file = folder / f"{name}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's notes about its own future
        axes = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
        torch.onnx.export(network, (torch.zeros(1, 3, 32, 32),), float_file, dynamo=False, **axes)
    worker = Worker(quantizers, network, images)  # their threads stay in a process of their own
    theirs = {ending: worker.ask(ending, folder / f"{name}{ending}") for ending in THEIRS}
    worker.close()
    return Forms(network, quantized, float_file, int8_file, theirs)


def quantizers(network: nn.Module, images: Tensor) -> Callable[[str, Path], Path | None]:
    """The engines' own quantizers; each named by the ending of its file."""
    from course.benchmarks import quantization_rivals as rivals

    def quantized(ending: str, path: Path) -> Path | None:
        if ending == ".static.onnx":
            return rivals.onnx_runtime_static(network, images, "MinMax", path)
        return rivals.nncf_static(network, images, path) if find_spec("nncf") else None

    return quantized


def eager(form: Forms, x: Tensor, threads: int) -> Callable[[], object]:
    model = form.network.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    return lambda: model(x)


def ours_float(form: Forms, x: Tensor, threads: int) -> Callable[[], object]:
    x = x.to(memory_format=torch.channels_last)
    model = passes.optimize(form.network, x, level="inference")[0]
    return lambda: model(x)


def onnx_runtime(path: Path, x: Tensor, threads: int) -> Callable[[], object]:
    # Imported here, for no process may have threads when it forks.
    from course.benchmarks.quantization_rivals import run_onnx

    return partial(run_onnx(path, threads, exact=False), x)


def openvino(path: Path, x: Tensor, threads: int) -> Callable[[], object]:
    from course.benchmarks.quantization_rivals import run_openvino

    return partial(run_openvino(path, threads, x.shape), x)


ENGINES: dict[str, Callable[[Forms, Tensor, int], Callable[[], object]]] = {
    "PyTorch eager float32": eager,
    "this course float32": ours_float,
    "this course int8": lambda form, x, threads: lambda: form.quantized(x),
    "ONNX Runtime float32": lambda form, x, threads: onnx_runtime(form.float_file, x, threads),
    "ONNX Runtime int8": lambda form, x, threads: onnx_runtime(form.int8_file, x, threads),
    "ONNX Runtime int8, its own": lambda form, x, threads: onnx_runtime(
        form.theirs[".static.onnx"], x, threads
    ),
    "OpenVINO float32": lambda form, x, threads: openvino(form.float_file, x, threads),
    "OpenVINO int8": lambda form, x, threads: openvino(form.int8_file, x, threads),
    "OpenVINO int8, its own": lambda form, x, threads: openvino(form.theirs[".xml"], x, threads),
}


def contestant(engine: str, form: Forms, threads: int) -> Callable[[int], float]:
    """One engine with one network; asked for a batch size, it says how many milliseconds one call
    takes now.
    """
    torch.set_num_threads(threads)
    draw = torch.Generator().manual_seed(1)
    calls = {
        batch: ENGINES[engine](form, torch.randn(batch, 3, 32, 32, generator=draw), threads)
        for batch in BATCHES
    }

    @torch.inference_mode()
    @kept_memory()
    def turn(batch: int) -> float:
        call, count = calls[batch], 0
        time.sleep(PAUSE_SECONDS)  # threads of the one before spin for a while
        call()
        start = time.perf_counter()
        while (taken := time.perf_counter() - start) < SECONDS_PER_TURN:
            call()
            count += 1
        return 1e3 * taken / count

    return turn


def turns_of(name: str, form: Forms, engines: list[str], draw: random.Random) -> list[tuple]:
    """The turns of all engines with one network in one pass."""
    workers = {}
    for engine in engines:
        workers[engine] = Worker(contestant, engine, form, THREADS)
        for batch in BATCHES:  # workers start one by one, outside the timed turns
            workers[engine].ask(batch)
    places = list(itertools.product(engines, BATCHES))
    # In another order each time: what disturbs the machine hits all alike.
    order = [place for _ in range(ROUNDS) for place in draw.sample(places, len(places))]
    turns = [(name, engine, batch, workers[engine].ask(batch)) for engine, batch in order]
    for worker in workers.values():
        worker.close()
    return turns


def measured(networks: dict[str, nn.Module], engines: list[str]) -> pd.DataFrame:
    """All turns of all rounds, as one row for each network, engine and batch size."""
    turns = []
    with tempfile.TemporaryDirectory() as folder:
        ready = {name: forms(name, network, Path(folder)) for name, network in networks.items()}
        # One network after the other, for memory does not hold processes for all; eight times, so
        # that a slow minute of the machine does not hit one network alone.
        draw = random.Random(0)
        for _ in range(PASSES):
            for name in draw.sample([*ready], len(ready)):
                turns += turns_of(name, ready[name], engines, draw)
    place = ["name", "engine", "batch"]
    by_place = pd.DataFrame(turns, columns=[*place, "ms"]).groupby(place).ms
    table = pd.DataFrame(
        {
            "median_ms": by_place.median(),
            "iqr_ms": by_place.quantile(0.75) - by_place.quantile(0.25),
        }
    )
    order = list(itertools.product(ready, engines, BATCHES))
    return table.loc[order].reset_index().assign(rounds=PASSES * ROUNDS)


def file_of(name: str) -> Path:
    """A file of a network's structure, which all of its files in data/checkpoints/ share."""
    if found := sorted(models.CHECKPOINTS.glob(f"{name}[.-]*")):
        return found[0]
    raise SystemExit(
        f"data/checkpoints/ has no file of {name}: make one, python -m course sweep reference"
        f" {name}"
    )


def save(table: pd.DataFrame, path: Path) -> None:
    """Write milliseconds, and the conditions under which they were measured."""
    conditions = provenance() | {"threads": THREADS, "load": round(os.getloadavg()[0], 1)}
    write_atomically(path, table.assign(**conditions).to_csv(index=False, float_format="%.4f"))


def main() -> None:
    parser = described(__doc__)
    parser.parse_args()
    need(parser, "openvino", "nncf")
    torch.set_num_threads(1)  # workers are forked from here
    names = load().query("weight_bits == '32'").name
    networks = {name: float_structure(file_of(name)) for name in names}
    table = measured(networks, [*ENGINES])
    save(table, SPEED)
    print(
        table.pivot_table("median_ms", ["name", "engine"], "batch", sort=False).round(2).to_string()
    )


if __name__ == "__main__":
    main()
