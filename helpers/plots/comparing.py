"""Figures that compare: bars, lines, accuracies, and what is left after each step."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from helpers.plots.style import COLOURS, GREY, INK, bar, line, subplots
from helpers.training import Evaluation


def bars(
    values: Mapping[str, Sequence[float]], names: Sequence[str], label: str, number: str = "{:.3g}"
) -> Figure:
    """Draw groups of bars with their numbers above.

    Args:
        values: legend entry -> one value per name.
        names: what stands under each group.
        label: the axis, with its unit.
        number: how a value is written above its bar.
    """
    figure, ax = subplots()
    width = 0.8 / len(values)
    for kind, (legend, heights) in enumerate(values.items()):
        places = np.arange(len(names)) + (kind - (len(values) - 1) / 2) * width
        drawn = ax.bar(places, heights, width * 0.94, label=legend, **bar(kind))
        ax.bar_label(drawn, [number.format(height) for height in heights], padding=2, fontsize=11)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylabel(label)
    ax.margins(y=0.12)
    ax.grid(axis="x", visible=False)
    if len(values) > 1:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=len(values))
    return figure


def waterfall(steps: Mapping[str, float], label: str, number: str = "{:.2f}") -> Figure:
    """Draw what is left after each step, each bar with the share of the first that remains."""
    figure, ax = subplots(size=(8, 0.48 * len(steps) + 1.2))
    first = next(iter(steps.values()))
    drawn = ax.barh(list(steps), list(steps.values()), color=COLOURS["blue"], height=0.62)
    texts = [f"{number.format(value)}  ({value / first:.0%})" for value in steps.values()]
    ax.bar_label(drawn, texts, padding=4, color=INK, fontsize=12)
    ax.invert_yaxis()
    ax.set_xlabel(label)
    ax.set_xlim(0, max(steps.values()) * 1.25)
    ax.grid(axis="y", visible=False)
    return figure


def lines(
    values: Mapping[str, tuple[Sequence, Sequence]],
    x: str,
    y: str,
    marker: bool = True,
    **settings: object,
) -> Figure:
    """Draw lines: legend entry -> places and heights.

    Settings are those of the axes, such as ylim=(0, 100).
    """
    figure, ax = subplots(size=(8, 3.4))
    for position, (legend, points) in enumerate(values.items()):
        ax.plot(*points, label=legend, **line(position, marker))
    ax.set(xlabel=x, ylabel=y, **settings)
    ax.legend()
    return figure


def accuracies(
    found: Mapping[str, Sequence[Evaluation]], names: Sequence[str], label: str, dense: Evaluation
) -> Figure:
    """Draw accuracies on validation images with their 95 % intervals.

    Args:
        found: a line for each entry, with one point for each name.
        names: of the points of the lines.
        label: the axis of the names.
        dense: the float network, for a dotted line.
    """
    figure, ax = subplots(size=(8, 3.6))
    for position, (legend, results) in enumerate(found.items()):
        percent = [100 * result.accuracy for result in results]
        bounds = np.array([result.interval for result in results])
        ends = abs(100 * bounds.T - percent)
        places = np.arange(len(names)) + 0.06 * (position - (len(found) - 1) / 2)
        ax.errorbar(places, percent, yerr=ends, capsize=4, label=legend, **line(position))
    ax.axhline(100 * dense.accuracy, color=GREY, linestyle=":", label="float32")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    ax.set_xticks(range(len(names)), names)
    ax.set(xlabel=label, ylim=(0, 100))
    ax.set_ylabel(f"accuracy in %\n({results[0].n:,} validation images)")
    return figure
