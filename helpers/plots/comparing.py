"""Bars that compare: a few values side by side, and what is left after each step."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from helpers.plots.style import COLOURS, INK, bar, subplots


def bars(
    values: Mapping[str, Sequence[float]],
    names: Sequence[str],
    label: str,
    number: str = "{:.3g}",
    size: tuple[float, float] = (8, 4),
) -> Figure:
    """Draw groups of bars with their numbers above.

    Args:
        values: legend entry -> one value per name.
        names: what stands under each group.
        label: the axis, with its unit.
        number: how a value is written above its bar.
        size: inches.
    """
    figure, ax = subplots(size=size)
    width = 0.8 / len(values)
    for kind, (legend, heights) in enumerate(values.items()):
        places = [index + (kind - (len(values) - 1) / 2) * width for index in range(len(names))]
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
