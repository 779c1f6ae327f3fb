"""Calibration: observers watch the values on each edge and then name the range that the codes should cover.

A wide range makes every rounding error larger; a narrow one cuts off large values. The five rules settle this
differently:

    minmax          the smallest and largest value ever seen: nothing is cut off
    moving_average  the average of each batch's extremes: single outliers count less
    percentile      all but the outermost 0.01 % of the values on each side
    mse             the range with the least mean squared error
    entropy         the range whose codes tell most about the distribution (least Kullback-Leibler divergence)
"""

import itertools
from collections.abc import Callable, Iterator

import torch

from helpers import data
from helpers.quantization.affine import Affine, QuantizationError, choose, code_range
from helpers.quantization.plan import HANDS_ON, INPUT, Plan, Recipe

__all__ = ["CalibrationError", "Histogram", "Observer", "batches", "calibrate", "check_images", "quantized_edges"]

BATCH = 64
MEMORY = 0.9  # of the moving average
OUTERMOST = 0.0001  # the share of the values that "percentile" leaves out on each side
SHARES = torch.linspace(0.3, 1.0, 71, dtype=torch.float64)  # of the whole range, which "mse" and "entropy" try
_MOST_AT_ONCE = 2**22  # histc counts in float32, which is exact up to 2^24
Range = tuple[float, float]


class Histogram:
    """Counts (float64) in equal bins from `start` on. A value outside doubles the bin width as often as needed, which
    loses nothing: two neighbouring counts become one.

    Example:
        >>> histogram = Histogram(bins=4)
        >>> histogram.add(torch.tensor([0.0, 1.0, 2.0, 3.0]))
        >>> histogram.add(torch.tensor([6.0]))
        >>> histogram.counts.tolist()
        [2.0, 2.0, 0.0, 1.0]
    """

    def __init__(self, bins: int = 2048) -> None:
        self.counts = torch.zeros(bins, dtype=torch.float64)
        self.start = self.width = 0.0

    @property
    def centres(self) -> torch.Tensor:
        """The middle of each bin, float64."""
        return self.start + self.width * (torch.arange(len(self.counts), dtype=torch.float64) + 0.5)

    def add(self, x: torch.Tensor) -> None:
        """Count the values of a tensor, which must be finite."""
        low, high = (bound.item() for bound in torch.aminmax(x))
        bins = len(self.counts)
        if not self.counts.any():
            self.start, self.width = low, max((high - low) / bins, abs(low) * 1e-6, 1e-12)
        while low < self.start or high > self.start + self.width * bins:
            merged = self.counts.reshape(-1, 2).sum(1)
            empty = torch.zeros_like(merged)
            if low < self.start:
                self.counts, self.start = torch.cat([empty, merged]), self.start - self.width * bins
            else:
                self.counts = torch.cat([merged, empty])
            self.width *= 2
        first, last = torch.tensor([self.start, self.start + self.width * bins]).tolist()  # as float32, like the values
        for part in x.detach().float().flatten().split(_MOST_AT_ONCE):
            inside = part.clamp(first, last)  # histc would drop what rounding put just outside
            self.counts += torch.histc(inside, bins, first, last).double().cpu()


class Observer:
    """Watches values (their extremes, the moving average of each batch's, a histogram), then names a range.

    Example:
        >>> observer = Observer("minmax")
        >>> observer.observe(torch.tensor([-1.0, 2.0]))
        >>> observer.range()
        (-1.0, 2.0)
    """

    def __init__(self, rule: str, bits: int = 8) -> None:
        self.rule, self.bits, self.histogram = rule, bits, Histogram()
        self.low, self.high = float("inf"), float("-inf")
        self.average: Range | None = None

    def observe(self, x: torch.Tensor) -> None:
        """Take in one batch of values."""
        if x.numel() == 0 or not torch.isfinite(x).all():
            raise QuantizationError(
                f"observer: a tensor of shape {tuple(x.shape)} is empty or holds NaN or infinity; "
                "check the calibration images and the weights"
            )
        new = tuple(bound.item() for bound in torch.aminmax(x))
        self.low, self.high = min(self.low, new[0]), max(self.high, new[1])
        average = zip(self.average or new, new, strict=True)
        self.average = tuple(old + (1 - MEMORY) * (now - old) for old, now in average)
        x = x[x != 0] if self.rule == "entropy" else x
        if self.rule in ("percentile", "mse", "entropy") and x.numel():
            self.histogram.add(x)

    def range(self) -> Range:
        """The range to cover."""
        if self.average is None:
            raise QuantizationError("observer: it has seen no values yet; run images through the network first")
        return RULES[self.rule](self)


def percentile(seen: Observer) -> Range:
    """Leaves out the outermost values of each side."""
    below = seen.histogram.counts.cumsum(0) / seen.histogram.counts.sum()
    low, high = (seen.histogram.centres[torch.searchsorted(below, at)].item() for at in (OUTERMOST, 1 - OUTERMOST))
    return max(low, seen.low), min(high, seen.high)


def least_squares(seen: Observer) -> Range:
    """Tries narrower and narrower ranges, one side at a time, and keeps the one with the least squared error."""
    used = seen.histogram.counts > 0
    centres, counts = seen.histogram.centres[used], seen.histogram.counts[used]

    def best(lows: torch.Tensor, highs: torch.Tensor) -> Range:
        """Of several ranges the one with the least error; the widest among equals."""
        scale, zero_point = (p.double().unsqueeze(1) for p in choose(lows, highs, seen.bits))
        codes = torch.round(centres / scale + zero_point).clamp(*code_range(seen.bits, signed=False))
        errors = ((codes - zero_point) * scale - centres).square() @ counts
        at = len(errors) - 1 - int(errors.flip(0).argmin())
        return lows[at].item(), highs[at].item()

    low, high = min(seen.low, 0.0), max(seen.high, 0.0)
    for _ in range(2):  # each side's best bound depends a little on the other's
        high = best(torch.full_like(SHARES, low), high * SHARES)[1]
        low = best(low * SHARES, torch.full_like(SHARES, high))[0]
    return low, high


def entropy(seen: Observer) -> Range:
    """Compares the distribution with what its codes still tell of it, for narrower and narrower ranges.

    P is the distribution with everything outside the range moved to its ends. Q is what the codes say: each code's
    count, spread evenly over those bins of the code that are not empty. The range with the least KL(P || Q) wins.
    Exact zeros are left out: they have a code of their own whatever the range, and after a ReLU there are so many of
    them that they would decide alone.
    """
    counts, centres, last = seen.histogram.counts, seen.histogram.centres, code_range(seen.bits, signed=False)[1]

    def divergence(low: float, high: float) -> float:
        inside = (centres >= low) & (centres <= high)
        if not inside.any():
            return float("inf")
        p = counts[inside].clone()
        p[0] += counts[centres < low].sum()
        p[-1] += counts[centres > high].sum()
        code = ((centres[inside] - low) / max(high - low, 1e-30) * last).round().long().clamp(0, last)
        used = (counts[inside] > 0).double()
        total, bins = (torch.zeros(last + 1).double().index_add_(0, code, v) for v in (counts[inside], used))
        q = (total / bins.clamp(min=1))[code] * used
        p, q = p / p.sum(), (q / q.sum().clamp(min=1)).clamp(min=1e-6)
        return torch.where(p > 0, p * torch.log(p.clamp(min=1e-300) / q), 0.0).sum().item()

    low, high = (min(seen.low, 0.0), max(seen.high, 0.0)) if counts.any() else (0.0, 0.0)
    best = min(reversed(SHARES.tolist()), key=lambda share: divergence(low * share, high * share))
    return low * best, high * best


RULES: dict[str, Callable[[Observer], Range]] = {
    "minmax": lambda seen: (seen.low, seen.high),
    "moving_average": lambda seen: seen.average,
    "percentile": percentile,
    "mse": least_squares,
    "entropy": entropy,
}


class CalibrationError(QuantizationError):
    """Images that a network cannot be calibrated with."""


def calibrate(plan: Plan, images: torch.Tensor, recipe: Recipe) -> dict[str, Affine]:
    """Choose an unsigned per-tensor `Affine` for every edge that carries codes.

    Args:
        plan: the float network.
        images: training images, uint8, or float already normalised; (N, C, H, W).
        recipe: `observer` and `activation_bits` matter here.
    """
    edges, bits, origins = quantized_edges(plan), recipe.activation_bits, plan.origins()
    observers = {origins[edge]: Observer(recipe.observer, bits) for edge in edges}
    new = {INPUT, *(op.name for op in plan.ops if op.kind not in HANDS_ON)} & {*edges}

    def watch(edge: str, value: torch.Tensor) -> None:
        if edge in new:
            try:
                observers[origins[edge]].observe(value)
            except QuantizationError as error:
                raise CalibrationError(f"edge {edge!r}: {error}") from error

    for batch in batches(images):
        plan.run(batch, watch)
    ranges = {edge: map(torch.tensor, observer.range()) for edge, observer in observers.items()}
    chosen = {edge: Affine(*choose(*bounds, bits), bits, signed=False) for edge, bounds in ranges.items()}
    return {edge: chosen[origins[edge]] for edge in edges}


def batches(images: torch.Tensor) -> Iterator[torch.Tensor]:
    """Normalised float batches of images that may still be uint8."""
    for part in images.split(BATCH):
        yield data.normalize(part) if part.dtype == torch.uint8 else part


def check_images(images: torch.Tensor) -> None:
    """Refuse images of the wrong type, none at all, or with NaN or infinity in them."""
    if not isinstance(images, torch.Tensor) or images.dtype not in (torch.uint8, torch.float32):
        kind = images.dtype if isinstance(images, torch.Tensor) else type(images).__name__
        remedy = "; call .float() on the images and the network" if isinstance(kind, torch.dtype) else ""
        raise CalibrationError(f"calibration images: expected a uint8 or float32 tensor, got {kind}{remedy}")
    if not len(images):
        raise CalibrationError(f"calibration images: there are none in a tensor of shape {tuple(images.shape)}")
    if not torch.isfinite(images).all():
        bad = int((~torch.isfinite(images)).flatten(1).any(1).sum())
        raise CalibrationError(f"calibration images: {bad} of {len(images)} hold NaN or infinity; leave them out")


def quantized_edges(plan: Plan) -> list[str]:
    """The edges that carry codes, in the order of the plan.

    All but these: what passes from one operation in float to the next, and the network's output, when an operation
    that adds up computes it. Reshaping does not count.
    """

    def read_as_codes(edge: str) -> bool:
        return any(user.kind != "float" for user in plan.users(edge))

    edges = [INPUT] if read_as_codes(INPUT) else []
    edges += [op.name for op in plan.ops if op.kind != "float" or read_as_codes(op.name)]
    reshapes = list(itertools.takewhile(lambda op: op.kind == "reshape", reversed(plan.ops[1:])))
    last = plan.ops[-len(reshapes) - 1]
    if last.kind not in (*HANDS_ON, "clamp") and last.clamp is None and last.residual is None:
        edges = [edge for edge in edges if edge not in {last.name, *(op.name for op in reshapes)}]
    return edges
