"""What the networks of other packages do to `optimize`, `prune` and `quantize`.

    python -m course.benchmarks.wild --package timm|transformers|torchvision [--only NAME ...]
        [--steps optimize prune quantize onnx] [--count 40] [--again crashed refused ...]

Networks are untrained and small (images of 64 pixels where that is enough), with random statistics
of BatchNorm. Each network has a process of its own, with limits of memory and of processor time.
One row is written to data/results/wild.csv as soon as it is known; a row that is there is not made
again, unless --again names its result.

    right     the answers are those of the network: for other inputs than the example's, too, for a
              pruned network those with the same channels at zero, for a quantized one in all modes
              and at least 10 dB above its error, for an ONNX file those of the integers
    refused   by an error that this course raises, with its reason
    wrong     handed out, and the answers differ
    crashed   any other error, or the end of the process
    too slow, too large    over the limit

`foldable` counts the batch norms right behind a layer whose result nobody else reads, as the
network runs, and `folded` those that are gone afterwards.
"""

import argparse
import copy
import functools
import math
import re
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from course.benchmarks.common import KnownRows, Worker, WorkerError
from course.benchmarks.wild_networks import PACKAGES, network
from course.benchmarks.wild_norms import foldable_norms
from helpers import passes, pruning, quantization
from helpers.graphs.tracing import OTHER_INPUTS

RATIO = 0.3
IMAGES = 16
ROUNDING = 1e-4  # of float32, relative to the largest answer
DECIBELS = 10  # at least, of a quantized network against the float32 one
CLOSE = 30  # of two forms of one quantized network, in decibels
SECONDS, GIGABYTES = 90, 8
LONGEST = 3600  # seconds by the clock, for a process that hangs without computing
COLUMNS = ("result", "reason", "inputs", "seconds", "foldable", "folded", "left", "decibels")
Found = dict[str, Any]


class OutOfTime(BaseException):
    """A step took too long; not an `Exception`, for nobody may catch it on the way."""


class Wrong(Exception):
    """A network was handed out, and answers differently."""


def answers(model: nn.Module, inputs: tuple) -> list[Tensor]:
    """All tensors that a network answers with."""
    given = tuple(x.clone() for x in inputs)
    return [leaf for leaf in tree_leaves(model(*given)) if isinstance(leaf, Tensor)]


def others(inputs: tuple) -> tuple:
    """Inputs of the same form."""
    return tuple(torch.randn_like(x) if x.is_floating_point() else x.flip(-1) for x in inputs)


def distance(expected: list[Tensor], found: list[Tensor]) -> float:
    """The largest difference, relative to the largest number."""
    if [x.shape for x in expected] != [x.shape for x in found]:
        return math.inf
    gaps = [0.0]
    for one, two in zip(expected, found, strict=True):
        largest = one.double().abs().max().clamp(min=1e-12)
        gap = ((one.double() - two.double()).abs().max() / largest).item()
        gaps.append(math.inf if math.isnan(gap) else gap)
    return max(gaps)


def check_alike(model: nn.Module, made: nn.Module, inputs: tuple) -> None:
    """An error if two networks answer differently by more than ten times what float32 rounds."""
    wide = copy.deepcopy(model).double()
    for given in (inputs, others(inputs)):
        expected = answers(model, given)
        try:
            exact = answers(wide, tuple(x.double() if x.is_floating_point() else x for x in given))
            rounding = distance(exact, expected)
        except RuntimeError:  # it is written for float32
            rounding = 0.0
        gap = distance(expected, answers(made, given))
        if gap > max(ROUNDING, 10 * rounding):
            raise Wrong(f"answers differ by {gap:.1g}, and float32 rounds by {rounding:.1g}")


def check_batches(model: nn.Module, made: nn.Module, inputs: tuple) -> None:
    """An error if it answers another number of images otherwise; it may refuse them."""
    more = tuple(torch.cat([x, x[:1]]) for x in inputs)
    try:
        check_alike(model, made, more)
    except AssertionError as refusal:
        if OTHER_INPUTS not in str(refusal):
            raise


def optimized(model: nn.Module, inputs: tuple, **route: str) -> Found:
    """Fold with a route, or with that which `optimize` takes."""
    made, _ = passes.optimize(model, inputs, **route)
    check_alike(model, made, inputs)
    check_batches(model, made, inputs)
    foldable = foldable_norms(model, inputs)
    return {"foldable": foldable, "folded": foldable - foldable_norms(made, inputs)}


def pruned(model: nn.Module, inputs: tuple) -> Found:
    """Prune by magnitude what is zero before: cutting it must change nothing."""
    model = copy.deepcopy(model)
    for group in pruning.channel_groups(model, inputs).prunable("all"):
        none = math.ceil(0.4 * group.size)
        tensors = dict(model.named_parameters())
        for member in group.members:
            if member.tensor in tensors:
                chosen = torch.from_numpy(member.indices[member.units < none])
                tensors[member.tensor].index_fill_(member.dim, chosen, 0.0)
    small = pruning.prune(model, inputs, ratio=RATIO, scope="all")
    check_alike(model, small, inputs)
    before, after = (sum(p.numel() for p in one.parameters()) for one in (model, small))
    return {"left": round(after / before, 4)}


def decibels(expected: Tensor, found: Tensor) -> float:
    """The power of the answers over that of the error."""
    error = (found - expected).square().mean().clamp(min=1e-20)
    return 10 * math.log10((expected.square().mean() / error).item())


def check_forms(what: str, one: Tensor, other: Tensor, exact: float) -> float:
    """An error if two forms of a quantized network differ more than they do from float32.

    A sum that is rounded the other way makes a difference, which grows from layer to layer.
    """
    apart = decibels(one, other)
    if apart < min(exact, CLOSE):
        raise Wrong(f"{what} are {apart:.0f} dB apart, and float32 is {exact:.0f} dB away")
    return round(apart, 1)


def calibration(inputs: tuple) -> Tensor:
    """Images to measure ranges with."""
    return torch.randn(IMAGES, *inputs[0].shape[1:]) if len(inputs) == 1 else inputs


@functools.cache
def quantized_network(model: nn.Module, inputs: tuple) -> quantization.QuantizedModel:
    """The same for both steps that ask for it."""
    return quantization.quantize(model, calibration(inputs))


def quantized(model: nn.Module, inputs: tuple) -> Found:
    """Quantize, and compare the modes with each other and with float32."""
    made = quantized_network(model, inputs)
    expected, found = answers(model, inputs)[0], {}
    for mode in quantization.MODES:
        made.mode = mode
        found[mode] = made(*inputs)
    exact = decibels(expected, found["integer"])
    for one, two in (("simulated", "integer"), ("integer", "kernel")):
        check_forms(f"{one} and {two}", found[one], found[two], exact)
    if exact < DECIBELS:
        raise Wrong(f"{exact:.0f} dB above the error")
    return {"decibels": round(exact, 1)}


def exported(model: nn.Module, inputs: tuple) -> Found:
    """Write the quantized network as a file, and run it with ONNX Runtime."""
    from course.benchmarks.quantization_rivals import run_onnx  # loads threads

    made = quantized_network(model, inputs)
    made.mode = "integer"
    with tempfile.TemporaryDirectory() as folder:
        run = run_onnx(quantization.to_onnx(made, Path(folder) / "wild.onnx"), threads=1)
    integers = made(*inputs)
    exact = decibels(answers(model, inputs)[0], integers)
    return {"decibels": check_forms("the integers and the file", integers, run(*inputs), exact)}


STEPS: dict[str, Callable[[nn.Module, tuple], Found]] = {
    "optimize": optimized,
    "optimize fx": lambda model, inputs: optimized(model, inputs, route="fx"),
    "optimize export": lambda model, inputs: optimized(model, inputs, route="export"),
    "prune": pruned,
    "quantize": quantized,
    "onnx": exported,
}


def kind(error: Exception | str) -> str:
    """A reason without the names and numbers of one network, short enough to count."""
    text = " ".join(str(error).split())
    text = re.sub(r"\S*/(\w+\.py):\d+", r"\1", text)  # where files lie is nobody's business
    return re.sub(r"\d+", "N", text)[:160]


def is_refusal(error: Exception) -> bool:
    """Whether code of this course raised it on purpose."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = "/helpers/" in last.filename and (last.line or "").startswith("raise ")
    return ours or type(error).__module__.startswith("helpers.")


def outcome(step: str, model: nn.Module, inputs: tuple) -> Found:
    """What one step does with one network."""
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with torch.no_grad():
            found = {"result": "right"} | STEPS[step](model, inputs)
    except OutOfTime:
        found = {"result": "too slow", "reason": f"more than {SECONDS} s of the processor"}
    except Wrong as error:
        found = {"result": "wrong", "reason": str(error)}
    except Exception as error:
        found = {"result": "refused", "reason": kind(error)}
        if "can't allocate memory" in str(error) or isinstance(error, MemoryError):
            found = {"result": "too large", "reason": f"more than {GIGABYTES} GB"}
        elif not is_refusal(error):
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
    """The rows of some steps with one network; after the end of its process in a new one."""
    worker = None
    for step in steps:
        worker = worker or Worker(limited, package, name)
        try:
            yield step, worker.ask(step, seconds=LONGEST)
        except WorkerError as error:
            yield step, {"result": "crashed", "reason": kind(error)}
            worker.close()
            worker = None
    if worker:
        worker.close()


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """For each step how many networks had which result, and the share of the norms that folded."""
    table = rows.pivot_table("network", "step", "result", aggfunc="count", fill_value=0)
    sums = rows.groupby("step")[["foldable", "folded"]].sum()
    table["right %"] = (100 * table.get("right", 0) / table.sum(axis=1)).round(1)
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", choices=PACKAGES, required=True)
    parser.add_argument("--only", nargs="+", help="these networks; all by default")
    steps = ["optimize", "prune", "quantize", "onnx"]
    parser.add_argument("--steps", nargs="+", choices=steps, default=steps)
    parser.add_argument("--count", type=int, help="the first so many networks")
    parser.add_argument("--again", nargs="+", default=[], help="rows with these results")
    options = parser.parse_args(arguments)
    table = KnownRows("wild", package=options.package)
    installed = version_of(options.package)
    names = (options.only or PACKAGES[options.package].names())[: options.count]
    chosen = [step for step in STEPS if step.split()[0] in options.steps]
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
