"""'Your run' beside the reference: stars on the figure of trade-offs, and what each stage changes."""

import pandas as pd
from matplotlib.figure import Figure

from helpers.plots.names import place_names
from helpers.plots.style import COLOURS, INK, bar, subplots
from helpers.plots.tradeoffs import widen

COSTS = ("file_bytes", "batch1_ms")  # of the panels of `tradeoffs`


def add_run(figure: Figure, table: pd.DataFrame) -> Figure:
    """Put the stages of a run of one's own as stars onto a figure that `tradeoffs` drew.

    Args:
        figure: changed in place.
        table: from `pipeline.compress`: columns stage, accuracy, low, high, file_bytes, batch1_ms.
    """
    for ax, cost in zip(figure.axes, COSTS, strict=True):
        low, high = ax.get_xlim()
        percent = 100 * table.accuracy
        whiskers = [percent - 100 * table.low, 100 * table.high - percent]
        look = {"fmt": "*", "markersize": 15, "color": COLOURS["sky"], "markeredgecolor": INK, "ecolor": INK}
        ax.errorbar(table[cost], percent, whiskers, capsize=3, zorder=5, **look)
        widen(ax, min(low, table[cost].min() / 2), max(high, table[cost].max() * 1.6))
        places = list(zip(table[cost], percent, strict=True))
        names = [(f"your {stage}", *place) for stage, place in zip(table.stage, places, strict=True)]
        place_names(ax, names[::-1], places)
    return figure


def stages(table: pd.DataFrame) -> Figure:
    """Accuracy, size and time of each stage side by side.

    Args:
        table: from `pipeline.compress`.
    """
    figure, axes = subplots(1, 3, size=(11, 3.6))
    names = list(table.stage)
    percent = 100 * table.accuracy
    whiskers = [percent - 100 * table.low, 100 * table.high - percent]
    axes[0].bar(names, percent, yerr=whiskers, capsize=5, **bar(0))
    axes[0].set(title="accuracy in %", ylim=(0, 100))
    axes[1].bar(names, table.file_bytes / 1e6, **bar(1))
    axes[1].set(title="size of the file in MB")
    for position, batch in enumerate((1, 128)):
        places = [place + 0.4 * (position - 0.5) for place in range(len(names))]
        times, spread = table[f"batch{batch}_ms"] / batch, table[f"batch{batch}_iqr_ms"] / 2 / batch
        axes[2].bar(places, times, 0.38, yerr=spread, capsize=4, label=f"batch {batch}", **bar(2 + position))
    axes[2].set_xticks(range(len(names)), names)
    axes[2].set(title="ms per image")
    axes[2].legend(fontsize=10)
    for ax in axes:
        ax.tick_params(axis="x", rotation=25)
    return figure
