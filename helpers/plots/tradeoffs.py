"""The one-page figure: what accuracy costs in bytes and in milliseconds, and what nobody beats."""

from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from helpers.plots.names import place_names
from helpers.plots.style import COLOURS, GREY, INK, subplots

# Stage -> (legend, marker, colour); networks that still wait for fine-tuning would only squeeze the axis.
LOOKS = {
    "dense": ("dense, float32", "o", COLOURS["blue"]),
    "fine-tuned": ("pruned and fine-tuned, float32", "s", COLOURS["orange"]),
    "int8": ("8 bits or fewer, not trained again", "^", COLOURS["green"]),
    "qat": ("trained with rounding, 2 to 8 bits", "D", COLOURS["red"]),
}
SPAN = 0.12  # what is further below the best would squeeze the axis, too: the table has it
DARK_GREY = "#5b6672"


def tradeoffs(table: pd.DataFrame, published: pd.DataFrame | None = None, run: pd.DataFrame | None = None) -> Figure:
    """Draw accuracy against bytes and against latency, each with its Pareto front.

    Args:
        table: as `results.load` gives it; `shown` says which rows are drawn.
        published: as `results.published` gives it, for the panel of the bytes.
        run: a run of one's own, from `pipeline.compress`: each stage becomes a star.
    """
    drawn = shown(table)
    figure, (left, right) = subplots(1, 2, size=(11.5, 5.6), sharey=True)
    if published is not None:
        draw_published(left, published)
    fronts = draw_networks(left, drawn, "file_bytes"), draw_networks(right, drawn, "batch1_ms", "batch1_iqr_ms")
    dress(left, "MB of the reloaded file", lambda x, _: f"{x / 1e6:g}")
    threads = drawn.threads.dropna()
    count = int(threads.iloc[0]) if len(threads) else 0
    number = f", {count} CPU thread{'s' * (count > 1)}" if count else ""
    dress(right, f"median ms for one image{number}", lambda x, _: f"{x:g}")
    if run is not None:
        draw_run(left, run, "file_bytes")
        draw_run(right, run, "batch1_ms")
    left.set_ylabel("accuracy on the test images, %")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=12)
    name_points(left, fronts[0], "file_bytes", [drawn, published], run)
    name_points(right, fronts[1], "batch1_ms", [drawn], run)
    return figure


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that the figure has room for: measured, not waiting for fine-tuning, not far below the best."""
    known = table[(table.status == "measured") & table.stage.isin(LOOKS)]
    return known[known.accuracy >= known.accuracy.max() - SPAN]


def pareto(table: pd.DataFrame, cost: str = "file_bytes") -> pd.DataFrame:
    """The networks that no other beats: whatever costs as much or less is less accurate. Cheapest first."""
    known = table[(table.status == "measured") & table[cost].notna()].sort_values(
        [cost, "accuracy"], ascending=[True, False]
    )
    return known[known.accuracy > known.accuracy.cummax().shift(fill_value=-1)]


def draw_networks(ax: Axes, table: pd.DataFrame, cost: str, spread: str | None = None) -> pd.DataFrame:
    """The course's own networks with their error bars; those on the front are joined, and returned."""
    known = table[table[cost].notna()].astype({cost: float, "accuracy": float})
    if known.empty:
        ax.text(0.5, 0.5, "not measured yet", transform=ax.transAxes, ha="center", color=GREY)
        ax.set_xlim(*(ax.get_xlim() if ax.lines else (1, 10)))
    for stage, (label, marker, colour) in LOOKS.items():
        rows = known[known.stage == stage]
        bars = 100 * pd.concat([rows.accuracy - rows.low, rows.high - rows.accuracy], axis=1).T.to_numpy(float)
        sideways = rows[spread].to_numpy(float) / 2 if spread else None
        look = {"fmt": marker, "color": colour, "markeredgecolor": INK, "ecolor": INK, "elinewidth": 1.2, "capsize": 3}
        if len(rows):
            ax.errorbar(rows[cost], 100 * rows.accuracy, bars, sideways, label=label, markersize=9, zorder=3, **look)
    front = pareto(known, cost)
    ax.step(front[cost], 100 * front.accuracy, where="post", color=INK, linewidth=1.6, label="Pareto front", zorder=2)
    return front


def draw_run(ax: Axes, run: pd.DataFrame, cost: str) -> None:
    """The stages of a run of one's own as stars, with room around them."""
    low, high = ax.get_xlim()
    percent = 100 * run.accuracy
    whiskers = [percent - 100 * run.low, 100 * run.high - percent]
    look = {"fmt": "*", "markersize": 15, "color": COLOURS["sky"], "markeredgecolor": INK, "ecolor": INK}
    ax.errorbar(run[cost], percent, whiskers, capsize=3, zorder=5, **look)
    widen(ax, min(low, run[cost].min() / 2), max(high, run[cost].max() * 1.6))


def name_points(
    ax: Axes, front: pd.DataFrame, cost: str, drawn: list[pd.DataFrame | None], run: pd.DataFrame | None
) -> None:
    """Write the names of one's own run and of the front, the best first, where they cover nothing that is drawn."""
    seen = pd.concat([*drawn, run])
    seen = seen[seen[cost].notna()]
    marks = list(zip(seen[cost].astype(float), 100 * seen.accuracy, strict=True))
    names = [(row.name, getattr(row, cost), 100 * row.accuracy) for row in front[::-1].itertuples()]
    if run is not None:
        mine = [(f"your {row.stage}", getattr(row, cost), 100 * row.accuracy) for row in run[::-1].itertuples()]
        names = mine + names
    if names:
        place_names(ax, names, marks)


def draw_published(ax: Axes, published: pd.DataFrame) -> None:
    """What others state, in grey: a cross with the letter of its source, or a line where it states no size."""
    sized = published[published.file_bytes.notna()]
    unsized = published[~published.letter.isin(sized.letter)]
    look = {"color": DARK_GREY, "fontsize": 11, "textcoords": "offset points"}
    percent = 100 * sized.accuracy
    ax.plot(sized.file_bytes, percent, "x", color=GREY, markersize=8, markeredgewidth=2, label="others, as they state")
    for letter, place in zip(sized.letter, zip(sized.file_bytes, percent, strict=True), strict=True):
        ax.annotate(letter, place, (7, -4), **look)
    for letter, accuracy in zip(unsized.letter, 100 * unsized.accuracy, strict=True):
        ax.axhline(accuracy, color=GREY, linestyle=(0, (2, 3)), linewidth=1.4)
        places = {"xycoords": ("axes fraction", "data")}
        ax.annotate(f"{letter}: no size stated", (0.01, accuracy), (0, 3), **places, **look)


def dress(ax: Axes, label: str, number: Callable) -> None:
    """A logarithmic axis with plain numbers on it."""
    ax.set_xscale("log")
    ax.set_xlabel(label)
    ax.xaxis.set_major_formatter(FuncFormatter(number))
    ax.xaxis.set_minor_formatter(NullFormatter())
    low, high = ax.get_xlim()
    widen(ax, low / (high / low) ** 0.32, high)  # room for the names


def widen(ax: Axes, low: float, high: float) -> None:
    """Let a logarithmic axis reach so far, with ticks at round numbers."""
    steps = (1, 2, 5) if high > 5 * low else range(1, 10)
    ticks = [step * 10.0**power for power in range(-3, 10) for step in steps]
    ax.set_xticks([tick for tick in ticks if low <= tick <= high])
    ax.set_xlim(low, high)
