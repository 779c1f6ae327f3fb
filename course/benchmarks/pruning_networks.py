"""Prune every classification network of torchvision at 30 %, ours beside Torch-Pruning.

    python -m course.benchmarks.pruning networks                 ours, all networks
    python -m course.benchmarks.pruning networks --rival         Torch-Pruning as well (pip install torch-pruning)
    python -m course.benchmarks.pruning networks resnet18 ...    some networks

One row for each network and tool is written to data/results/pruning_networks.csv as soon as it is known; a row that is
there is not computed again (--again does). Each tool has a process of its own, with a time limit, and the two take
turns. Seconds are for finding the groups and pruning (L1, all groups, 30 %), without building the network, on one
thread: by the clock, and of processor time, which other work on the machine does not lengthen; the median of up to
seven runs on fresh networks (fewer where they take long), because a first run also loads parts of PyTorch.
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

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "pruning_networks.csv"
FIELDS = ["network", "tool", "parameters", "left", "share", "seconds", "cpu_seconds", "runs", "outcome"]
FIELDS += ["command", "date", "torch", "torchvision", "device"]
MODULES = {"ours": "helpers.pruning", "torch-pruning": "torch_pruning"}
TOOLS = list(MODULES)
RATIO = 0.3
LIMIT_SECONDS = 540
RUNS, ENOUGH_SECONDS = 7, 4


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


def serve(name: str, tool: str, orders: Connection) -> None:
    """Prune a fresh network each time that "prune" is asked for, then run the last result; or say what went wrong."""
    try:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        small = None
        while orders.recv() == "prune":
            del small  # its memory is not given back while the next one is timed
            model, x = built(name)
            before = sum(p.numel() for p in model.parameters())
            gc.collect()  # so that each run begins with the same amount of rubbish: none
            start = time.perf_counter(), time.process_time()
            small = {"ours": ours, "torch-pruning": rival}[tool](model, x)
            orders.send((time.perf_counter() - start[0], time.process_time() - start[1]))
        with torch.no_grad():
            small.eval()(x)
        left = sum(p.numel() for p in small.parameters())
        orders.send({"parameters": before, "left": left, "share": round(left / before, 4), "outcome": "ok"})
    except Exception as error:
        orders.send({"outcome": f"{type(error).__name__}: {error}".splitlines()[0][:200]})


class Contestant:
    """A tool at work on one network, in a process of its own, so that one failure or endless loop stays one row."""

    def __init__(self, name: str, tool: str) -> None:
        fork = multiprocessing.get_context("fork")
        self.orders, theirs = fork.Pipe()
        self.process = fork.Process(target=serve, args=(name, tool, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.times: list[tuple[float, float]] = []
        self.row: dict = {}

    def turn(self) -> None:
        """Prune once more; or, when that was enough, run the result and finish."""
        enough = len(self.times) == RUNS or sum(cpu for _, cpu in self.times) > ENOUGH_SECONDS
        answer = self.ask("run" if enough else "prune")
        if isinstance(answer, tuple):
            self.times.append(answer)
            return
        self.row = answer
        if answer["outcome"] == "ok":
            seconds, cpu = (round(statistics.median(column), 4) for column in zip(*self.times, strict=True))
            self.row |= {"seconds": seconds, "cpu_seconds": cpu, "runs": len(self.times)}
        self.process.kill()
        self.process.join()

    def ask(self, order: str) -> tuple[float, float] | dict:
        """The answer to an order, or what happened instead of one."""
        try:
            self.orders.send(order)
            late = {"outcome": f"no answer in {LIMIT_SECONDS} s"}
            return self.orders.recv() if self.orders.poll(LIMIT_SECONDS) else late
        except (EOFError, OSError):
            return {"outcome": "the process ended without an answer"}


def compete(name: str, tools: list[str]) -> dict[str, dict]:
    """The rows of these tools for one network."""
    contestants = {tool: Contestant(name, tool) for tool in tools}
    while playing := [c for c in contestants.values() if not c.row]:
        for contestant in playing:
            contestant.turn()
    return {tool: contestant.row for tool, contestant in contestants.items()}


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
    tools = TOOLS[: 2 if arguments.rival else 1]
    for tool in tools:  # once, for all networks
        importlib.import_module(MODULES[tool])
    known = {(r["network"], r["tool"]) for r in table()}
    command = "python -m course.benchmarks.pruning networks" + " --rival" * arguments.rival
    stamp = {"command": command, "date": str(date.today()), "device": "CPU, 1 thread"}
    stamp |= {package: version(package) for package in ("torch", "torchvision")}
    for name in arguments.networks or torchvision.models.list_models(module=torchvision.models):
        wanted = [tool for tool in tools if arguments.again or (name, tool) not in known]
        for tool, found in compete(name, wanted).items():
            row = dict.fromkeys(FIELDS, "") | {"network": name, "tool": tool} | found | stamp
            store(row)
            numbers = f"{row['share'] or '-':>7} {row['cpu_seconds'] or '-':>8}"
            print(f"{name:24} {tool:14} {numbers} {row['outcome']}", flush=True)
    print(summary(table()))


if __name__ == "__main__":
    main()
