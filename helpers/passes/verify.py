"""The last line of defence: a network is handed out only if it answers like the one that it was made of.

    the example, then random inputs like it     two calls in a row show what a call leaves behind
    one image, and one more than the example    other batch sizes show what was frozen at the example's

Everything runs on copies. Passes that decline what they must not touch come first; this finds what they overlook.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from helpers.passes.errors import CheckFailed, PassError

# How far two answers may lie apart, relative to the largest number in them. Whole numbers must agree.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 8e-2}
TOLERANCE |= {torch.complex128: 1e-9, torch.complex64: 1e-4}


class WrongAnswer(PassError):
    """The optimised network answers otherwise than the one it was made of; `pass_name` is the first pass to blame."""


class Answers:
    """What a network answers to a few inputs, to compare others with.

    Args:
        model: the reference; it stays as it is.
        inputs: the positional arguments of one call.
        any_batch: whether other networks must take every batch size that this one takes.
    """

    def __init__(self, model: nn.Module, inputs: tuple[Any, ...], any_batch: bool = True):
        self._model, self._any_batch = model, any_batch
        self._asked = list(_inputs_like(inputs))
        self._expected = self._ask(model)

    def difference(self, network: nn.Module) -> str | None:
        """Where a network gives another answer, in one line, or None."""
        tolerance = self._tolerance(network)
        for number, (expected, got) in enumerate(zip(self._expected, self._ask(network), strict=True)):
            if isinstance(expected, Exception) or (number > 1 and not self._any_batch and isinstance(got, Exception)):
                continue  # not a batch size that the network takes
            reason = self._compare(number, expected, got, tolerance)
            if reason is not None and not self._is_random(number):
                sizes = [list(x.shape) for x in tree_leaves(self._asked[number]) if isinstance(x, torch.Tensor)]
                return f"in call {number + 1}, with inputs of shape {', '.join(map(str, sizes))}, {reason}"
        return None

    def _tolerance(self, network: nn.Module) -> float:
        """That of the coarsest type in which the network stores or computes anything."""
        nodes = network.graph.nodes if isinstance(network, fx.GraphModule) else ()
        values = [*network.parameters(), *network.buffers(), *tree_leaves(self._asked[0])]
        values += [node.meta.get("val") for node in nodes] + [x for x in self._expected if isinstance(x, list)]
        dtypes = {value.dtype for value in tree_leaves(values) if isinstance(value, torch.Tensor)}
        return max((TOLERANCE[dtype] for dtype in dtypes & TOLERANCE.keys()), default=0.0)

    def _ask(self, network: nn.Module, seed: int = 0, dtype: torch.dtype | None = None) -> list[Any]:
        """For each input the answer and what became of the input, or the error."""
        network, answers = copy.deepcopy(network).to(dtype=dtype), []
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            for number, inputs in enumerate(self._asked):
                as_asked = lambda x: x.to(dtype if x.is_floating_point() else None, copy=True)  # noqa: E731
                inputs = tree_map_only(torch.Tensor, as_asked, inputs)
                torch.manual_seed(seed + number)
                try:
                    answers.append(tree_leaves((network(*inputs), inputs)))
                except Exception as error:
                    answers.append(error)
        return answers

    def _compare(self, number: int, expected: list[Any], got: Any, tolerance: float) -> str | None:
        if isinstance(got, Exception):
            return f"it does not run: {got}"
        if len(got) != len(expected):
            return f"it returns {len(got)} values instead of {len(expected)}"
        for position, (one, other) in enumerate(zip(expected, got, strict=True)):
            reason, gap = _gap(one, other)
            allowed = tolerance if isinstance(one, torch.Tensor) and one.dtype in TOLERANCE else 0.0
            if gap > allowed and not gap <= 10 * self._rounding(number, position):
                return reason
        return None

    def _rounding(self, number: int, position: int) -> float:
        """How far the answers of the network itself are from those that it gives in float64."""
        exact = self._ask(self._model, dtype=torch.float64)[number]
        own = self._expected[number][position]
        if isinstance(exact, Exception) or not isinstance(own, torch.Tensor) or own.dtype == torch.float64:
            return 0.0
        return _gap(own, exact[position].to(own.dtype))[1]

    def _is_random(self, number: int) -> bool:
        """Whether the network gives other answers to the same input: then there is nothing to compare with."""
        again = self._ask(self._model, seed=1000)[number]
        pairs = zip(self._expected[number], again, strict=True)
        return any(_gap(one, other)[1] > 0 for one, other in pairs)


def verify(
    model: nn.Module, inputs: tuple[Any, ...], made: nn.Module, any_batch: bool, stages: Callable[..., Iterator[Any]]
) -> None:
    """Raise unless `made` answers like `model`.

    Args:
        model: the network before; it stays as it is.
        inputs: the positional arguments of one call.
        made: the network after.
        any_batch: whether `made` must take every batch size that `model` takes.
        stages: makes the network once more, running the checks that it is given after each pass.

    Raises:
        WrongAnswer: it names the first pass after which answers differ.
    """
    answers = Answers(model, inputs, any_batch)
    reason = answers.difference(made)
    if reason is None:
        return

    def same_answers(graph_module: fx.GraphModule) -> None:
        if (why := answers.difference(graph_module)) is not None:
            raise AssertionError(why)

    blamed = "optimize"
    try:
        stages([same_answers])
    except CheckFailed as error:
        blamed = error.pass_name
    except AssertionError:
        blamed = "tracing"
    raise WrongAnswer(blamed, f"the network answers differently afterwards: {reason}. verify=False hands it out anyway")


def _inputs_like(inputs: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield inputs
    batch = next((x.shape[0] for x in tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.dim() > 0), 0)
    numbers = torch.Generator().manual_seed(0)
    for size in [batch, *([1] if batch != 1 else []), batch + 1] if batch else []:
        yield tree_map_only(torch.Tensor, lambda x, size=size: _random_like(x, batch, size, numbers), inputs)


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
    return (low + (high - low) * torch.rand(shape, generator=numbers, dtype=torch.float64)).to(x.device, x.dtype)


def _gap(one: Any, other: Any) -> tuple[str, float]:
    """What tells two values apart, and how far, relative to the largest number in the first."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return f"it returns {other} instead of {one}", 0.0 if one is other or one == other else float("inf")
    for what in ("shape", "dtype"):
        if getattr(one, what) != getattr(other, what):
            return f"the {what} is {getattr(other, what)} instead of {getattr(one, what)}", float("inf")
    if one.is_meta or one.numel() == 0 or torch.equal(one, other):
        return "", 0.0
    finite = one.isfinite()
    if not torch.equal(finite, other.isfinite()):
        return "other numbers are finite", float("inf")
    wide = torch.complex128 if one.is_complex() else torch.float64
    one, other = one[finite].to(wide), other[finite].to(wide)
    if one.numel() == 0:
        return "", 0.0
    gap = ((one - other).abs().max() / one.abs().max().clamp(min=1e-300)).item()
    return f"it is off by {gap:.1e} of the largest number", gap
