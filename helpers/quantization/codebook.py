"""k-means codebooks: weights share 2^bits values that lie anywhere, not on an even grid.

A weight tensor w becomes indices i (one per weight, `bits` bits each) and a table c of 2^bits centres, w ~ c[i].
The centres minimise sum (w - c[i])^2. In one dimension this is simple: sort the weights once; a cluster is then a
run of neighbours, its border lies half-way between two centres, and its sum is a difference of prefix sums.
An even grid (affine quantization) can be computed with in integers; a codebook is only smaller on disk.
"""

from dataclasses import dataclass

import torch

from helpers.quantization.affine import QuantizationError, code_range

__all__ = ["Codebook", "CodebookError", "fit"]


class CodebookError(QuantizationError):
    """A tensor that no codebook can be fitted to."""


@dataclass(frozen=True)
class Codebook:
    """Shared values: `centres` float32 (2^bits,), ascending, and `indices` uint8 of the weight's shape."""

    centres: torch.Tensor
    indices: torch.Tensor
    bits: int

    def decode(self) -> torch.Tensor:
        """The weights that the table stands for, in the weight's shape."""
        return self.centres[self.indices.long()]


def fit(weight: torch.Tensor, bits: int, iterations: int = 50) -> Codebook:
    """Fit a codebook with Lloyd's algorithm: assign to the nearest centre, move each centre to its mean, repeat.

    The centres start evenly spaced over the range, so that the rare large weights, which matter most, keep one
    of their own (starting at quantiles would crowd all centres around zero).

    Args:
        weight: floating tensor of any shape, finite and not empty.
        bits: 2 to 8.
        iterations: at most so many rounds; stops earlier when no centre moves.

    Example:
        >>> book = fit(torch.tensor([0.0, 0.1, 1.0, 1.1, 2.0, 2.1, 3.0, 3.1]), bits=2)
        >>> book.indices.tolist()
        [0, 0, 1, 1, 2, 2, 3, 3]
    """
    _, last = code_range(bits, signed=False)
    if weight.numel() == 0 or not torch.isfinite(weight).all():
        raise CodebookError(
            f"codebook: a weight of shape {tuple(weight.shape)} is empty or holds NaN or infinity; "
            "check the checkpoint that it came from"
        )
    ordered = weight.detach().double().flatten().sort().values
    prefix = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)])
    # linspace(a, b) is not monotonic to the last bit when a and b nearly agree, hence the sort
    centres = torch.linspace(ordered[0], ordered[-1], last + 1, dtype=torch.float64, device=weight.device).sort().values
    for _ in range(iterations):
        borders = torch.searchsorted(ordered, midpoints(centres), right=True)
        ends = torch.cat([borders.new_zeros(1), borders, borders.new_full((1,), len(ordered))])
        counts = ends.diff()
        means = prefix[ends].diff() / counts.clamp(min=1)
        moved = torch.where(counts > 0, means, centres)  # an empty cluster keeps its place
        if torch.equal(moved, centres):
            break
        centres = moved
    indices = torch.bucketize(weight.detach().double(), midpoints(centres), right=False)
    return Codebook(centres.float(), indices.to(torch.uint8), bits)


def midpoints(centres: torch.Tensor) -> torch.Tensor:
    """The borders between neighbouring clusters."""
    return (centres[1:] + centres[:-1]) / 2
