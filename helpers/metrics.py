"""Honest numbers: parameters, multiply-adds, bytes of the real file, and latency with its spread.

Whether two networks compute the same is in `equivalence.py`, and is offered here too.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop, shape_wrapper

from helpers import models
from helpers.allocator import kept_memory
from helpers.dataset import Dataset, input_of
from helpers.equivalence import (  # noqa: F401  (offered here, too)
    EquivalenceError,
    assert_equivalent,
    randomize_batchnorm,
)

PAUSE_SECONDS = 0.05


def _lstm_flops(
    x: torch.Size, weight: torch.Size, state_weight: torch.Size, *_: Any, **__: Any
) -> int:
    return 2 * prod(x[:-1]) * (prod(weight) + prod(state_weight))


# Processor time excludes other programs. On Windows it moves in steps of 16 ms: too coarse.
clock = time.perf_counter if sys.platform == "win32" else time.process_time
# PyTorch's formulas, one for oneDNN's layer of an LSTM, and one that torch 2.11 lacks.
FLOPS = {
    **flop_registry,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,
    torch.ops.aten.mkldnn_rnn_layer: shape_wrapper(_lstm_flops),
}
# Words in the names of operators that take several tensors but multiply no matrices.
NO_PRODUCTS = ("norm", "copy", "scatter", "index")


class MeasurementError(ValueError):
    """Something cannot be measured as asked; says what to change."""


@dataclass(frozen=True)
class Profile:
    """What a network costs, whatever machine it runs on.

    Attributes:
        params: how many parameters it has.
        macs: multiply-adds of convolutions and matrix products for one image.
        file_bytes: the length of its file; None for a network without a specification.
        uncounted: operators that may multiply matrices too, for which no formula is known.
    """

    params: int
    macs: int
    file_bytes: int | None
    uncounted: tuple[str, ...] = ()


@torch.no_grad()
def check_scores(model: nn.Module, dataset: Dataset) -> None:
    """Refuse a network that does not give one score per class for an image of the data set."""
    image = input_of(model, dataset.train_images[:1].to(device_of(model)))
    try:
        with evaluation_mode(model):
            scores = model(image)
    except (NotImplementedError, torch.OutOfMemoryError):  # of the device, and not of the image
        raise
    except Exception as error:  # a network may raise anything
        reason = " ".join(str(error).split())[:200]
        if image.shape[1] == 1:
            reason += "; for grey images in three channels give a normalization of three numbers"
            reason += " (--mean, --deviation)"
        raise MeasurementError(
            f"the network does not take images of {tuple(image.shape[1:])}: {reason}"
        ) from error
    shape = tuple(getattr(scores, "shape", ()))
    wanted = (1, len(dataset.classes))
    if shape != wanted:
        what = f"an answer of shape {shape}" if shape else type(scores).__name__
        raise MeasurementError(
            f"the network gives {what} for one image, and {dataset.name} has {wanted[1]} classes:"
            " accuracy, fine-tuning and the choice of scales need one score per class, of shape"
            f" {wanted}; regression and detection have none"
        )


def use_faster_format(
    images: torch.Tensor, *models: nn.Module, teacher: nn.Module | None = None
) -> torch.memory_format:
    """Bring models, in place, into channels_last memory, where convolutions are faster, if all of
    them run in it; contiguous otherwise.

    Args:
        teacher: it has to run there as well, and is left as it is.

    Returns:
        The format in which the models are now.
    """
    asked = (*models, *filter(None, [teacher]))
    tensors = [t for model in models for t in chain(model.parameters(), model.buffers())]
    forms = (torch.channels_last, torch.contiguous_format)
    # On Apple's GPUs the gradients of a batch norm in channels_last are wrong before PyTorch 2.14:
    # https://github.com/pytorch/pytorch/issues/175189
    for form in forms[images.device.type == "mps" :]:
        for tensor in tensors:
            if tensor.dim() == 4:  # `Module.to` fails at the 5 of a Conv3d
                tensor.data = tensor.data.to(memory_format=form)
        with suppress(RuntimeError), evaluation_mode(*asked), torch.no_grad():
            for model in asked:
                model(images[:1].contiguous(memory_format=form))
            break
    return form


def device_of(model: nn.Module) -> torch.device:
    """Where the model's tensors live; a model without any is taken to live on the CPU."""
    return next((t.device for t in chain(model.parameters(), model.buffers())), torch.device("cpu"))


def profile(model: nn.Module, example_input: torch.Tensor) -> Profile:
    """Parameters, multiply-adds for one image, and the bytes of the file that `models.save` writes.

    Example:
        >>> profile(models.mobilenet_v2(), torch.zeros(1, 3, 32, 32)).params
        2236682
    """
    saved = file_bytes(model) if models.spec_of(model) else None
    counter = _count(model, example_input)
    uncounted = tuple(sorted(counter.uncounted))
    return Profile(count_parameters(model), counter.flops // 2, saved, uncounted)


def count_parameters(model: nn.Module) -> int:
    """All parameters, shared ones once; an int8 network's codes are buffers, which do not count."""
    return sum(p.numel() for p in model.parameters())


def file_bytes(model: nn.Module) -> int:
    """Write the network to a file, read it back, and return the file's length."""
    with tempfile.TemporaryDirectory() as folder:
        path = models.save(model, Path(folder) / "model.safetensors")
        models.load(path, model.spec.make or model.spec.builder)
        return path.stat().st_size


def count_macs(model: nn.Module, example_input: torch.Tensor) -> int:
    """Multiply-adds of convolutions and matrix products for one image of `example_input`'s size."""
    return _count(model, example_input).flops // 2


class _CounterMode(TorchDispatchMode):
    """Adds up the formulas of the operators that run, and notes those that may lack one.

    `FlopCounterMode` notes none: it counts an unknown one as 0. It also follows the gradients of
    each module, and fails where a module is given a view of a parameter.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.uncounted: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        """Take an operator apart until there is a formula, and count it."""
        kwargs = kwargs or {}
        formula = FLOPS.get(getattr(func, "_overloadpacket", func))
        if formula is None and isinstance(func, torch._ops.OpOverload):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if formula is not None:
            self.flops += formula(*args, **kwargs, out_val=result)
        elif _may_multiply(func, args):
            self.uncounted.add(str(func).removesuffix(".default"))
        return result


def _may_multiply(func: Any, args: tuple) -> bool:
    """Whether an operator may be a product; PyTorch's own must take two tensors of one type."""
    if not isinstance(func, torch._ops.OpOverload):
        return True
    harmless = func.is_view or torch.Tag.pointwise in func.tags
    if harmless or func.namespace != "aten":
        return not harmless
    if any(word in str(func) for word in NO_PRODUCTS):
        return False
    dtypes = [arg.dtype for arg in args if isinstance(arg, torch.Tensor) and arg.dim() > 0]
    return len(dtypes) > 1 and dtypes[0] == dtypes[1]


def _count(model: nn.Module, example_input: torch.Tensor) -> _CounterMode:
    attention = torch.backends.mha
    fastpath = attention.get_fastpath_enabled()
    # Its kernels take whole layers at once, in which nothing is counted.
    attention.set_fastpath_enabled(False)
    try:
        with evaluation_mode(model), torch.no_grad(), _CounterMode() as counter:
            model(example_input[:1])
    finally:
        attention.set_fastpath_enabled(fastpath)
    return counter


@torch.no_grad()
def compare_latency(
    candidates: Mapping[str, nn.Module | Callable],
    example_input: torch.Tensor,
    threads: int | None = None,
    runs: int = 30,
    warmup: int = 5,
) -> pd.DataFrame:
    """Time forward passes in eval mode, without gradients, in rounds (A B C, B A C, ...).

    In rounds, a machine that slows down meanwhile slows all of them. The order of each round is
    drawn anew, so that no network always follows the same one. If there are several networks, an
    untimed call before each turn fetches the weights into the caches; with several threads there is
    a pause first, since the threads of the last turn keep their cores busy for a while.

    Args:
        threads: of the CPU; None leaves them as they are.

    Returns:
        One row per candidate: `median_ms`, `iqr_ms`, the conditions under which they hold,
        `speedup` against the first.
    """
    if runs < 3 or warmup < 1 or (threads is not None and threads < 1):
        raise MeasurementError(
            "a median needs 3 runs or more, after 1 warm-up or more, on 1 thread or more; got"
            f" runs={runs}, warmup={warmup}, threads={threads}"
        )
    for name, model in candidates.items():
        if getattr(model, "mode", None) == "simulated":
            raise MeasurementError(
                f"{name} computes in float what int8 stands for: set its mode to 'kernel' to time"
                " it"
            )
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    device = example_input.device
    on_cpu = device.type in ("cpu", "meta")
    # A GPU goes on computing after the call has returned.
    wait = (lambda: None) if on_cpu else partial(torch.accelerator.synchronize, device)
    modules = [candidate for candidate in candidates.values() if isinstance(candidate, nn.Module)]
    with evaluation_mode(*modules, threads=threads), kept_memory():
        used = torch.get_num_threads()
        for model in candidates.values():
            for _ in range(warmup):
                model(example_input)
        order = list(candidates)
        rng = random.Random(0)
        for _ in range(runs):
            rng.shuffle(order)
            for name in order:
                model = candidates[name]
                if len(candidates) > 1:
                    time.sleep(PAUSE_SECONDS if used > 1 else 0)
                    model(example_input)
                wait()
                start = time.perf_counter()
                model(example_input)
                wait()
                taken[name].append((time.perf_counter() - start) * 1e3)
    low, mid, high = pd.DataFrame(taken).quantile([0.25, 0.5, 0.75]).to_numpy()
    table = pd.DataFrame({"name": list(taken), "median_ms": mid, "iqr_ms": high - low})
    return table.assign(runs=runs, threads=used, batch=len(example_input), speedup=mid[0] / mid)


@contextmanager
def evaluation_mode(*candidates: nn.Module, threads: int | None = None):
    """Eval mode, and `threads` threads, inside the `with` block; all is put back afterwards."""
    was_training = [m for model in candidates for m in model.modules() if m.training]
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    for model in candidates:
        model.eval()
    try:
        yield
    finally:
        torch.set_num_threads(before)
        for module in was_training:
            module.training = True
