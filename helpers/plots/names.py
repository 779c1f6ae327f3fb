"""Names beside the points of a figure, where they cover neither a point nor one another."""

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

HALO = withStroke(linewidth=2, foreground="white")  # a name stays readable across lines
# Shift in points and which end of the name is at the point: upper left first, where a Pareto front leaves room.
SIDES = [((-8, 6), "right"), ((9, -14), "left"), ((9, 5), "left"), ((-9, -14), "right")]
MARK = 14  # pixels that a marker takes, at the dots per inch of the style


def place_names(ax: Axes, names: Iterable[tuple[str, float, float]], marks: Iterable[tuple[float, float]]) -> None:
    """Write each name at the first side of its point that is free; a name that fits nowhere is left out.

    What is written there already stays free, too.

    Args:
        ax: with its final limits.
        names: text and place of each, the most important first.
        marks: places of all that must stay visible.
    """
    ax.figure.draw_without_rendering()  # only then is it known where on the page a point lies
    taken = [around(x, y) for x, y in ax.transData.transform(list(marks)).tolist()]
    taken += [text.get_window_extent() for text in ax.texts]
    for text, x, y in names:
        for shift, end in SIDES:
            look = {"ha": end, "fontsize": 11, "zorder": 4, "path_effects": [HALO]}
            label = ax.annotate(text, (x, y), shift, textcoords="offset points", **look)
            box = label.get_window_extent()
            if ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1 and not box.count_overlaps(taken):
                taken.append(box)
                break
            label.remove()


def around(x: float, y: float) -> Bbox:
    """What a marker covers."""
    return Bbox.from_bounds(x - MARK / 2, y - MARK / 2, MARK, MARK)
