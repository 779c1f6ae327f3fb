"""What the networks of other packages do to `optimize`, `prune` and `quantize`, and to other tools.

    python -m course.benchmarks.wild --package timm|transformers|torchvision [--only NAME ...]
        [--steps optimize prune quantize onnx rivals] [--count 40] [--again crashed refused ...]

Networks are untrained and small (images of 64 pixels where that is enough), with random statistics
of BatchNorm; --count takes the smallest of each family first (`wild_networks.py`). Each network has
a process of its own, with limits of memory and of processor time. One row is written to
data/results/wild.csv as soon as it is known; a row that is there is not made again, unless --again
names its result.

    right     the answers are those of the network: for other inputs than the example's, too, for a
              pruned network those with the same channels at zero; for a quantized one the modes
              agree step by step, and its error is at most twice that of PyTorch's own rounding in
              the same places (`wild_reference.py`); an ONNX file answers as the integers do
    refused   by an error that the package raises on purpose, with its reason
    wrong     handed out, and the answers differ
    crashed   any other error, or the end of the process

The share of networks that are right is that of these four. What is left out stands beside it:

    not for images         the network takes words, and what is quantized here takes images
    no classes             Torch-Pruning has to be told which layer makes the answer
    not built              the network's own package does not build it
    too slow, too large    over the limit

`foldable` counts the batch norms right behind a layer whose result nobody else reads, as the
network runs, and `folded` those that are gone afterwards. A network that answers with a structure
is quantized for its first tensor.
"""

import math
import re
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

import pandas as pd
import torch
from torch import nn

from course.benchmarks import wild_steps
from course.benchmarks.common import KnownRows, Worker, WorkerError, described, refuse_unknown
from course.benchmarks.wild_networks import PACKAGES, network
from course.benchmarks.wild_rivals import NEEDED, RIVALS
from course.benchmarks.wild_steps import Found, LeftOut, Wrong
from course.reference.tools import COUNTED
from course.reference.tools import STEPS as SHOWN

SECONDS, GIGABYTES = 120, 8
# Of a number, of a library, of an ONNX file, in C++.
NO_MEMORY = ("can't allocate memory", "failed to map segment", "Failed to serialize proto")
NO_MEMORY += ("bad_alloc", "bad allocation")
LONGEST = 3600  # seconds by the clock, for a process that hangs without computing
COLUMNS = ("result", "reason", "inputs", "seconds", "foldable", "folded", "left", "decibels")
COLUMNS += ("reference",)
STEPS = wild_steps.STEPS | RIVALS


class OutOfTime(BaseException):
    """A step took too long; not an `Exception`, for nobody may catch it on the way."""


def kind(error: Exception | str) -> str:
    """A reason without the names and numbers of one network, short enough to count."""
    text = " ".join(str(error).split())
    text = re.sub(r"\S*/(\w+\.py):\d+", r"\1", text)  # paths of this machine do not belong there
    return re.sub(r"\d+", "N", text)[:160]


def is_refusal(error: Exception, packages: list[str]) -> bool:
    """Whether code of these packages raised it on purpose."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    meant = (last.line or "").startswith("raise ")
    return any(
        (meant and f"/{package}/" in last.filename)
        or type(error).__module__.startswith(f"{package}.")
        for package in packages
    )


def outcome(step: str, model: nn.Module, inputs: tuple) -> Found:
    """What one step does with one network."""
    started = time.process_time()
    torch.manual_seed(0)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with torch.no_grad():
            found = {"result": "right"} | STEPS[step](model, inputs)
    except OutOfTime:
        found = {"result": "too slow", "reason": f"more than {SECONDS} s of the processor"}
    except LeftOut as error:
        result, *reasons = error.args
        found = {"result": result, "reason": " ".join(map(kind, reasons))}
    except Wrong as error:
        found = {"result": "wrong", "reason": str(error)}
    except Exception as error:
        found = {"result": "refused", "reason": kind(error)}
        if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
            found = {"result": "too large", "reason": f"more than {GIGABYTES} GB"}
        elif not is_refusal(error, NEEDED.get(step, ["helpers"])):
            found = {"result": "crashed", "reason": kind(f"{type(error).__name__}: {error}")}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    size = " ".join("x".join(map(str, x.shape)) for x in inputs)
    return {"inputs": size, "seconds": round(time.process_time() - started, 1)} | found


def out_of_time(*_: object) -> None:
    """What the clock of the process calls."""
    raise OutOfTime


def limited(package: str, name: str) -> Callable[[str], Found]:
    """The process of one network: asked for a step, it says what came out."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))
    signal.signal(signal.SIGPROF, out_of_time)
    try:
        model, inputs = network(package, name)
    except Exception as error:
        reason = kind(f"{type(error).__name__}: {error}")
        return lambda step: {"result": "not built", "reason": reason}
    return lambda step: outcome(step, model, inputs)


def measured(package: str, name: str, steps: list[str]) -> Iterator[tuple[str, Found]]:
    """The rows of some steps with one network; in a new process after one that ended, or whose
    memory was full.
    """
    worker = None
    for step in steps:
        worker = worker or Worker(limited, package, name)
        try:
            found = worker.ask(step, seconds=LONGEST)
        except WorkerError as error:
            found = {"result": "crashed", "reason": kind(error)}
        yield step, found
        if found["result"] in ("crashed", "too large"):
            worker.close()
            worker = None
    if worker:
        worker.close()


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """For each step how many networks had which result, and the share of the norms that folded.

    A step whose package is not installed is empty.
    """
    table = rows.pivot_table("network", "step", "result", aggfunc="count", fill_value=0)
    names = [*table.columns.intersection(COUNTED), *table.columns.difference(COUNTED)]
    table = table.reindex(index=SHOWN, columns=names, fill_value=0)
    sums = rows.groupby("step")[["foldable", "folded"]].sum()
    counted = table[[name for name in COUNTED if name in table]].sum(axis=1)
    table["right %"] = (100 * table.get("right", 0) / counted).round(1)
    table["folded %"] = (100 * sums.folded / sums.foldable).round(1)
    return table


def version_of(package: str) -> str:
    """Which version is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def main(arguments: list[str] | None = None) -> None:
    """Make the rows that are missing."""
    parser = described(__doc__)
    parser.add_argument("--package", choices=PACKAGES, required=True)
    parser.add_argument("--only", nargs="+", help="these networks; all by default")
    steps = ["optimize", "prune", "quantize", "onnx", "rivals"]
    parser.add_argument("--steps", nargs="+", choices=steps, default=steps)
    parser.add_argument("--count", type=int, help="the first so many networks")
    parser.add_argument("--again", nargs="+", default=[], help="rows with these results")
    options = parser.parse_args(arguments)
    everything = PACKAGES[options.package].names()
    refuse_unknown(parser, options.only or (), everything)
    table = KnownRows("wild", package=options.package)
    installed = version_of(options.package)
    names = (options.only or everything)[: options.count]
    kinds = {step: "rivals" if step in RIVALS else step.split()[0] for step in STEPS}
    chosen = [step for step in STEPS if kinds[step] in options.steps]
    for name in names:
        known = {step: table.find(network=name, step=step) or {} for step in chosen}
        missing = [one for one in chosen if known[one].get("result") in (None, *options.again)]
        for step, found in measured(options.package, name, missing):
            place = {"network": name, "step": step}
            row = place | {"version": installed} | dict.fromkeys(COLUMNS, math.nan) | found
            table.add(row, seed=0, instead_of=place)
    print(summary(table.mine()).to_string())


if __name__ == "__main__":
    main()
