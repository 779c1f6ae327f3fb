"""Prune every classification network of torchvision at 30 %, ours beside Torch-Pruning.

    python -m benchmarks.pruning networks                 ours, all networks
    python -m benchmarks.pruning networks --rival         Torch-Pruning as well (pip install torch-pruning)
    python -m benchmarks.pruning networks resnet18 ...    some networks

One row for each network and tool is written to data/results/pruning_networks.csv as soon as it is known; a row that is
there is not computed again (--again does). Each job is a process of its own, with a time limit.
Seconds are for finding the groups and pruning (L1, all groups, 30 %), without building the network, on one thread:
by the clock, and of processor time, which other work on the machine does not lengthen; the median of up to five
runs on fresh networks (fewer where they take long), because a first run also loads parts of PyTorch.
"""

import argparse
import csv
import gc
import importlib
import multiprocessing
import statistics
import time
import warnings
from datetime import date
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torchvision
from torch import nn

RESULTS = Path(__file__).resolve().parents[1] / "data" / "results" / "pruning_networks.csv"
FIELDS = ["network", "tool", "parameters", "left", "share", "seconds", "cpu_seconds", "runs", "outcome"]
FIELDS += ["command", "date", "torch", "torchvision", "device"]
MODULES = {"ours": "helpers.pruning", "torch-pruning": "torch_pruning"}
TOOLS = list(MODULES)
RATIO = 0.3
LIMIT_SECONDS = 540
RUNS, ENOUGH_SECONDS = 5, 3


def built(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    size = {"inception_v3": 299, "vit_h_14": 224}.get(name, 224)
    return torchvision.models.get_model(name, weights=None, **extra).eval(), torch.zeros(1, 3, size, size)


def ours(model: nn.Module, x: torch.Tensor) -> nn.Module:
    from helpers import pruning

    return pruning.prune(model, x, ratio=RATIO, scope="all")


def rival(model: nn.Module, x: torch.Tensor) -> nn.Module:
    import torch_pruning as tp

    outputs = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == 1000]
    outputs += [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.out_channels == 1000]
    heads = {m: m.num_heads for m in model.modules() if isinstance(m, nn.MultiheadAttention)}
    pruner = tp.pruner.MagnitudePruner(
        model,
        x,
        importance=tp.importance.MagnitudeImportance(p=1),
        pruning_ratio=RATIO,
        ignored_layers=outputs,
        num_heads=heads,
    )
    pruner.step()
    return model


def job(name: str, tool: str) -> dict:
    """Build, prune, run; the row as far as it is known."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clock, processor, small = [], [], None
    while len(clock) < RUNS and sum(processor) < ENOUGH_SECONDS:
        del small  # its memory is not given back while the next one is timed
        model, x = built(name)
        before = sum(p.numel() for p in model.parameters())
        gc.collect()  # so that each run begins with the same amount of rubbish: none
        start = time.perf_counter(), time.process_time()
        small = {"ours": ours, "torch-pruning": rival}[tool](model, x)
        clock.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    with torch.no_grad():
        small.eval()(x)
    left = sum(p.numel() for p in small.parameters())
    seconds, cpu = round(statistics.median(clock), 4), round(statistics.median(processor), 4)
    measured = {"seconds": seconds, "cpu_seconds": cpu, "runs": len(clock), "outcome": "ok"}
    return {"parameters": before, "left": left, "share": round(left / before, 4)} | measured


def in_process(name: str, tool: str) -> dict:
    """The job in a process of its own, so that one failure or endless loop stays one row."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=report, args=(name, tool, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(LIMIT_SECONDS) else {"outcome": f"no answer in {LIMIT_SECONDS} s"}
    except EOFError:
        return {"outcome": "the process ended without an answer"}
    finally:
        process.kill()
        process.join()


def report(name: str, tool: str, answer: Connection) -> None:
    """Send the row, or what went wrong."""
    try:
        answer.send(job(name, tool))
    except Exception as error:
        answer.send({"outcome": f"{type(error).__name__}: {error}".splitlines()[0][:200]})


def table() -> list[dict]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def store(row: dict) -> None:
    rows = [r for r in table() if (r["network"], r["tool"]) != (row["network"], row["tool"])] + [row]
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda r: (r["network"], r["tool"])))


def summary(rows: list[dict]) -> str:
    """Networks handled by each, and how much faster ours is on those that both handle."""
    ok = {(r["network"], r["tool"]): r for r in rows if r["outcome"] == "ok"}
    lines = []
    for tool in TOOLS:
        tried = [r for r in rows if r["tool"] == tool]
        lines.append(f"{tool}: {sum(r['outcome'] == 'ok' for r in tried)} of {len(tried)} networks")
    both = sorted({n for n, _ in ok if (n, "ours") in ok and (n, "torch-pruning") in ok})
    if both:
        pairs = [(float(ok[n, "torch-pruning"]["cpu_seconds"]), float(ok[n, "ours"]["cpu_seconds"])) for n in both]
        theirs, mine = (sum(side) for side in zip(*pairs, strict=True))
        middle = statistics.median(a / b for a, b in pairs)
        lines.append(
            f"on {len(both)} networks that both handle: {theirs:.1f} s of processor time against {mine:.1f} s,"
        )
        lines.append(f"{theirs / mine:.1f} times faster in sum, {middle:.1f} times in median")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help="torchvision names; all by default")
    parser.add_argument("--rival", action="store_true", help="run Torch-Pruning as well")
    parser.add_argument("--again", action="store_true", help="compute rows that are there already")
    arguments = parser.parse_args(argv)
    for tool in TOOLS[: 2 if arguments.rival else 1]:  # once, for all jobs
        importlib.import_module(MODULES[tool])
    known = {(r["network"], r["tool"]) for r in table()}
    for name in arguments.networks or torchvision.models.list_models(module=torchvision.models):
        for tool in TOOLS[: 2 if arguments.rival else 1]:
            if arguments.again or (name, tool) not in known:
                row = dict.fromkeys(FIELDS, "") | {"network": name, "tool": tool} | in_process(name, tool)
                row |= {
                    "command": "python -m benchmarks.pruning networks" + " --rival" * arguments.rival,
                    "date": str(date.today()),
                }
                row |= {"torch": version("torch"), "torchvision": version("torchvision"), "device": "CPU, 1 thread"}
                store(row)
                print(
                    f"{name:24} {tool:14} {row['share'] or '-':>7} {row['cpu_seconds'] or '-':>8} {row['outcome']}",
                    flush=True,
                )
    print(summary(table()))


if __name__ == "__main__":
    main()
