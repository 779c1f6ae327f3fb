"""Boxes in a row with arrows between them: how something comes about, step by step."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from helpers.plots.style import COLOURS, INK, subplots

FILLS = ("#eef1f5", COLOURS["sky"])


def flow(
    boxes: Sequence[tuple[str, str]], arrows: Sequence[str] = (), strong: Sequence[int] = ()
) -> Figure:
    """Draw boxes, each a title and a content, from left to right, words over the arrows; stress
    those at `strong`.
    """
    figure, ax = subplots(size=(2.15 * len(boxes), 1.9))
    for place, (title, content) in enumerate(boxes):
        look = {
            "facecolor": FILLS[place in strong],
            "edgecolor": INK,
            "linewidth": 2.4 if place in strong else 1.0,
        }
        ax.add_patch(
            FancyBboxPatch((place - 0.36, -0.42), 0.72, 0.84, boxstyle="round,pad=0.02", **look)
        )
        ax.text(place, 0.26, title, ha="center", va="center", fontsize=13, fontweight="bold")
        ax.text(place, -0.1, content, ha="center", va="center", fontsize=13, linespacing=1.4)
    for place in range(len(boxes) - 1):
        arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.6}
        ax.annotate("", (place + 0.61, 0), (place + 0.39, 0), arrowprops=arrow)
    for place, label in enumerate(arrows):
        ax.text(place + 0.5, 0.56, label, ha="center", va="bottom", fontsize=12)
    ax.set(xlim=(-0.5, len(boxes) - 0.5), ylim=(-0.6, 0.95 if any(arrows) else 0.6))
    ax.set_axis_off()
    return figure
