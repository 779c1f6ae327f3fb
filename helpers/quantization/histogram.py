"""A histogram that grows: counts of all values seen so far, without keeping the values."""

import torch

__all__ = ["Histogram"]

_MOST_AT_ONCE = 2**22  # histc counts in float32, which is exact up to 2^24


class Histogram:
    """Counts in `bins` equal bins. A value outside doubles the bin width as often as needed, which loses nothing:
    two neighbouring counts become one.

    Attributes:
        counts: float64 (bins,).
        start: the left border of the first bin.
        width: of one bin.
        smallest, largest: the exact extremes.

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
        self.smallest, self.largest = float("inf"), float("-inf")

    @property
    def centres(self) -> torch.Tensor:
        """The middle of each bin, float64."""
        return self.start + self.width * (torch.arange(len(self.counts), dtype=torch.float64) + 0.5)

    def add(self, x: torch.Tensor) -> None:
        """Count the values of a tensor, which must be finite."""
        low, high = (bound.item() for bound in torch.aminmax(x))
        if not self.counts.any():
            self.start, self.width = low, max((high - low) / len(self.counts), abs(low) * 1e-6, 1e-12)
        self._grow(low, high)
        self.smallest, self.largest = min(self.smallest, low), max(self.largest, high)
        end = self.start + self.width * len(self.counts)
        first, last = torch.tensor([self.start, end]).tolist()  # as float32, like the values
        for part in x.detach().float().flatten().split(_MOST_AT_ONCE):
            inside = part.clamp(first, last)  # histc would drop what rounding put just outside
            self.counts += torch.histc(inside, len(self.counts), first, last).double().cpu()

    def _grow(self, low: float, high: float) -> None:
        """Double the bin width until the range takes in [low, high]; the range extends to the side that needs it."""
        bins = len(self.counts)
        while low < self.start or high > self.start + self.width * bins:
            merged = self.counts.reshape(-1, 2).sum(1)
            empty = torch.zeros_like(merged)
            if low < self.start:
                self.counts, self.start = torch.cat([empty, merged]), self.start - self.width * bins
            else:
                self.counts = torch.cat([merged, empty])
            self.width *= 2
