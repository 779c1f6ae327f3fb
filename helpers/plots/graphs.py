"""What a graph looked like at one moment: enough to print it, compare it with a later moment, and
draw both.

Passes work in place, so the graph before a pass is gone after it. An outline is plain data that
stays.

In a drawing, boxes stand one below the other in the order of the graph, in columns of equal height.
What a node hands to the one below it is a straight line; every other line runs down or up in a lane
of its own beside the column, so that none runs through a box. Constants are not drawn: a box that
reads some tells the shape of the first, which is the weight. Colour and line both tell what a pass
did, so the picture can be read in greyscale.

Example:
    >>> before = outline(graph_module)
    >>> Passer(["conv_bn_folding"]).run(graph_module)
    >>> figure = draw_before_after(before, outline(graph_module))
    >>> plots.show(figure, "folding", alt="The batch norm is gone.")
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch
from torch import fx, nn

from helpers.graphs.effects import attribute, target_name
from helpers.training.state import digest

SAME, MADE, CHANGED, REMOVED = "", "made", "changed", "removed"
BOX_WIDTH, BOX_HEIGHT = 2.3, 0.52  # inches that one box has for itself
HALF = 0.36  # half the height of a drawn box, in rows
LANE, GAP = 0.12, 0.3  # between two lanes, and between the last one and the next column, in boxes
TEXT, LINE = "#111820", "#4a5563"
MIN_ROWS = 20  # up to here a graph stays in one column
STYLES = {
    SAME: {"facecolor": "#eef1f5", "edgecolor": "#7a8594", "linewidth": 0.8},
    MADE: {"facecolor": "#c9ecd2", "edgecolor": "#0b6b3a", "linewidth": 2.4},
    CHANGED: {"facecolor": "#fde7b0", "edgecolor": "#9a5b00", "linewidth": 2.4},
    REMOVED: {
        "facecolor": "#f8d3d0",
        "edgecolor": "#a3201b",
        "linewidth": 1.6,
        "linestyle": (0, (3, 2)),
    },
}


@dataclass(frozen=True)
class Box:
    """One node: its name, what it does, shape and dtype of its result, operands, digest of weights
    and numbers.
    """

    name: str
    op: str
    what: str
    shape: str
    dtype: str
    inputs: tuple[str, ...]
    weights: str = ""


Outline = tuple[Box, ...]


def outline(graph_module: fx.GraphModule) -> Outline:
    """Take down the graph as it is now."""
    return tuple(_box(graph_module, node) for node in graph_module.graph.nodes)


def compare(before: Outline, after: Outline) -> tuple[dict[str, str], dict[str, str]]:
    """What happened to each node between two moments.

    A node is the same if it has the same name and does the same with the same weights, even if an
    operand of it was replaced: that shows at the operand.

    Returns:
        Node name -> "removed" or "" for the boxes before, and "made", "changed" or "" for those
        after.
    """
    old, new = (
        {box.name: (box.op, box.what, box.weights) for box in boxes} for boxes in (before, after)
    )
    stayed = {name for name in old if name in new and new[name][0] == old[name][0]}
    came = {
        name: MADE if name not in stayed else SAME if new[name] == old[name] else CHANGED
        for name in new
    }
    return {name: SAME if name in stayed else REMOVED for name in old}, came


def table(graph: Outline) -> pd.DataFrame:
    """A graph as text, one line per node: columns node, op, what, shape, dtype, inputs."""
    lines = [
        (box.name, box.op, box.what, box.shape, box.dtype, ", ".join(box.inputs)) for box in graph
    ]
    return pd.DataFrame(lines, columns=["node", "op", "what", "shape", "dtype", "inputs"])


def _box(graph_module: fx.GraphModule, node: fx.Node) -> Box:
    whose = node.args[0] if node.op == "output" and isinstance(node.args[0], fx.Node) else node
    value, what, tensors = whose.meta.get("val", whose.meta.get("tensor_meta")), node.op, []
    if node.op == "placeholder":
        what = "input"
    elif node.op == "get_attr":
        tensors, what = [attribute(graph_module, node.target)], f"constant {node.target}"
        value = tensors[0] if value is None else value
    elif node.op == "call_module":
        module = graph_module.get_submodule(node.target)
        tensors, what = module.state_dict().values(), _module(module)
    elif node.op != "output":
        number = (bool, int, float, torch.dtype)
        literals = [_literal(value) for value in node.args if isinstance(value, number)]
        literals += [
            f"{key}={_literal(value)}"
            for key, value in node.kwargs.items()
            if isinstance(value, number)
        ]
        what = " ".join([target_name(node.target), *literals])
    known = hasattr(value, "shape") and hasattr(value, "dtype")
    shape, dtype = ("x".join(map(str, value.shape)), _literal(value.dtype)) if known else ("", "")
    stored = (
        tensor for tensor in tensors if isinstance(tensor, torch.Tensor) and not tensor.is_meta
    )
    weights = digest(
        tensor if tensor.layout == torch.strided else tensor.to_dense() for tensor in stored
    )
    weights += str(
        fx.node.map_arg((node.args, node.kwargs), lambda _: None)
    )  # lists of numbers, too: axes and strides
    return Box(
        node.name, node.op, what, shape, dtype, tuple(map(str, node.all_input_nodes)), weights
    )


def _module(module: nn.Module) -> str:
    """A module in a few characters; for the common layers the numbers that matter."""
    kind, bias = type(module).__name__, "" if getattr(module, "bias", None) is None else " +bias"
    if isinstance(module, nn.modules.conv._ConvNd):
        stride = "" if math.prod(module.stride) == 1 else f" /{module.stride[0]}"
        groups = "" if module.groups == 1 else f" g{module.groups}"
        groups = " depthwise" if 1 < module.groups == module.in_channels else groups
        kernel = "x".join(map(str, module.kernel_size))
        return f"{kind} {kernel}{stride} {module.in_channels}→{module.out_channels}{groups}{bias}"
    if isinstance(module, nn.Linear):
        return f"Linear {module.in_features}→{module.out_features}{bias}"
    return (
        f"{kind} {module.num_features}"
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        else kind
    )


def _literal(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).removeprefix("torch.")


class Layout(NamedTuple):
    """Places in units of one box, x to the right and y downwards: centres by name, corners of the
    line of each edge.
    """

    places: dict[str, tuple[float, float]]
    paths: dict[tuple[str, str], list[tuple[float, float]]]
    width: float
    height: float


def arrange(edges: dict[str, tuple[str, ...]], rows_per_column: int) -> Layout:
    """Arrange a graph.

    Args:
        edges: node -> its operands; operands come before the nodes that use them.
        rows_per_column: how tall the drawing may grow before it is wrapped.
    """
    columns = -(-len(edges) // rows_per_column)
    height = -(-len(edges) // columns)
    at = {name: divmod(number, height) for number, name in enumerate(edges)}
    lanes: list[list[set[int]]] = [
        [] for _ in range(columns)
    ]  # of each column: the gaps that each lane passes
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
    """The first lane that is free between the gap below the source and the gap above its user; None
    for a neighbour.
    """
    if user == (source[0], source[1] + 1):
        return None
    gaps = set(range(min(source[1] + 1, user[1]), max(source[1] + 1, user[1]) + 1))
    number = next(
        (number for number, taken in enumerate(lanes) if taken.isdisjoint(gaps)), len(lanes)
    )
    lanes += [set()] if number == len(lanes) else []
    lanes[number] |= gaps
    return number


def draw(graph: Outline) -> Figure:
    """Draw one graph."""
    return _figure([(graph, dict.fromkeys((box.name for box in graph), SAME), "")])


def draw_before_after(before: Outline, after: Outline) -> Figure:
    """Draw a graph before and after a pass, side by side."""
    went, came = compare(before, after)
    one, other = (sum(box.op != "get_attr" for box in graph) for graph in (before, after))
    return _figure([(before, went, f"before: {one} nodes"), (after, came, f"after: {other} nodes")])


def _without_constants(graph: Outline) -> Outline:
    """The boxes to draw; one that reads constants tells the shape of the first."""
    shapes, drawn = {box.name: box.shape for box in graph if box.op == "get_attr"}, []
    for box in graph:
        read = [f" {shapes[name]}" for name in box.inputs if name in shapes]
        if box.op != "get_attr":
            inputs = tuple(name for name in box.inputs if name not in shapes)
            drawn.append(replace(box, what="".join([box.what, *read[:1]]), inputs=inputs))
    return tuple(drawn)


def _figure(panels: list[tuple[Outline, dict[str, str], str]]) -> Figure:
    graphs = [_without_constants(graph) for graph, _, _ in panels]
    rows = max(
        MIN_ROWS, math.ceil(math.sqrt(sum(map(len, graphs)) * BOX_WIDTH / BOX_HEIGHT))
    )  # as wide as a screen
    layouts = [arrange({box.name: box.inputs for box in graph}, rows) for graph in graphs]
    tallest, widths = max(layout.height for layout in layouts), [layout.width for layout in layouts]
    height = BOX_HEIGHT * (tallest + 1) + 0.9
    figure = Figure(
        figsize=(max(BOX_WIDTH * (sum(widths) + 0.6 * (len(widths) - 1)) + 0.4, 5.0), height)
    )
    axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    shown = set()
    for ax, graph, layout, (_, status, title) in zip(axes, graphs, layouts, panels, strict=True):
        for corners in layout.paths.values():
            ax.plot(*zip(*corners, strict=True), color=LINE, linewidth=1.0, linestyle="-", zorder=1)
            arrow = {
                "arrowstyle": "-|>",
                "color": LINE,
                "linewidth": 1.0,
                "shrinkA": 0,
                "shrinkB": 0,
            }
            ax.annotate("", corners[-1], corners[-2], arrowprops=arrow)
        for box in graph:
            x, y = layout.places[box.name]
            rounded = {
                "boxstyle": "round,pad=0,rounding_size=0.05",
                "mutation_aspect": BOX_WIDTH / BOX_HEIGHT,
            }
            look = {**STYLES[status[box.name]], **rounded, "zorder": 2}
            ax.add_patch(FancyBboxPatch((x - 0.46, y - HALF), 0.92, 2 * HALF, **look))
            what, centred = box.what, {"ha": "center", "va": "center", "zorder": 3}
            what = what if len(what) <= 30 else f"{what[:28]} …"
            size = 10.5 * min(1, 22 / len(what))  # long names in smaller letters
            ax.text(x, y - (0.12 if box.shape else 0), what, fontsize=size, color=TEXT, **centred)
            ax.text(x, y + 0.2, box.shape, fontsize=8.5, color=LINE, **centred)
            shown.add(status[box.name])
        ax.set(xlim=(-0.1, layout.width + 0.1), ylim=(tallest + 0.4, -0.4))
        ax.set_title(title, fontsize=12, fontweight="bold")
        ax.set_axis_off()
    legend = [
        Patch(**STYLES[one], label=f"{one} by the pass")
        for one in (MADE, CHANGED, REMOVED)
        if one in shown
    ]
    if legend:
        figure.legend(
            handles=legend, loc="lower center", ncols=len(legend), frameon=False, fontsize=10
        )
    figure.tight_layout(rect=(0, 0.45 / height, 1, 1))
    return figure
