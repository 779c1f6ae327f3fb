"""Outlines of graphs: what a graph is at one moment, to print, to compare and to draw.

Passes work in place, so the graph before a pass is gone after it. An outline is plain data that
stays.

layout.py says where the boxes of a drawing stand. Constants are not drawn: a box that reads some
shows the shape of the first, which is the weight. Both colour and line say what a pass did, so the
picture can be read in greyscale.

Example:
    >>> before = outline(graph_module)
    >>> Passer(["conv_bn_folding"]).run(graph_module)
    >>> figure = draw_before_after(before, outline(graph_module))
    >>> plots.show(figure, "folding", alt="The batch norm is gone.")
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch
from torch import fx, nn

from helpers.equivalence import digest
from helpers.graphs.operations import attribute, target_name
from helpers.plots.layout import HALF, Layout, arrange

SAME = ""
MADE = "made"
CHANGED = "changed"
REMOVED = "removed"
BOX_WIDTH = 2.3  # inches that one box has for itself
BOX_HEIGHT = 0.52
TEXT = "#111820"
LINE = "#4a5563"
LONGEST = 30  # characters in a box
MIN_ROWS = 20  # up to here a graph stays in one column
STYLES = {
    SAME: {"facecolor": "#eef1f5", "edgecolor": "#7a8594", "linewidth": 0.8},
    MADE: {"facecolor": "#c9ecd2", "edgecolor": "#0b6b3a", "linewidth": 2.4},
    CHANGED: {
        "facecolor": "#fde7b0",
        "edgecolor": "#9a5b00",
        "linewidth": 2.4,
        "linestyle": (0, (6, 1.5, 1, 1.5)),
    },
    REMOVED: {
        "facecolor": "#f8d3d0",
        "edgecolor": "#a3201b",
        "linewidth": 1.6,
        "linestyle": (0, (3, 2)),
    },
}


@dataclass(frozen=True)
class Box:
    """One node of a graph.

    Attributes:
        what: the operation in a few characters.
        shape, dtype: those of its result.
        inputs: the names of its operands.
        weights: a digest of its tensors, and its settings and numbers.
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

    A node is the same if it has the same name and does the same with the same weights, even if one
    of its operands was replaced: that shows at the operand.

    Returns:
        Node name -> "removed" or "" for the boxes before, and "made", "changed" or "" for those
        after.
    """
    boxes_after = {box.name: box for box in after}
    status_before = {box.name: REMOVED for box in before}
    status_after = dict.fromkeys(boxes_after, MADE)
    for old in before:
        new = boxes_after.get(old.name)
        if new is not None and new.op == old.op:
            same = (new.what, new.weights) == (old.what, old.weights)
            status_before[old.name] = SAME
            status_after[old.name] = SAME if same else CHANGED
    return status_before, status_after


def table(graph: Outline) -> pd.DataFrame:
    """A graph as text, one line per node: columns node, op, what, shape, dtype, inputs."""
    columns = [field for field in Box.__dataclass_fields__ if field != "weights"]
    rows = pd.DataFrame([vars(box) for box in graph], columns=columns)
    return rows.assign(inputs=rows.inputs.map(", ".join)).rename(columns={"name": "node"})


def _box(graph_module: fx.GraphModule, node: fx.Node) -> Box:
    """A node as it is now; the output node has the shape and dtype of what the network returns."""
    source = node
    if node.op == "output" and isinstance(node.args[0], fx.Node):
        source = node.args[0]
    value = source.meta.get("val", source.meta.get("tensor_meta"))
    what = "input" if node.op == "placeholder" else node.op
    settings = ""
    tensors = []
    if node.op == "get_attr":
        what = f"constant {node.target}"
        tensors = [attribute(graph_module, node.target)]
        value = tensors[0] if value is None else value
    elif node.op == "call_module":
        module = graph_module.get_submodule(node.target)
        what = _layer(module)
        with suppress(Exception):  # torch's own fails for `padding = 2`
            settings = module.extra_repr()
        tensors = module.state_dict().values()
    elif node.op.startswith("call"):
        what = " ".join([target_name(node.target), *_literals(node)])
    stored = [t for t in tensors if isinstance(t, torch.Tensor) and not t.is_meta]
    weights = digest(t if t.layout == torch.strided else t.to_dense() for t in stored)
    # Lists of numbers, too: axes and strides.
    weights += settings + str(fx.node.map_arg((node.args, node.kwargs), lambda _: None))
    return Box(
        node.name,
        node.op,
        what,
        shape="x".join(map(str, getattr(value, "shape", ()))),
        dtype=_literal(getattr(value, "dtype", "")),
        inputs=tuple(map(str, node.all_input_nodes)),
        weights=weights,
    )


def _literals(node: fx.Node) -> list[str]:
    """The plain numbers and dtypes that a node is called with."""
    plain = (bool, int, float, torch.dtype)
    named = [f"{key}={_literal(v)}" for key, v in node.kwargs.items() if isinstance(v, plain)]
    return [_literal(v) for v in node.args if isinstance(v, plain)] + named


def _layer(module: nn.Module) -> str:
    """A module in a few characters; for the common layers the numbers that matter."""
    words = [type(module).__name__]
    if isinstance(module, nn.modules.conv._ConvNd):
        words.append("x".join(map(str, module.kernel_size)))
        if math.prod(module.stride) > 1:
            words.append("/" + "x".join(map(str, dict.fromkeys(module.stride))))
        words.append(f"{module.in_channels}→{module.out_channels}")
        if module.groups > 1:
            depthwise = module.groups == module.in_channels
            words.append("depthwise" if depthwise else f"g{module.groups}")
    elif isinstance(module, nn.Linear):
        words.append(f"{module.in_features}→{module.out_features}")
    elif isinstance(module, nn.modules.batchnorm._BatchNorm):
        return f"{words[0]} {module.num_features}"
    else:
        return words[0]
    return " ".join(words if module.bias is None else [*words, "+bias"])


def _literal(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).removeprefix("torch.")


def draw(graph: Outline) -> Figure:
    """Draw one graph."""
    return _figure([(graph, {}, "")])


def draw_before_after(before: Outline, after: Outline) -> Figure:
    """Draw a graph before and after a pass, side by side."""
    status_before, status_after = compare(before, after)
    return _figure([(before, status_before, "before"), (after, status_after, "after")])


def _without_constants(graph: Outline) -> Outline:
    """The boxes to draw; one that reads constants shows the shape of the first."""
    shapes = {box.name: box.shape for box in graph if box.op == "get_attr"}
    drawn = []
    for box in graph:
        if box.op == "get_attr":
            continue
        weight = [shapes[name] for name in box.inputs if name in shapes][:1]
        inputs = tuple(name for name in box.inputs if name not in shapes)
        drawn.append(replace(box, what=" ".join([box.what, *weight]), inputs=inputs))
    return tuple(drawn)


def _figure(panels: list[tuple[Outline, dict[str, str], str]]) -> Figure:
    """Graphs side by side, each with the status of its nodes and a title."""
    graphs = [_without_constants(graph) for graph, _, _ in panels]
    # The boxes alone would fill a square; the lanes between them make it wider, like a screen.
    rows = math.ceil(math.sqrt(sum(map(len, graphs)) * BOX_WIDTH / BOX_HEIGHT))
    edges = [{box.name: box.inputs for box in graph} for graph in graphs]
    layouts = [arrange(of_graph, max(MIN_ROWS, rows)) for of_graph in edges]
    tallest = max(layout.height for layout in layouts)
    widths = [layout.width for layout in layouts]
    width = BOX_WIDTH * (sum(widths) + 0.6 * (len(widths) - 1)) + 0.4
    height = BOX_HEIGHT * (tallest + 1) + 0.9
    figure = Figure(figsize=(max(width, 5.0), height))
    axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    shown = set()
    for ax, graph, layout, (_, status, title) in zip(axes, graphs, layouts, panels, strict=True):
        _draw_panel(ax, graph, layout, status)
        shown |= {status.get(box.name) for box in graph}
        ax.set(xlim=(-0.1, layout.width + 0.1), ylim=(tallest + 0.4, -0.4))
        counted = f"{title}: {len(graph)} nodes" if title else ""
        ax.set_title(counted, fontsize=12, fontweight="bold")
        ax.set_axis_off()
    handles = [
        Patch(**STYLES[what], label=f"{what} by the pass")
        for what in STYLES
        if what and what in shown
    ]
    if handles:  # A graph alone shows nothing that a pass did.
        figure.legend(
            handles=handles, loc="lower center", ncols=len(handles), frameon=False, fontsize=10
        )
    figure.tight_layout(rect=(0, 0.45 / height, 1, 1))
    return figure


def _draw_panel(ax: Axes, graph: Outline, layout: Layout, status: dict[str, str]) -> None:
    """The lines and boxes of one graph."""
    arrow = {"arrowstyle": "-|>", "color": LINE, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
    for corners in layout.paths.values():
        ax.plot(*zip(*corners, strict=True), color=LINE, linewidth=1.0, linestyle="-", zorder=1)
        ax.annotate("", corners[-1], corners[-2], arrowprops=arrow)
    centred = {"ha": "center", "va": "center", "zorder": 3}
    for box in graph:
        x, y = layout.places[box.name]
        frame = FancyBboxPatch(
            (x - 0.46, y - HALF),
            0.92,
            2 * HALF,
            boxstyle="round,pad=0,rounding_size=0.05",
            mutation_aspect=BOX_WIDTH / BOX_HEIGHT,
            zorder=2,
            **STYLES[status.get(box.name, SAME)],
        )
        ax.add_patch(frame)
        what = box.what if len(box.what) <= LONGEST else f"{box.what[: LONGEST - 2]} …"
        size = 10.5 * min(1, 22 / len(what))  # long names in smaller letters
        ax.text(x, y - (0.12 if box.shape else 0), what, fontsize=size, color=TEXT, **centred)
        ax.text(x, y + 0.2, box.shape, fontsize=8.5, color=LINE, **centred)
