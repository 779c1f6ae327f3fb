"""The settings of a fused operation, as one line of text.

    "stride 2x2 padding 1x1 dilation 1x1 groups 96 then hardtanh 0.0 6.0 on onednn"

A registered operation takes tensors, numbers, lists and text. Each list costs about a microsecond per call on the way
from Python to C++ and back; a text costs nothing, since it is not even copied. It is read once, then remembered.
"""

import functools
from typing import NamedTuple

from helpers.passes.activations import NO_ACTIVATION, Activation


class Geometry(NamedTuple):
    """Where a convolution looks."""

    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1


class How(NamedTuple):
    """Geometry (None for a linear layer), the activation that follows, and the kernel: "plain" or one of kernels.py."""

    geometry: Geometry | None = None
    activation: Activation = NO_ACTIVATION
    kernel: str = "plain"

    def __str__(self) -> str:
        ending = " ".join(["then", self.activation.name, *map(repr, self.activation.scalars), "on", self.kernel])
        if self.geometry is None:
            return f"linear {ending}"
        stride, padding, dilation = ("x".join(map(str, side)) for side in self.geometry[:3])
        return f"stride {stride} padding {padding} dilation {dilation} groups {self.geometry.groups} {ending}"


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> How:
    """What a text says.

    Example:
        >>> parse("linear then relu on gemm")
        How(geometry=None, activation=Activation(name='relu', scalars=()), kernel='gemm')
    """
    before, _, ending = text.partition("then ")
    function, _, kernel = ending.rpartition(" on ")
    name, *scalars = function.split()
    activation = Activation(name, tuple(map(float, scalars)))
    if before == "linear ":
        return How(None, activation, kernel)
    words = before.split()
    sides = (tuple(map(int, word.split("x"))) for word in words[1:6:2])
    return How(Geometry(*sides, int(words[7])), activation, kernel)
