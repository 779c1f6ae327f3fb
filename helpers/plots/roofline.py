"""The roofline: how fast each layer runs, below the line that arithmetic and memory allow."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from helpers.plots.style import COLOURS, INK, MARKERS, subplots


def roofline(peak: float, memory_rate: float, layers: dict[str, Sequence[tuple[float, float]]]) -> Figure:
    """Draw layers as points under the roof.

    Args:
        peak: operations per second.
        memory_rate: bytes per second.
        layers: kind -> (operations per byte, operations per second) of each layer.
    """
    figure, ax = subplots(size=(9, 4.4))
    points = [point for kind in layers.values() for point in kind]
    ridge = peak / memory_rate
    x = np.geomspace(min(ridge, *(i for i, _ in points)) / 2, 2 * max(ridge, *(i for i, _ in points)), 200)
    ax.plot(x, np.minimum(peak, memory_rate * x) / 1e9, color=INK, linewidth=2.4, linestyle="-")
    ax.axvline(ridge, color=INK, linewidth=1, linestyle=":")
    for position, (kind, of_kind) in enumerate(layers.items()):
        look = {"marker": MARKERS[position], "color": list(COLOURS.values())[position], "edgecolor": INK}
        ax.scatter(*zip(*((i, rate / 1e9) for i, rate in of_kind), strict=True), s=55, label=kind, zorder=3, **look)
    ax.text(ridge, peak / 1e9 * 1.15, f"arithmetic: {peak / 1e9:.0f} billion operations/s ", ha="right", fontsize=11)
    ax.text(4 * x[0], memory_rate * x[0] / 1e9, f"memory: {memory_rate / 1e9:.0f} GB/s", fontsize=11)
    ax.set(xscale="log", yscale="log", xlabel="operations per byte moved", ylabel="billion operations per second")
    ax.set_ylim(top=max(peak, *(rate for _, rate in points)) / 1e9 * 2)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
