"""Calibration: observers watch the values on each edge and then name the range that the codes
should cover.

A wide range makes every rounding error larger; a narrow one cuts off large values. The rules settle
this differently:

    minmax      the smallest and largest value ever seen: nothing is cut off
    percentile  all but 0.01 % of the values on each side, at most
    mse         the range with the least mean squared error
"""

import torch
from torch import nn

from helpers.dataset import input_of
from helpers.quantization.affine import Affine, QuantizationError, choose, code_range
from helpers.quantization.plan import HANDS_ON, Plan, Recipe

BATCH = 64
BINS = 2048
OUTERMOST = 0.0001  # the share of the values that "percentile" may leave out on each side
SHARES = torch.linspace(0.3, 1.0, 71, dtype=torch.float64)  # of the whole range, which "mse" tries
_MOST_AT_ONCE = 2**22  # values, of which histc needs copies


class Observer:
    """Watches values, their extremes and a histogram, then names a range.

    The histogram counts (float64) in equal bins from `start` on. A value outside doubles the bin
    width as often as needed, which loses nothing: two neighbouring counts become one.
    """

    def __init__(self, rule: str, bits: int = 8) -> None:
        self.rule, self.bits = rule, bits
        self.low, self.high = float("inf"), float("-inf")
        self.counts, self.start, self.width = torch.zeros(BINS, dtype=torch.float64), 0.0, 0.0

    def observe(self, x: torch.Tensor) -> None:
        """Take in one batch of values."""
        low, high = (bound.item() for bound in torch.aminmax(x))
        self.low, self.high = min(self.low, low), max(self.high, high)
        if self.rule == "minmax":
            return
        if not self.counts.any():
            self.start, self.width = (
                low,
                max((high - low) / BINS, abs(low) * 1e-6, torch.finfo(torch.float32).tiny),
            )
        while low < self.start or high > self.start + self.width * BINS:
            merged = self.counts.reshape(-1, 2).sum(1)
            halves = [merged, torch.zeros_like(merged)]
            if low < self.start:
                halves, self.start = halves[::-1], self.start - self.width * BINS
            self.counts, self.width = torch.cat(halves), self.width * 2
        for part in (
            x.detach().flatten().split(_MOST_AT_ONCE)
        ):  # in float64, so that no bound is rounded to the inside
            self.counts += torch.histc(
                part.double(), BINS, self.start, self.start + self.width * BINS
            ).cpu()

    def range(self) -> tuple[float, float]:
        """The range to cover."""
        if self.rule == "minmax":
            return self.low, self.high
        used = self.counts > 0
        centres, counts = (
            (self.start + self.width * (torch.arange(BINS) + 0.5).double())[used],
            self.counts[used],
        )
        if self.rule == "mse":
            return self._least_error(centres, counts)
        below = counts.cumsum(0) / counts.sum()
        low, high = (
            centres[torch.searchsorted(below, at)].item() for at in (OUTERMOST, 1 - OUTERMOST)
        )
        # Up to the bins' outer edges: beside an outlier one bin may hold most values.
        return max(low - self.width / 2, self.low), min(high + self.width / 2, self.high)

    def _least_error(self, centres: torch.Tensor, counts: torch.Tensor) -> tuple[float, float]:
        """Try narrower and narrower ranges, one side at a time; the widest among equals."""

        def best(lows: torch.Tensor, highs: torch.Tensor) -> int:
            scale, zero_point = (p.double().unsqueeze(1) for p in choose(lows, highs, self.bits))
            codes = torch.round(centres / scale + zero_point).clamp(
                *code_range(self.bits, signed=False)
            )
            errors = ((codes - zero_point) * scale - centres).square() @ counts
            return len(errors) - 1 - int(errors.flip(0).argmin())

        low, high = min(self.low, 0.0), max(self.high, 0.0)
        for _ in range(2):  # each side's best bound depends a little on the other's
            high = (highs := high * SHARES)[best(torch.full_like(SHARES, low), highs)].item()
            low = (lows := low * SHARES)[best(lows, torch.full_like(SHARES, high))].item()
        return low, high


def calibrate(plan: Plan, images: torch.Tensor, recipe: Recipe) -> dict[str, Affine]:
    """Choose an unsigned per-tensor `Affine` for every edge that carries codes, from what images
    give in float.
    """
    edges, bits, origins = quantized_edges(plan), recipe.activation_bits, plan.origins()
    observers = {origins[edge]: Observer(recipe.observer, bits) for edge in edges}
    moved = {op.name for op in plan.ops if op.kind in HANDS_ON}

    def watch(edge: str, value: torch.Tensor) -> None:
        if edge in moved or edge not in edges:
            return
        if not value.numel() or not all(bound.isfinite() for bound in value.aminmax()):
            raise QuantizationError(
                f"edge {edge!r} holds nothing, NaN or infinity; check images and weights"
            )
        observers[origins[edge]].observe(value)

    for batch in images.split(BATCH):
        plan.run(batch, watch)
    ranges = {edge: map(torch.tensor, observer.range()) for edge, observer in observers.items()}
    chosen = {
        edge: Affine(*choose(*bounds, bits), bits, signed=False) for edge, bounds in ranges.items()
    }
    return {edge: chosen[origins[edge]] for edge in edges}


def normalised(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Calibration images as the network takes them; what neither images nor weights may be is
    refused.
    """
    kind = getattr(images, "dtype", type(images).__name__)
    if kind not in (torch.uint8, torch.float32):
        remedy = (
            "; call .float() on the images and the network" if isinstance(kind, torch.dtype) else ""
        )
        raise QuantizationError(
            f"calibration images: expected a uint8 or float32 tensor, got {kind}{remedy}"
        )
    if not images.numel():
        raise QuantizationError(
            f"calibration images: there are none in a tensor of shape {tuple(images.shape)}"
        )
    if not torch.isfinite(images).all():
        bad = int((~torch.isfinite(images)).flatten(1).any(1).sum())
        raise QuantizationError(
            f"calibration images: {bad} of {len(images)} hold NaN or infinity; leave them out"
        )
    for name, tensor in model.named_parameters():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise QuantizationError(
                f"{name} is {tensor.dtype}, not float32; call .float() on the network"
            )
        if not tensor.isfinite().all():
            raise QuantizationError(f"{name} holds NaN or infinity; check the checkpoint")
    return input_of(model, images)


def quantized_edges(plan: Plan) -> list[str]:
    """The edges that carry codes, in the order of the plan.

    All but these: what passes from one operation in float to the next, and the network's output,
        when an operation
    that adds up computes it. Reshaping does not count.
    """
    coded = {edge for op in plan.ops if op.kind != "float" for edge in (op.name, *op.inputs)}
    # The last edge before reshaping, and all after it.
    bare = plan.tied(lambda op: op.inputs * (op.kind == "reshape"))[plan.output]
    last = next(op for op in plan.ops if op.name in bare)
    if last.kind not in (*HANDS_ON, "clamp") and last.clamp is None and last.residual is None:
        coded -= {*bare}
    return [edge for edge in plan.shapes if edge in coded]
