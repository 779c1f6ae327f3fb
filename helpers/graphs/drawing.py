"""Draws a graph, and what a pass did to it. No graphviz needed.

Colour and line both tell what happened, so the picture can be read in greyscale:

    dashed, red     removed by the pass
    thick, green    made by the pass
    thick, amber    there before, but changed

Constants are not drawn: a box that reads some tells the shape of the first, which is the weight.

Boxes stand one below the other in the order of the graph, in columns of equal height. What a node hands to the one
below it is a straight line. Every other line leaves its column for a lane of its own, runs down or up in that, and
reaches its user through the gap above it, so that none runs through a box.

Example:
    >>> before = outline(graph_module)
    >>> Passer(["conv_bn_folding"]).run(graph_module)
    >>> draw_before_after(before, outline(graph_module), "folding.svg")
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch

from helpers.graphs.outline import CHANGED, MADE, REMOVED, SAME, Box, Outline, compare

BOX_WIDTH, BOX_HEIGHT = 2.3, 0.52  # inches that one box has for itself
HALF = 0.36  # half the height of a drawn box, in rows
LANE, GAP = 0.12, 0.3  # between two lanes, and between the last one and the next column, in boxes
TEXT, LINE = "#111820", "#4a5563"
MIN_ROWS = 20  # up to here a graph stays in one column
STYLES = {
    SAME: {"facecolor": "#eef1f5", "edgecolor": "#7a8594", "linewidth": 0.8},
    MADE: {"facecolor": "#c9ecd2", "edgecolor": "#0b6b3a", "linewidth": 2.4},
    CHANGED: {"facecolor": "#fde7b0", "edgecolor": "#9a5b00", "linewidth": 2.4},
    REMOVED: {"facecolor": "#f8d3d0", "edgecolor": "#a3201b", "linewidth": 1.6, "linestyle": (0, (3, 2))},
}
MEANING = {MADE: "made by the pass", CHANGED: "changed by the pass", REMOVED: "removed by the pass"}


@dataclass
class Layout:
    """Places in units of one box, x to the right and y downwards: centres by name, corners of the line of each edge."""

    places: dict[str, tuple[float, float]]
    paths: dict[tuple[str, str], list[tuple[float, float]]]
    width: float
    height: float


def arrange(edges: dict[str, tuple[str, ...]], rows_per_column: int) -> Layout:
    """Arrange a graph.

    Args:
        edges: node -> its operands; operands come before the nodes that use them.
        rows_per_column: how tall the drawing may grow before it is wrapped.

    Returns:
        The places of all nodes and the corners of all edges.
    """
    columns = -(-len(edges) // rows_per_column)
    height = -(-len(edges) // columns)
    at = {name: divmod(number, height) for number, name in enumerate(edges)}
    lanes: list[list[set[int]]] = [[] for _ in range(columns)]  # of each column: the gaps that each lane passes
    lines = [(source, user) for user, operands in edges.items() for source in operands]
    lane_of = {line: _lane(lanes[at[line[0]][0]], *(at[name] for name in line)) for line in lines}
    widths = [1 + LANE * (len(lanes_here) + 1) + GAP for lanes_here in lanes]
    places = {name: (sum(widths[:column]) + 0.5, row + 0.5) for name, (column, row) in at.items()}
    paths = {}
    for (source, user), lane in lane_of.items():
        (x1, y1), (x2, y2) = places[source], places[user]
        beside = [] if lane is None else [x1 + 0.5 + LANE * (lane + 1)]
        aside = [(x, y) for x in beside for y in (y1 + 0.5, y2 - 0.5)]
        paths[source, user] = [(x1, y1 + HALF), *aside, (x2, y2 - HALF)]
    return Layout(places, paths, sum(widths) - GAP, float(height))


def _lane(lanes: list[set[int]], source: tuple[int, int], user: tuple[int, int]) -> int | None:
    """The first lane that is free between the gap below the source and the gap above its user; None for a neighbour."""
    if user == (source[0], source[1] + 1):
        return None
    gaps = set(range(min(source[1] + 1, user[1]), max(source[1] + 1, user[1]) + 1))
    number = next((number for number, taken in enumerate(lanes) if taken.isdisjoint(gaps)), len(lanes))
    lanes += [set()] if number == len(lanes) else []
    lanes[number] |= gaps
    return number


def draw(graph: Outline, path: str | Path | None = None, title: str = "") -> Figure:
    """Draw one graph.

    Args:
        graph: from `outline(graph_module)`.
        path: where to write it; the suffix says how (.svg, .png, .pdf).
        title: stands above the drawing.

    Returns:
        The figure; a notebook shows it.
    """
    return _figure([(graph, dict.fromkeys((box.name for box in graph), SAME), title)], path)


def draw_before_after(before: Outline, after: Outline, path: str | Path | None = None) -> Figure:
    """Draw a graph before and after a pass, side by side; arguments and result as in `draw`."""
    went, came = compare(before, after)
    one, other = (len(_without_constants(graph)) for graph in (before, after))
    return _figure([(before, went, f"before: {one} nodes"), (after, came, f"after: {other} nodes")], path)


def _without_constants(graph: Outline) -> Outline:
    """The boxes to draw; one that reads constants tells the shape of the first."""
    shapes, drawn = {box.name: box.shape for box in graph if box.op == "get_attr"}, []
    for box in graph:
        read = [f" {shapes[name]}" for name in box.inputs if name in shapes]
        if box.op != "get_attr":
            inputs = tuple(name for name in box.inputs if name not in shapes)
            drawn.append(replace(box, what="".join([box.what, *read[:1]]), inputs=inputs))
    return tuple(drawn)


def _figure(panels: list[tuple[Outline, dict[str, str], str]], path: str | Path | None) -> Figure:
    panels = [(_without_constants(graph), status, title) for graph, status, title in panels]
    boxes = sum(len(graph) for graph, _, _ in panels)
    rows = max(MIN_ROWS, math.ceil(math.sqrt(boxes * BOX_WIDTH / BOX_HEIGHT)))  # about as wide as a screen
    layouts = [arrange({box.name: box.inputs for box in graph}, rows) for graph, _, _ in panels]
    tallest, widths = max(layout.height for layout in layouts), [layout.width for layout in layouts]
    height = BOX_HEIGHT * (tallest + 1) + 0.9
    figure = Figure(figsize=(max(BOX_WIDTH * (sum(widths) + 0.6 * (len(widths) - 1)) + 0.4, 5.0), height))
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    shown = set()
    for ax, layout, (graph, status, title) in zip(axes, layouts, panels, strict=True):
        for corners in layout.paths.values():
            ax.add_line(Line2D(*zip(*corners, strict=True), color=LINE, linewidth=1.0, zorder=1))
            arrow = {"arrowstyle": "-|>", "color": LINE, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", corners[-1], corners[-2], arrowprops=arrow)
        for box in graph:
            _draw_box(ax, layout.places[box.name], box, STYLES[status[box.name]])
            shown.add(status[box.name])
        ax.set(xlim=(-0.1, layout.width + 0.1), ylim=(tallest + 0.4, -0.4))
        ax.set_title(title, fontsize=12, fontweight="bold")
        ax.set_axis_off()
    legend = [Patch(**STYLES[status], label=meaning) for status, meaning in MEANING.items() if status in shown]
    if legend:
        figure.legend(handles=legend, loc="lower center", ncols=len(legend), frameon=False, fontsize=10)
    figure.tight_layout(rect=(0, 0.45 / height, 1, 1))
    if path is not None:
        with mpl.rc_context({"svg.fonttype": "none"}):  # Text stays text: small, searchable and readable aloud.
            figure.savefig(path, dpi=120)
    return figure


def _draw_box(ax: Axes, place: tuple[float, float], box: Box, style: dict[str, Any]) -> None:
    x, y = place
    corners = {"boxstyle": "round,pad=0,rounding_size=0.05", "mutation_aspect": BOX_WIDTH / BOX_HEIGHT}
    ax.add_patch(FancyBboxPatch((x - 0.46, y - HALF), 0.92, 2 * HALF, **style, **corners, zorder=2))
    centred = {"ha": "center", "va": "center", "zorder": 3}
    what = box.what if len(box.what) <= 30 else f"{box.what[:28]} …"
    size = 10.5 * min(1, 22 / len(what))  # long names in smaller letters
    ax.text(x, y - (0.12 if box.shape else 0), what, fontsize=size, color=TEXT, **centred)
    ax.text(x, y + 0.2, box.shape, fontsize=8.5, color=LINE, **centred)
