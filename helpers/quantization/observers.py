"""Calibration: observers watch the values on each edge and then name the range that the codes
should cover.

A wide range makes every rounding error larger, a narrow one cuts off large values. There are three
ways to choose between the two:

    minmax      the smallest and largest value ever seen: nothing is cut off
    percentile  at most 0.01 % of the values are cut off on each side
    mse         the range with the least mean squared error
"""

import math

import torch
from torch import Tensor

from helpers.quantization.affine import (
    SMALLEST_SCALE,
    Affine,
    QuantizationError,
    choose,
    code_range,
    fit,
)
from helpers.quantization.plan import KEEPS_CODES, Plan, Recipe

BATCH = 64
BINS = 2048
OUTERMOST = 0.0001  # the share of the values that "percentile" may leave out on each side
# The bounds that "mse" tries, as shares of the smallest and the largest value.
SHARES = torch.linspace(0.3, 1.0, 71, dtype=torch.float64)
_MOST_AT_ONCE = 2**22  # values, of which histc needs copies


class Observer:
    """Watches values, their extremes and a histogram, then names a range.

    The histogram has bins of equal width from `start` on. Where a value lies outside, the width is
    doubled as often as needed; no count is lost, since two neighbouring bins become one.
    """

    def __init__(self, rule: str, bits: int = 8) -> None:
        self.rule = rule
        self.bits = bits
        self.low = float("inf")
        self.high = float("-inf")
        self.counts = torch.zeros(BINS, dtype=torch.float64)
        self.start = 0.0
        self.width = 0.0  # of one bin

    def observe(self, x: Tensor) -> None:
        """Take in one batch of values."""
        low, high = (bound.item() for bound in torch.aminmax(x))
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        if self.rule == "minmax":
            return
        if not self.counts.any():
            self.start = low
            self.width = max((high - low) / BINS, abs(low) * 1e-6, SMALLEST_SCALE)
        while low < self.start or high > self.start + self.width * BINS:
            self._widen(downwards=low < self.start)
        end = self.start + self.width * BINS
        for part in x.flatten().split(_MOST_AT_ONCE):
            # In float64, so that no bound is rounded inwards.
            self.counts += torch.histc(part.double(), BINS, self.start, end)

    def _widen(self, downwards):
        """Join pairs of bins, and append as many empty ones below or above."""
        merged = self.counts.reshape(-1, 2).sum(1)
        empty = torch.zeros_like(merged)
        halves = [merged, empty]
        if downwards:
            self.start -= self.width * BINS
            halves.reverse()
        self.counts = torch.cat(halves)
        self.width *= 2

    def range(self) -> tuple[float, float]:
        """The range to cover."""
        if self.rule == "minmax":
            return self.low, self.high
        used = self.counts > 0
        centres = (self.start + self.width * (torch.arange(BINS) + 0.5).double())[used]
        counts = self.counts[used]
        if self.rule == "mse":
            return self._least_error(centres, counts)
        below = counts.cumsum(0) / counts.sum()
        low = centres[torch.searchsorted(below, OUTERMOST)].item()
        high = centres[torch.searchsorted(below, 1 - OUTERMOST)].item()
        # From the centres to the outer edges: with an outlier, one wide bin may hold most values.
        half = self.width / 2
        return max(low - half, self.low), min(high + half, self.high)

    def _least_error(self, centres, counts):
        """The range with the least squared error: narrower ones are tried, one side at a time."""
        first, last = code_range(self.bits, signed=False)

        def best(lows, highs):
            """The number of the best range; of equally good ones the widest, which is the last."""
            scale, zero_point = choose(lows, highs, self.bits)
            scale = scale.double().unsqueeze(1)
            zero_point = zero_point.double().unsqueeze(1)
            codes = torch.round(centres / scale + zero_point).clamp(first, last)
            rounded = (codes - zero_point) * scale
            errors = (rounded - centres).square() @ counts
            return len(errors) - 1 - int(errors.flip(0).argmin())

        low = min(self.low, 0.0)
        high = max(self.high, 0.0)
        for _ in range(2):  # each side's best bound depends a little on the other's
            highs = high * SHARES
            high = highs[best(torch.full_like(SHARES, low), highs)].item()
            lows = low * SHARES
            low = lows[best(lows, torch.full_like(SHARES, high))].item()
        return low, high


def calibrate(plan: Plan, images: Tensor, recipe: Recipe) -> dict[str, Affine]:
    """Choose an unsigned per-tensor `Affine` for every edge that carries codes.

    Edges with the same codes share one observer. The output of an operation that keeps codes is not
    watched, since its inputs are.
    """
    bits = recipe.activation_bits
    edges = plan.quantized_edges()
    origins = plan.origins()
    observers = {origins[edge]: Observer(recipe.observer, bits) for edge in edges}
    watched = {*edges} - {op.name for op in plan.ops if op.kind in KEEPS_CODES}

    def watch(edge, value):
        if edge not in watched:
            return
        if {op.kind for op in plan.readers(edge)} == {"max_pool"}:
            # Some networks pad with -inf before it: the lowest code does the same.
            value = value[value != -math.inf]
        if not value.numel() or not all(bound.isfinite() for bound in value.aminmax()):
            raise QuantizationError(
                f"edge {edge!r} holds nothing, NaN or infinity, for which no code stands; check"
                " images and weights, or rule out classes after the quantized network"
            )
        observers[origins[edge]].observe(value)

    for batch in images.split(BATCH):
        plan.run(batch, watch)
    chosen = {}
    for edge, observer in observers.items():
        chosen[edge] = fit(torch.tensor(observer.range()), bits, signed=False)
    return {edge: chosen[origins[edge]] for edge in edges}
