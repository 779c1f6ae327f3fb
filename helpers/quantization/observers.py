"""Observers watch the values on one edge during calibration and then name the range that the codes should cover.

A wide range makes every rounding error larger; a narrow one cuts off large values. The five rules settle this
differently:

    minmax          the smallest and largest value ever seen: nothing is cut off
    moving_average  the average of each batch's extremes: single outliers count less
    percentile      all but the outermost 0.01 % of the values on each side
    mse             the range with the least mean squared error
    entropy         the range whose codes tell most about the distribution (least Kullback-Leibler divergence)
"""

from abc import ABC, abstractmethod

import torch

from helpers.quantization.affine import QuantizationError, choose, code_range
from helpers.quantization.histogram import Histogram

__all__ = ["OBSERVERS", "Entropy", "MinMax", "MovingAverage", "NotCalibrated", "Observer", "Percentile", "SquaredError"]

Range = tuple[float, float]


class NotCalibrated(QuantizationError):
    """A range was asked for before any value was seen."""


class Observer(ABC):
    """Watches values, then names a range.

    Example:
        >>> observer = MinMax()
        >>> observer.observe(torch.tensor([-1.0, 2.0]))
        >>> observer.range()
        (-1.0, 2.0)
    """

    def __init__(self, bits: int = 8) -> None:
        self.bits = bits
        self.seen = 0

    def observe(self, x: torch.Tensor) -> None:
        """Take in one batch of values."""
        if x.numel() == 0 or not torch.isfinite(x).all():
            raise QuantizationError(
                f"observer: a tensor of shape {tuple(x.shape)} is empty or holds NaN or infinity; "
                "check the calibration images and the weights"
            )
        self.seen += x.numel()
        self._take(x.detach())

    def range(self) -> Range:
        """The range to cover."""
        if not self.seen:
            raise NotCalibrated("observer: it has seen no values yet; run calibration images through the network first")
        return self._range()

    @abstractmethod
    def _take(self, x: torch.Tensor) -> None:
        """Take in values that are known to be good."""

    @abstractmethod
    def _range(self) -> Range:
        """The range, once values have been seen."""


class MinMax(Observer):
    """The smallest and the largest value."""

    low, high = float("inf"), float("-inf")

    def _take(self, x: torch.Tensor) -> None:
        low, high = torch.aminmax(x)
        self.low, self.high = min(self.low, low.item()), max(self.high, high.item())

    def _range(self) -> Range:
        return self.low, self.high


class MovingAverage(Observer):
    """Exponential average of each batch's extremes: average <- average + (1 - memory) * (new - average)."""

    memory = 0.9
    average: Range | None = None

    def _take(self, x: torch.Tensor) -> None:
        new = tuple(bound.item() for bound in torch.aminmax(x))
        old = self.average or new
        self.average = tuple(before + (1 - self.memory) * (now - before) for before, now in zip(old, new, strict=True))

    def _range(self) -> Range:
        return self.average


class HistogramObserver(Observer):
    """Keeps counts instead of values."""

    def __init__(self, bits: int = 8) -> None:
        super().__init__(bits)
        self.histogram = Histogram()

    def _take(self, x: torch.Tensor) -> None:
        self.histogram.add(x)

    @property
    def _extremes(self) -> Range:
        return self.histogram.smallest, self.histogram.largest


class Percentile(HistogramObserver):
    """Leaves out the outermost values of each side."""

    share = 0.0001

    def _range(self) -> Range:
        below = self.histogram.counts.cumsum(0) / self.histogram.counts.sum()
        centres, (smallest, largest) = self.histogram.centres, self._extremes
        low = centres[torch.searchsorted(below, self.share)].item()
        high = centres[torch.searchsorted(below, 1 - self.share)].item()
        return max(low, smallest), min(high, largest)


class SquaredError(HistogramObserver):
    """Tries narrower and narrower ranges, one side at a time, and keeps the one with the least squared error."""

    def _range(self) -> Range:
        low, high = (min(self._extremes[0], 0.0), max(self._extremes[1], 0.0))
        shares = torch.linspace(0.3, 1.0, 71, dtype=torch.float64)
        for _ in range(2):  # each side's best bound depends a little on the other's
            high = self._best(torch.full_like(shares, low), high * shares)[1]
            low = self._best(low * shares, torch.full_like(shares, high))[0]
        return low, high

    def _best(self, lows: torch.Tensor, highs: torch.Tensor) -> Range:
        """Of several ranges the one with the least error; the widest among equals."""
        used = self.histogram.counts > 0
        centres, counts = self.histogram.centres[used], self.histogram.counts[used]
        scale, zero_point = (p.double().unsqueeze(1) for p in choose(lows, highs, self.bits))
        codes = torch.round(centres / scale + zero_point).clamp(*code_range(self.bits, signed=False))
        errors = ((codes - zero_point) * scale - centres).square() @ counts
        best = len(errors) - 1 - int(errors.flip(0).argmin())
        return lows[best].item(), highs[best].item()


class Entropy(HistogramObserver):
    """Compares the distribution with what its codes still tell of it, for narrower and narrower ranges.

    P is the distribution with everything outside the range moved to its ends. Q is what the codes say: each code's
    count, spread evenly over those bins of the code that are not empty. The range with the least KL(P || Q) wins.
    Exact zeros are left out: they have a code of their own whatever the range, and after a ReLU there are so many of
    them that they would decide alone.
    """

    def _take(self, x: torch.Tensor) -> None:
        x = x[x != 0]
        if x.numel():
            super()._take(x)

    def _range(self) -> Range:
        if not self.histogram.counts.any():
            return 0.0, 0.0
        low, high = (min(self._extremes[0], 0.0), max(self._extremes[1], 0.0))
        shares = torch.linspace(0.3, 1.0, 71, dtype=torch.float64).tolist()
        best = min(reversed(shares), key=lambda share: self._divergence(low * share, high * share))
        return low * best, high * best

    def _divergence(self, low: float, high: float) -> float:
        counts, centres = self.histogram.counts, self.histogram.centres
        inside = (centres >= low) & (centres <= high)
        if not inside.any():
            return float("inf")
        p = counts[inside].clone()
        p[0] += counts[centres < low].sum()
        p[-1] += counts[centres > high].sum()
        q = self._spread_evenly(counts[inside], centres[inside], low, high)
        p, q = p / p.sum(), (q / q.sum().clamp(min=1)).clamp(min=1e-6)
        return torch.where(p > 0, p * torch.log(p.clamp(min=1e-300) / q), 0.0).sum().item()

    def _spread_evenly(self, counts: torch.Tensor, centres: torch.Tensor, low: float, high: float) -> torch.Tensor:
        last = code_range(self.bits, signed=False)[1]
        code = ((centres - low) / max(high - low, 1e-30) * last).round().long().clamp(0, last)
        used = (counts > 0).double()
        total, bins = (torch.zeros(last + 1, dtype=torch.float64).index_add_(0, code, v) for v in (counts, used))
        return (total / bins.clamp(min=1))[code] * used


OBSERVERS: dict[str, type[Observer]] = {
    "minmax": MinMax,
    "moving_average": MovingAverage,
    "percentile": Percentile,
    "mse": SquaredError,
    "entropy": Entropy,
}
