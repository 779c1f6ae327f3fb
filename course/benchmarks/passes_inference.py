"""How fast the optimised MobileNetV2 answers, beside what else there is on a CPU, in one interleaved run.

    python course/benchmarks/passes_inference.py [--rounds 15] [--batches 1 128]

Everybody computes the same network (random weights, float32) on the same input with the same number of threads, and
must give the same answer before anything is timed. In each round everybody has a turn, so a disturbance hits all alike.

All of it is done twice, in two processes one after the other: once with the memory allocator as it comes, and once with
freed memory kept in the process (what `Predictor` does). glibc gives blocks of more than 32 MB back to the system each
time, and getting them again costs as much as the arithmetic; at a batch of 128 several activations are that large. So
one can see what comes from the passes and what from the allocator.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor, nn

THREADS = 2
ALLOCATORS = {
    "as it comes": {},
    "memory kept": {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=2147483647"},
}
OURS, EAGER, COMPILED = "ours", "eager channels_last", "torch.compile + freezing"
WARM_UP, SECONDS_PER_TURN, PAUSE_SECONDS = 3, 0.1, 0.05


def network() -> nn.Module:
    """MobileNetV2 with random weights and BatchNorm statistics that are not the identity."""
    from helpers import models

    torch.manual_seed(0)
    model = models.mobilenet_v2().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.3)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.bias, std=0.3)
    return model


def contestants(x: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Everybody who is compared, ready to be called. Each gets the memory layout that suits it."""
    import torch._inductor.config
    from torch.fx.experimental.optimization import fuse

    from helpers import passes

    torch._inductor.config.freezing = True
    last = x.to(memory_format=torch.channels_last)
    models = {
        OURS: passes.optimize(network(), x, level="inference")[0],
        EAGER: network().to(memory_format=torch.channels_last),
        "torch.fx fuse": fuse(network()).to(memory_format=torch.channels_last),
        COMPILED: torch.compile(network().to(memory_format=torch.channels_last)),
    }
    calls = {name: lambda model=model: model(last) for name, model in models.items()}
    nchw = network()
    return calls | {"eager NCHW": lambda: nchw(x), "ONNX Runtime": onnx_runtime(network(), x)}


def onnx_runtime(model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """The network in ONNX Runtime, float32, on the CPU."""
    import onnxruntime

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), file, dynamo=False, input_names=["x"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {"x": x.numpy()}
    return lambda: torch.from_numpy(session.run(None, feed)[0])


def check(calls: dict[str, Callable[[], Tensor]], x: Tensor) -> None:
    """Nobody is timed for a wrong answer."""
    exact = network().double()(x.double())
    for name, call in calls.items():
        error = ((call() - exact).abs().max() / exact.abs().max()).item()
        if error > 1e-4:
            raise RuntimeError(f"{name} is wrong by {error:.1e} relative to the float64 network")


def worker(batch: int) -> None:
    """Answer each line on the standard input by one turn of everybody: {name: milliseconds} as JSON."""
    torch.set_num_threads(THREADS)
    x = torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        calls = contestants(x)
        check(calls, x)
        repeats = {}
        for name, call in calls.items():
            for _ in range(WARM_UP):
                call()
            repeats[name] = max(1, int(1e3 * SECONDS_PER_TURN / milliseconds(call, 1)))
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps({name: turn(call, repeats[name]) for name, call in calls.items()}), flush=True)


def turn(call: Callable[[], Tensor], repeats: int) -> float:
    """One turn of one contestant. Threads of the one before spin for a while, and it has left the caches to itself."""
    time.sleep(PAUSE_SECONDS)
    call()
    return milliseconds(call, repeats)


def milliseconds(call: Callable[[], Tensor], repeats: int) -> float:
    """The time of one call, averaged over `repeats`."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return 1e3 * (time.perf_counter() - start) / repeats


def measure(batch: int, allocator: str, rounds: int) -> pd.DataFrame:
    """All rounds at one batch size with one allocator: one line for each contestant, with ratios to ours."""
    process = start(batch, ALLOCATORS[allocator])
    if process.stdout.readline().strip() != "ready":
        raise RuntimeError("the worker process failed; its error stands above")
    turns = []
    for _ in range(rounds):
        print("go", file=process.stdin, flush=True)
        turns.append(json.loads(process.stdout.readline()))
    process.communicate()
    lines = []
    for name in turns[0]:
        low, median, high = statistics.quantiles([turn[name] for turn in turns], n=4)
        ratio = statistics.median(turn[name] / turn[OURS] for turn in turns)
        lines.append({"name": name, "median_ms": median, "iqr_ms": high - low, "time / ours": ratio})
    return pd.DataFrame(lines)


def start(batch: int, environment: dict[str, str]) -> subprocess.Popen:
    """A worker process; the allocator reads its settings from the environment when the process starts."""
    command = [sys.executable, __file__, "--worker", str(batch)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | environment, **pipes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 128])
    parser.add_argument("--worker", type=int, metavar="BATCH", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        return worker(arguments.worker)
    for batch in arguments.batches:
        for allocator in ALLOCATORS:
            table = measure(batch, allocator, arguments.rounds)
            setting = f"{THREADS} threads, {arguments.rounds} rounds, torch {torch.__version__}, allocator: {allocator}"
            print(f"MobileNetV2, batch {batch}, {setting}")
            print(table.round(3).to_string(index=False), flush=True)
    return None


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    main()
