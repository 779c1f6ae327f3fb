"""What each stage of a run of one's own changes."""

import pandas as pd
from matplotlib.figure import Figure

from helpers.plots.style import bar, subplots


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
    axes[2].set(title="ms per image", ylim=(0, 1.4 * axes[2].get_ylim()[1]))  # room for the legend above the bars
    axes[2].legend(fontsize=10, ncols=2, loc="upper right")
    for ax in axes:
        ax.tick_params(axis="x", rotation=25)
    return figure
