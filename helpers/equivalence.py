"""Do two networks answer alike?

`ExpectedAnswers` asks whether a network may stand in for another, as `passes.optimize` does before
it hands one out. It compares the answers to

    the example
    random inputs like it, images in channels_last     a second call shows what a call leaves behind
    one image, and one image more than the example     what was frozen at the example's batch size

`assert_equivalent` asks whether a rewrite is exact, against a float64 reference. Everything runs on
copies.
"""

import copy
import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from helpers.graphs.editing import quick_copy
from helpers.graphs.recording import stored_tensors, tensors_in

# How far two answers may lie apart, relative to the largest number in them.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 8e-2}
TOLERANCE |= {torch.complex128: 1e-9, torch.complex64: 1e-4}
# Of the statistics and parameters that `randomize_batchnorm` draws.
RANGES = {"running_mean": (-1, 1), "running_var": (0.2, 2), "weight": (0.5, 1.5), "bias": (-1, 1)}


class EquivalenceError(AssertionError):
    """Two networks differ; names the worst element."""


class ExpectedAnswers:
    """What a network answers to a few inputs, to compare others with.

    Args:
        model: the reference; it stays as it is.
        inputs: the positional arguments of one call.
        any_batch: whether other networks must take every batch size that this one takes.
    """

    def __init__(self, model: nn.Module, inputs: tuple[Any, ...], any_batch: bool = True):
        self._model = model
        self._any_batch = any_batch
        self._is_random = False  # whether anything that ran has drawn random numbers
        self._calls = dict(enumerate(_inputs_like(inputs)))
        answers = self._run(model)
        if self._is_random or isinstance(answers.get(1), Exception):
            # It draws random numbers in the order of memory, or refuses channels_last memory.
            in_doubt = self._calls if self._is_random else {1: self._calls[1]}
            self._calls |= tree_map_only(torch.Tensor, torch.Tensor.contiguous, in_doubt)
            answers = self._run(model)
        if isinstance(answers[0], Exception):
            raise answers[0]
        # A batch size that the network itself refuses is not tried on others: fx would print where
        # they fail.
        refused = [n for n, answer in answers.items() if isinstance(answer, Exception)]
        for number in refused:
            del answers[number], self._calls[number]
        self._expected = answers

    def difference(self, network: nn.Module) -> str | None:
        """Where a network gives another answer, in one line, or None."""
        tolerance = self._tolerance(network)
        for number, got in self._run(network).items():
            if number > 1 and not self._any_batch and isinstance(got, Exception):
                continue  # the first two have the batch size of the example; others need not run
            reason = self._mismatch(network, number, got, tolerance)
            if reason is not None:
                shapes = ", ".join(map(_described, tensors_in(self._calls[number])))
                return f"in call {number + 1}, with inputs of shape {shapes}, {reason}"
        return None

    def _tolerance(self, network: nn.Module) -> float:
        """That of the coarsest type in which the network stores or computes anything."""
        nodes = network.graph.nodes if isinstance(network, fx.GraphModule) else ()
        values = [*network.parameters(), *network.buffers(), self._calls, self._expected]
        values += [node.meta.get("val") for node in nodes]
        dtypes = {value.dtype for value in tensors_in(values)}
        return max((TOLERANCE[dtype] for dtype in dtypes & TOLERANCE.keys()), default=0.0)

    def _run(self, network: nn.Module, dtype: torch.dtype | None = None) -> dict[int, Any]:
        """For each call the answer and what became of the inputs, or the error."""
        network = copy.deepcopy(network, quick_copy(network)).to(dtype=dtype)
        answers = {}
        with forked_random(), torch.no_grad():
            for number, inputs in self._calls.items():
                seed_generators(number)
                start = generators()
                answers[number] = _answer(network, inputs, dtype)
                self._is_random |= not all(map(torch.equal, start, generators()))
        return answers

    def _mismatch(self, network: nn.Module, number: int, got: Any, tolerance: float) -> str | None:
        expected = self._expected[number]
        if isinstance(got, Exception):
            return f"it does not run: {got}"
        if len(got) != len(expected):
            return f"it returns {len(got)} values instead of {len(expected)}"
        for position, value in enumerate(expected):
            reason, error = gap(value, got[position])
            allowed = tolerance if getattr(value, "dtype", None) in TOLERANCE else 0.0
            if not (error <= allowed or self._is_rounding(network, number, position, error)):
                return reason
        return None

    def _is_rounding(self, network: nn.Module, number: int, position: int, error: float) -> bool:
        """Whether float64 explains an error. It is at most ten times as large as that of the
        network itself; or both give the same whole numbers there, as of an argmax, where no tie is
        decided by rounding.
        """
        stored = stored_tensors(self._model).values()
        if self._is_random or math.isinf(error) or any(tensor.is_complex() for tensor in stored):
            return False  # float64 would drop the imaginary parts
        answer = self._expected[number][position]
        exact = self._run(self._model, torch.float64)[number]
        if isinstance(exact, Exception):
            return False
        rounding = gap(answer, exact[position].to(answer.dtype))[1]
        # What overflows excuses nothing else.
        if answer.dtype != torch.float64 and error <= 10 * rounding < math.inf:
            return True
        if answer.is_floating_point():
            return False
        found = self._run(network, torch.float64)[number]
        return not isinstance(found, Exception) and gap(exact[position], found[position])[1] == 0


def forked_random() -> AbstractContextManager:
    """A `with` block that leaves all generators of random numbers as they were, on GPUs, too."""
    return torch.random.fork_rng(devices=gpus_in_use())


def seed_generators(number: int) -> None:
    """Seed all generators in use; `torch.manual_seed` would also set what a GPU begins with."""
    torch.default_generator.manual_seed(number)
    if gpus_in_use():
        torch.cuda.manual_seed_all(number)


def generators() -> list[torch.Tensor]:
    """The states of all generators in use."""
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus_in_use())]


def gpus_in_use() -> range:
    """Those that are not would be started if asked, and fail where their driver is too old."""
    return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """A short text that tells one list of tensors from another, by their bytes."""
    found = hashlib.sha256()
    for tensor in tensors:
        # Repeated once, not `contiguous`, which leaves one number with a stride of 0 as it is.
        found.update(tensor.detach().cpu().reshape(-1).repeat(1).view(torch.uint8).numpy())
    return found.hexdigest()[:16]


def _described(x: torch.Tensor) -> str:
    return f"{[*x.shape]}" if x.is_contiguous() else f"{[*x.shape]} in channels_last memory"


def _answer(network: nn.Module, inputs: tuple[Any, ...], dtype: torch.dtype | None) -> Any:
    """What the network gives back and what becomes of a copy of the inputs, or the error."""

    def copied(x: torch.Tensor) -> torch.Tensor:
        return x.to(dtype if x.is_floating_point() else None, copy=True)

    try:
        inputs = tree_map_only(torch.Tensor, copied, inputs)
        return list(_parts((network(*inputs), inputs)))
    except Exception as error:
        return error


def _parts(value: Any) -> Iterator[Any]:
    """All that is in a value, in order; of a dataclass its type and its fields."""
    for leaf in tree_leaves(value):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            yield type(leaf)
            yield from _parts([*vars(leaf).values()])
        else:
            yield leaf


def gap(expected: Any, found: Any) -> tuple[str, float]:
    """In what two values differ, and by how much relative to the largest number of the first."""
    tensors = len(tensors_in((expected, found)))
    if tensors < 2:
        same = not tensors and (expected is found or expected == found)
        return f"it returns {found} instead of {expected}", 0.0 if same else math.inf
    if expected.shape != found.shape:
        return f"the shape is {found.shape} instead of {expected.shape}", math.inf
    if expected.dtype != found.dtype:
        return f"the dtype is {found.dtype} instead of {expected.dtype}", math.inf
    if expected.is_meta or expected.numel() == 0 or torch.equal(expected, found):
        return "", 0.0
    finite = expected.isfinite() & found.isfinite()
    if not (finite | (expected == found) | (expected.isnan() & found.isnan())).all():
        return "other numbers are infinite or NaN", math.inf
    wide = torch.complex128 if expected.is_complex() else torch.float64
    expected = torch.where(finite, expected, 0).cpu().to(wide)
    found = torch.where(finite, found, 0).cpu().to(wide)
    distance = (expected - found).abs()
    error = (distance.max() / expected.abs().max().clamp(min=1e-300)).item()
    place = tuple(int(i) for i in torch.unravel_index(distance.argmax(), distance.shape))
    values = f"{found[place].item():.9g} instead of {expected[place].item():.9g}"
    return f"it is off by {error:.1e} of the largest number, most at {place}: {values}", error


def _inputs_like(inputs: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The inputs, then random ones: as many images, one image, one image more."""
    yield inputs
    batch = next((len(x) for x in tensors_in(inputs) if x.dim() > 0), 0)
    numbers = torch.Generator().manual_seed(0)
    for size in dict.fromkeys([batch, 1, batch + 1]) if batch else ():

        def drawn(x: torch.Tensor, size: int = size) -> torch.Tensor:
            y = _random_like(x, batch, size, numbers)
            if size == batch and y.dim() == 4 and y.layout == torch.strided:
                return y.contiguous(memory_format=torch.channels_last)
            return y

        yield tree_map_only(torch.Tensor, drawn, inputs)


def _random_like(x: torch.Tensor, batch: int, size: int, numbers: torch.Generator) -> torch.Tensor:
    """Random numbers in the range of those in x; in [-1, 1] if all are the same, or not finite."""
    shape = (size, *x.shape[1:]) if x.dim() > 0 and x.shape[0] == batch else x.shape
    if x.is_meta or x.layout != torch.strided or x.numel() == 0:
        return x.new_zeros(shape)
    if x.is_complex():
        return torch.randn(shape, generator=numbers, dtype=x.dtype).to(x.device)
    known = x.long() if x.dtype == torch.bool else x
    low, high = known.min().item(), known.max().item()
    if not x.dtype.is_floating_point:
        return torch.randint(low, high + 1, shape, generator=numbers).to(x.device, x.dtype)
    if not -math.inf < low < high < math.inf:
        low, high = -1.0, 1.0
    shares = torch.rand(shape, generator=numbers, dtype=torch.float64)
    return (low + (high - low) * shares).to(x.device, x.dtype)


@torch.no_grad()
def assert_equivalent(before: nn.Module, after: nn.Module, example_input: torch.Tensor) -> None:
    """Raise unless `after` answers like `before` to three random inputs like `example_input`.

    Both take and give one tensor of real numbers. `after` may be off the float64 reference by 1e-5
    of its largest number, or by four times as much as `before` if that is more. Fresh BatchNorm
    statistics (mean 0, variance 1) hide most mistakes: `randomize_batchnorm` first.

    Example:
        >>> layer = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
        >>> assert_equivalent(layer, copy.deepcopy(layer), torch.zeros(1, 3, 8, 8))
    """
    before = copy.deepcopy(before).eval()
    after = copy.deepcopy(after).eval()
    exact = copy.deepcopy(before).double()
    numbers = torch.Generator().manual_seed(0)
    for trial in range(3):
        wide = torch.randn(example_input.shape, generator=numbers, dtype=torch.float64)
        x = wide.to(example_input)
        reference = exact(x.to(torch.float64, copy=True))  # networks may write into their input
        expected = before(x.clone())
        answer = after(x)
        if answer.dtype != expected.dtype:
            raise EquivalenceError(
                f"trial {trial}: the dtype is {answer.dtype} instead of {expected.dtype}"
            )
        if reference.numel() and not reference.isfinite().any():
            raise EquivalenceError(f"trial {trial}: `before` gives no number that can be compared")
        allowed = max(1e-5, 4 * gap(reference, expected.double())[1])
        reason, error = gap(reference, answer.double())
        if error > min(allowed, 1.0):
            raise EquivalenceError(f"trial {trial}: {reason}; allowed is {allowed:.1e}")


@torch.no_grad()
def randomize_batchnorm(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every BatchNorm random statistics, scales (some negative) and shifts, in place."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for name, bounds in RANGES.items():
                tensor = getattr(module, name)
                if tensor is not None:
                    drawn = torch.empty_like(tensor, device="cpu")
                    tensor.copy_(drawn.uniform_(*bounds, generator=generator))
            if module.weight is not None:
                flip = torch.rand(module.weight.shape, generator=generator) < 0.2
                module.weight[flip.to(module.weight.device)] *= -1
    return model
