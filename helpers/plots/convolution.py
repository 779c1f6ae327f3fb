"""How a window moves over a row of pixels: stride and padding in one picture."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.plots.style import COLOURS, GREY, INK, subplots


def window_places(settings: list[dict[str, int]]) -> Figure:
    """Draw, for each setting, one row of pixels and every place that the window takes.

    Args:
        settings: each with size, kernel, stride and padding.
    """
    outputs = [(s["size"] + 2 * s["padding"] - s["kernel"]) // s["stride"] + 1 for s in settings]
    figure, axes = subplots(1, len(settings), size=(9.5, 0.36 * max(outputs) + 1.9), squeeze=False)
    for ax, setting, count in zip(axes[0], settings, outputs, strict=True):
        draw_row(ax, setting, count, max(outputs))
    return figure


def draw_row(ax: Axes, setting: dict[str, int], count: int, tallest: int) -> None:
    """One setting: the row on top, the window's places below it."""
    size, kernel, stride, padding = (setting[name] for name in ("size", "kernel", "stride", "padding"))
    for place in range(-padding, size + padding):
        outside = not 0 <= place < size
        look = {"facecolor": "white", "hatch": "///"} if outside else {"facecolor": COLOURS["sky"]}
        ax.add_patch(Rectangle((place, 0), 1, 0.9, edgecolor=GREY, **look))
        ax.text(place + 0.5, 0.45, "0" if outside else str(place + 1), ha="center", va="center", fontsize=11, color=INK)
    for step in range(count):
        left = step * stride - padding
        ax.add_patch(Rectangle((left + 0.06, 1.25 + 0.8 * step), kernel - 0.12, 0.55, facecolor=COLOURS["blue"]))
    ax.set_title(f"stride {stride}, padding {padding}\n{size} pixels, window {kernel}: {count} outputs", fontsize=11)
    ax.set(xlim=(-1.4, size + 1.4), ylim=(1.4 + 0.8 * tallest, -0.3))
    ax.set_axis_off()
