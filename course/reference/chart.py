"""The one chart of the front page: accuracy against bytes, ours beside what others published, sizes
counted alike.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator
from matplotlib.transforms import Bbox

from course.reference.headline import headline
from course.reference.table import load, published
from helpers.plots.style import COLOURS, GREY, INK, subplots

LOWEST = 0.915  # what is further below would squeeze the axis; the table of the results page has it
PLACES = [
    (right, up) for up in (6, -4, -14, 16, -24) for right in (9, -46, -68, -130)
]  # points from a dot to its name


def coded_size(rows: pd.DataFrame) -> pd.Series:
    """Bytes of the entropy-coded file; a float network has none and counts as it is."""
    return rows.coded_bytes.astype(float).fillna(rows.file_bytes.astype(float))


def comparable(others: pd.DataFrame) -> pd.DataFrame:
    """Published results with entropy-coded sizes, as ours are, and without help from ImageNet."""
    return others[(others.entropy_coded == "yes") & ~others.pretrained.str.startswith("ImageNet")]


def chart(table: pd.DataFrame | None = None, others: pd.DataFrame | None = None) -> Figure:
    """Draw the four networks that are shown first and what others published."""
    ours = headline(load() if table is None else table)
    others = comparable(published() if others is None else others)
    others = others[others.accuracy >= LOWEST]
    figure, ax = subplots(size=(8, 4.4))
    ax.plot(
        others.file_bytes, 100 * others.accuracy, "x", color=GREY, markersize=8, markeredgewidth=2
    )
    for _, points in others.sort_values("file_bytes").groupby("label"):
        ax.plot(points.file_bytes, 100 * points.accuracy, color=GREY, linewidth=1.2)
    size = coded_size(ours)
    bars = [100 * (ours.accuracy - ours.low), 100 * (ours.high - ours.accuracy)]
    look = {
        "fmt": "o",
        "color": COLOURS["blue"],
        "ecolor": INK,
        "elinewidth": 1.2,
        "capsize": 3,
        "markersize": 9,
    }
    ax.errorbar(size, 100 * ours.accuracy, bars, zorder=3, **look)
    ax.set_xscale("log")
    ax.set_xticks([0.1e6, 0.2e6, 0.5e6, 1e6, 2e6, 5e6, 10e6])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1e6:g}"))
    ax.set_xlabel("MB, entropy-coded (networks in float32: uncompressed)")
    ax.set_ylabel("accuracy on the test images, %")
    figure.draw_without_rendering()  # now everything has its place
    taken = [place_of(ax, *point) for point in zip(size, ours.low, ours.high, strict=True)]
    taken += [
        place_of(ax, *point)
        for point in zip(others.file_bytes, others.accuracy, others.accuracy, strict=True)
    ]
    for name, bytes_, accuracy in zip(ours["name"], size, ours.accuracy, strict=True):
        name_point(ax, taken, name, bytes_, accuracy, color=COLOURS["blue"], fontweight="bold")
    if len(others):
        best = others.loc[others.accuracy.idxmax()]
        name_point(ax, taken, "others", best.file_bytes, best.accuracy, color="#5b6672")
    return figure


def place_of(ax: Axes, size: float, low: float, high: float) -> Bbox:
    """Where a point is drawn, with its interval."""
    return Bbox(ax.transData.transform([(size, 100 * low), (size, 100 * high)])).padded(10)


def name_point(
    ax: Axes, taken: list[Bbox], name: str, size: float, accuracy: float, **style: str
) -> None:
    """Write a name beside its point, at the first place inside the axes where nothing lies, and
    note that place.
    """
    for place in PLACES:
        text = ax.annotate(
            name, (size, 100 * accuracy), place, textcoords="offset points", fontsize=11.5, **style
        )
        box = text.get_window_extent()
        inside = (
            ax.bbox.x0 <= box.x0
            and box.x1 <= ax.bbox.x1
            and ax.bbox.y0 <= box.y0
            and box.y1 <= ax.bbox.y1
        )
        if inside and not any(map(box.overlaps, taken)):
            taken.append(box)
            return
        text.remove()


def alternative_text(table: pd.DataFrame) -> str:
    """The chart in a sentence."""
    rows = headline(table)
    points = [
        f"{name} {accuracy:.1%} in {size / 1e6:.2g} MB"
        for name, accuracy, size in zip(rows["name"], rows.accuracy, coded_size(rows), strict=True)
    ]
    head = (
        "Accuracy against entropy-coded size (float32 uncompressed), the course's networks blue,"
        " others as grey crosses"
    )
    return f"{head}: {', '.join(points)}."
