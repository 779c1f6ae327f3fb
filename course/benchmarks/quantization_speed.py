"""Milliseconds of the float network and of every int8 form of it, and how near each comes to the machine's limit."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from course.benchmarks import quantization_rivals as rivals
from helpers import data, metrics, pruning, quantization
from helpers.allocator import kept_memory

EXAMPLE = torch.zeros(1, 3, 32, 32)
WIDTHS = 16  # pruned channels come in multiples of this, as the kernels take them
SIDE, TRIES = 2048, 10
PRUNED = "pruned by half: "


def speed(model: nn.Module, images: torch.Tensor, threads: int, folder: Path, only: list[str] | None) -> pd.DataFrame:
    """Medians of interleaved runs; `speedup` is against eager float32, `of_limit` against the machine's arithmetic.

    Once with the memory allocator as it comes, and once with freed memory kept in the process: eager float32 at batch
    128 makes activations so large that getting memory for them takes longer than computing them.
    """
    torch.set_num_threads(threads)
    half = pruning.prune(model, EXAMPLE, scope="hidden", target_params=0.5, round_to=WIDTHS)
    networks = dict(forms(model, images, threads, folder)) | {
        PRUNED + name: network for name, network in forms(half, images, threads, folder)
    }
    chosen = {name: network for name, network in networks.items() if not only or name in only}
    macs = {name: metrics.count_macs(half if name.startswith(PRUNED) else model, EXAMPLE) for name in chosen}
    limits, tables = peaks(), []
    for allocator, surroundings in (("as it comes", nullcontext), ("memory kept", kept_memory)):
        for batch, rounds in ((1, 200), (128, 10)):
            x = data.normalize(images[:batch]).contiguous(memory_format=torch.channels_last)
            with surroundings():
                table = metrics.compare_latency(chosen, x, threads, rounds)
            limit = [batch * macs[n] / limits["float32" if "float32" in n else "int8"] * 1e3 for n in table.name]
            tables.append(table.assign(allocator=allocator, of_limit=limit / table.median_ms))
    return pd.concat(tables).assign(**{f"{kind}_gmacs_per_s": rate / 1e9 for kind, rate in limits.items()})


def forms(model: nn.Module, images: torch.Tensor, threads: int, folder: Path) -> Iterator[tuple[str, Callable]]:
    """One network in float and in every int8 that it is compared with."""
    folder = Path(folder) / str(metrics.count_parameters(model))
    folder.mkdir()
    kernel = quantization.quantize(model, images, quantization.Recipe())
    kernel.mode = "kernel"
    separate = quantization.quantize(model, images, quantization.Recipe(residual="separate"))
    ours = quantization.to_onnx(separate, folder / "ours.onnx")
    theirs = rivals.onnx_runtime_static(model, images, "MinMax", folder / "theirs.onnx")
    yield "eager float32", model.to(memory_format=torch.channels_last)
    yield "ours, kernel", kernel
    yield "PyTorch FX int8", rivals.pytorch_fx(model, images)
    yield "ours in ONNX Runtime", rivals.run_onnx(ours, threads, exact=False)
    yield "ONNX Runtime static int8", rivals.run_onnx(theirs, threads, exact=False)
    yield "ONNX Runtime static int8, exact", rivals.run_onnx(theirs, threads, exact=True)


def peaks() -> dict[str, float]:
    """Multiply-adds per second that large matrix products reach here, with as many threads as PyTorch has now."""
    left, right = torch.randn(2, SIDE, SIDE)
    codes, weights = torch.randint(-127, 128, (2, SIDE, SIDE), dtype=torch.int8)
    return {"float32": rate(torch.mm, left, right), "int8": rate(torch._int_mm, codes, weights)}


def rate(product: Callable, left: torch.Tensor, right: torch.Tensor) -> float:
    """The best of several tries: what disturbs a try can only slow it."""
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        product(left, right)
        times.append(time.perf_counter() - start)
    return SIDE**3 / min(times)
