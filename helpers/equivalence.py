"""Do two networks answer alike?

`Answers` asks whether a network may stand in for another, as `passes.optimize` does before it hands
one out:

    the example, then random inputs like it     two calls in a row show what a call leaves behind;
    in the second one
                                                images are in channels_last memory, if the network
                                                takes them so
    one image, and one more than the example    other batch sizes show what was frozen at the
    example's

`assert_equivalent` asks whether a rewrite is exact, against a float64 reference. Everything runs on
copies.
"""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves, tree_map_only

# How far two answers may lie apart, relative to the largest number in them. Whole numbers agree, or
# float64 differs.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 8e-2}
TOLERANCE |= {torch.complex128: 1e-9, torch.complex64: 1e-4}
# Of the statistics and parameters that `randomize_batchnorm` draws.
RANGES = {"running_mean": (-1, 1), "running_var": (0.2, 2), "weight": (0.5, 1.5), "bias": (-1, 1)}


class EquivalenceError(AssertionError):
    """Two networks differ; names the worst element."""


class Answers:
    """What a network answers to a few inputs, to compare others with.

    Args:
        model: the reference; it stays as it is.
        inputs: the positional arguments of one call.
        any_batch: whether other networks must take every batch size that this one takes.
    """

    def __init__(self, model: nn.Module, inputs: tuple[Any, ...], any_batch: bool = True):
        self._model, self._any_batch, self._draws = model, any_batch, False
        self._asked = dict(enumerate(_inputs_like(inputs)))
        answers = self._ask(model)
        if self._draws or isinstance(answers.get(1), Exception):
            # It draws in the order of memory, or takes no channels_last memory: then nobody is
            # asked in that.
            other = self._asked if self._draws else {1: self._asked[1]}
            self._asked |= tree_map_only(torch.Tensor, torch.Tensor.contiguous, other)
            answers = self._ask(model)
        if isinstance(answers[0], Exception):
            raise answers[0]
        # A batch size that the network itself refuses is not asked of others: fx would print where
        # they fail.
        self._expected = {
            n: answer for n, answer in answers.items() if not isinstance(answer, Exception)
        }
        self._asked = {n: self._asked[n] for n in self._expected}

    def difference(self, network: nn.Module) -> str | None:
        """Where a network gives another answer, in one line, or None."""
        tolerance = self._tolerance(network)
        for number, got in self._ask(network).items():
            if number > 1 and not self._any_batch and isinstance(got, Exception):
                continue  # not a batch size that the network takes
            reason = self._compare(number, self._expected[number], got, tolerance)
            if reason is not None:
                given = [x for x in tree_leaves(self._asked[number]) if isinstance(x, torch.Tensor)]
                orders = ("" if x.is_contiguous() else " in channels_last memory" for x in given)
                shown = (f"{[*x.shape]}{order}" for x, order in zip(given, orders, strict=True))
                return f"in call {number + 1}, with inputs of shape {', '.join(shown)}, {reason}"
        return None

    def _tolerance(self, network: nn.Module) -> float:
        """That of the coarsest type in which the network stores or computes anything."""
        nodes = network.graph.nodes if isinstance(network, fx.GraphModule) else ()
        values = [*network.parameters(), *network.buffers(), self._asked, self._expected]
        values += [node.meta.get("val") for node in nodes]
        dtypes = {value.dtype for value in tree_leaves(values) if isinstance(value, torch.Tensor)}
        return max((TOLERANCE[dtype] for dtype in dtypes & TOLERANCE.keys()), default=0.0)

    def _ask(self, network: nn.Module, dtype: torch.dtype | None = None) -> dict[int, Any]:
        """For each input the answer and what became of the input, or the error."""
        network, answers = copy.deepcopy(network).to(dtype=dtype), {}
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())), torch.no_grad():
            for number, inputs in self._asked.items():
                seeded = torch.manual_seed(number).get_state()
                answers[number] = _answer(network, inputs, dtype)
                self._draws |= not torch.equal(seeded, torch.get_rng_state())
        return answers

    def _compare(self, number: int, expected: list[Any], got: Any, tolerance: float) -> str | None:
        if isinstance(got, Exception):
            return f"it does not run: {got}"
        if len(got) != len(expected):
            return f"it returns {len(got)} values instead of {len(expected)}"
        for position, (one, other) in enumerate(zip(expected, got, strict=True)):
            reason, error = gap(one, other)
            allowed = tolerance if isinstance(one, torch.Tensor) and one.dtype in TOLERANCE else 0.0
            if error > allowed and (
                self._draws or not error <= 10 * self._rounding(number, position)
            ):
                return reason
        return None

    def _rounding(self, number: int, position: int) -> float:
        """How far the answers of the network itself are from those that it gives in float64."""
        if any(
            tensor.is_complex() for tensor in (*self._model.parameters(), *self._model.buffers())
        ):
            return 0.0  # float64 would drop the imaginary parts
        exact = self._ask(self._model, dtype=torch.float64)[number]
        own = self._expected[number][position]
        if (
            isinstance(exact, Exception)
            or not isinstance(own, torch.Tensor)
            or own.dtype == torch.float64
        ):
            return 0.0
        return gap(own, exact[position].to(own.dtype))[1]


def _answer(network: nn.Module, inputs: tuple[Any, ...], dtype: torch.dtype | None) -> Any:
    """What the network gives back and what becomes of a copy of the inputs, or the error."""

    def as_asked(x: torch.Tensor) -> torch.Tensor:
        return x.to(dtype if x.is_floating_point() else None, copy=True)

    try:
        inputs = tree_map_only(torch.Tensor, as_asked, inputs)
        return list(_parts((network(*inputs), inputs)))
    except Exception as error:
        return error


def _parts(value: Any) -> Iterator[Any]:
    """All that is in a value, in order; of a dataclass its type and its fields."""
    for leaf in tree_leaves(value):
        named = dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)
        yield from (type(leaf), *_parts([*vars(leaf).values()])) if named else (leaf,)


def gap(expected: Any, found: Any) -> tuple[str, float]:
    """What tells two values apart, and how far, relative to the largest number of the first."""
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        same = expected is found or expected == found
        return f"it returns {found} instead of {expected}", 0.0 if same else float("inf")
    for what in ("shape", "dtype"):
        if getattr(expected, what) != getattr(found, what):
            return (
                f"the {what} is {getattr(found, what)} instead of {getattr(expected, what)}",
                float("inf"),
            )
    if expected.is_meta or expected.numel() == 0 or torch.equal(expected, found):
        return "", 0.0
    finite = expected.isfinite() & found.isfinite()
    if not (finite | (expected == found) | (expected.isnan() & found.isnan())).all():
        return "other numbers are infinite or NaN", float("inf")
    wide = torch.complex128 if expected.is_complex() else torch.float64
    one, other = (torch.where(finite, value, 0).to(wide) for value in (expected, found))
    off = (one - other).abs()
    error = (off.max() / one.abs().max().clamp(min=1e-300)).item()
    place = tuple(int(i) for i in torch.unravel_index(off.argmax(), off.shape))
    values = f"{other[place].item():.9g} instead of {one[place].item():.9g}"
    return f"it is off by {error:.1e} of the largest number, most at {place}: {values}", error


def _inputs_like(inputs: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield inputs
    batch = next(
        (x.shape[0] for x in tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.dim() > 0), 0
    )
    numbers = torch.Generator().manual_seed(0)
    for size in [batch, *([1] if batch != 1 else []), batch + 1] if batch else []:

        def drawn(x: torch.Tensor, size: int = size) -> torch.Tensor:
            y = _random_like(x, batch, size, numbers)
            images = size == batch and y.dim() == 4 and y.layout == torch.strided
            return y.contiguous(memory_format=torch.channels_last) if images else y

        yield tree_map_only(torch.Tensor, drawn, inputs)


def _random_like(x: torch.Tensor, batch: int, size: int, numbers: torch.Generator) -> torch.Tensor:
    """Random numbers in the range of those in x, or in [-1, 1] when they are all the same."""
    shape = (size, *x.shape[1:]) if x.dim() > 0 and x.shape[0] == batch else x.shape
    if x.is_meta or x.is_sparse or x.numel() == 0:
        return x.new_zeros(shape)
    if x.is_complex():
        return torch.randn(shape, generator=numbers, dtype=x.dtype).to(x.device)
    low, high = (bound.item() for bound in (x.long() if x.dtype == torch.bool else x).aminmax())
    if not x.dtype.is_floating_point:
        return torch.randint(low, high + 1, shape, generator=numbers).to(x.device, x.dtype)
    low, high = (low, high) if low < high < float("inf") else (-1.0, 1.0)
    return (low + (high - low) * torch.rand(shape, generator=numbers, dtype=torch.float64)).to(
        x.device, x.dtype
    )


@torch.no_grad()
def assert_equivalent(before: nn.Module, after: nn.Module, example_input: torch.Tensor) -> None:
    """Raise unless `after` gives the output of `before`, for three random inputs of
    `example_input`'s shape and type.

    Both take and give one tensor of real numbers. It may be no further from the float64 reference
    than 1e-5 or four times what `before` itself is off by. Fresh BatchNorm statistics (mean 0,
    variance 1) hide most mistakes: `randomize_batchnorm` first.

    Example:
        >>> layer = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
        >>> assert_equivalent(layer, copy.deepcopy(layer), torch.zeros(1, 3, 8, 8))
    """
    before, after = (copy.deepcopy(network).eval() for network in (before, after))
    exact, numbers = copy.deepcopy(before).double(), torch.Generator().manual_seed(0)
    for trial in range(3):
        x = torch.randn(example_input.shape, generator=numbers, dtype=torch.float64).to(
            example_input.dtype
        )
        reference = exact(x.to(torch.float64, copy=True))  # networks may write into their input
        expected, found = before(x.clone()), after(x)
        if found.dtype != expected.dtype:
            raise EquivalenceError(
                f"trial {trial}: the dtype is {found.dtype} instead of {expected.dtype}"
            )
        allowed = max(1e-5, 4 * gap(reference, expected.double())[1])
        reason, error = gap(reference, found.double())
        if error > min(allowed, 1.0):
            raise EquivalenceError(f"trial {trial}: {reason}; allowed is {allowed:.1e}")


@torch.no_grad()
def randomize_batchnorm(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every BatchNorm of `model` random statistics, scales (some negative) and shifts; works
    in place.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for name, (low, high) in RANGES.items():
                if (tensor := getattr(module, name)) is not None:
                    tensor.copy_(
                        torch.empty_like(tensor, device="cpu").uniform_(
                            low, high, generator=generator
                        )
                    )
            if module.weight is not None:
                flip = torch.rand(module.weight.shape, generator=generator) < 0.2
                module.weight[flip.to(module.weight.device)] *= -1
    return model
