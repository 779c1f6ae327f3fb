"""What each pass does to MobileNetV2's graph, step by step, as one page to click through."""

from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from course.publish.page import filled
from helpers.files import write_atomically
from helpers.graphs.tracing import trace
from helpers.passes.optimizer import PIPELINES
from helpers.passes.passer import Passer, Row
from helpers.plots.graphs import CHANGED, Outline, compare, outline
from helpers.plots.layout import arrange

SENTENCES = {
    "canonicalize": "Every way to write an operation becomes one, which the other passes look for.",
    "constant_folding": "What is computed from constants alone is computed once, and stored.",
    "elim_identity": "Operations that return their input, such as dropout in inference, go.",
    "linear_folding": "A product with a constant matrix becomes a linear layer.",
    "conv_bn_folding": "BatchNorm moves into the weights and bias of the layer before it.",
    "conv_add_folding": "A constant that is added to a layer's result moves into its bias.",
    "conv_mul_folding": "A constant factor behind a layer moves into its weights and bias.",
    "dead_code": "What nothing reads any more goes, with its parameters.",
    "fusion": "A convolution, an addition and an activation become one kernel.",
    "contiguity": "What depends on the order of numbers in memory gets the order it expects.",
}
ROWS = 16  # of boxes above each other, before the drawing goes on in the next column


def write_steps(target: Path, model: nn.Module, images: torch.Tensor) -> Path:
    """Write the page; the answers to the images, which are normalised, are compared after each
    pass.
    """
    return write_atomically(target, filled("steps.html", {"stages": stages(model, images)}))


@torch.no_grad()
def stages(model: nn.Module, images: torch.Tensor) -> list[dict[str, Any]]:
    """One entry for each pass that changed or declined something, in the order of their run."""
    graph_module = trace(model, (images[:1],), "fx")
    first = graph_module(images)
    outlines, differences = [outline(graph_module)], [0.0]

    def remember(graph_module: fx.GraphModule) -> None:
        """Runs after each pass that changed the graph."""
        outlines.append(outline(graph_module))
        differences.append(float((graph_module(images) - first).abs().max()))

    rows = Passer(PIPELINES["fold"], [remember], rounds=10).run(graph_module).rows
    rows += Passer(PIPELINES["inference"], [remember]).run(graph_module).rows
    found, seen = [], 0
    for row in rows:
        before, seen = outlines[seen], seen + bool(row.result.changed)
        if row.result.changed or (row.result.declined and row.round == 1):
            found.append(stage(row, before, outlines[seen]) | {"difference": differences[seen]})
    return found


def stage(row: Row, before: Outline, after: Outline) -> dict[str, Any]:
    """What a pass found and what it left, drawn, with the notes of its report at the nodes that
    they name.
    """
    went, came = compare(before, after)
    declined = dict(row.result.declined)
    notes = dict(row.result.changed) | declined
    went |= {name: CHANGED for name, status in came.items() if status == CHANGED}
    went |= {name: "declined" for name in declined if name in went}
    return {
        "name": row.name,
        "sentence": SENTENCES[row.name],
        "changed": len(row.result.changed),
        "declined": len(row.result.declined),
        "told": [f"{name}: {what}" for name, what in (*row.result.changed, *row.result.declined)],
        "before": drawing(before, went, notes),
        "after": drawing(after, came, notes) if row.result.changed else None,
    }


def drawing(graph: Outline, status: dict[str, str], notes: dict[str, str]) -> dict[str, Any]:
    """Boxes and lines in units of one box."""
    layout = arrange({box.name: box.inputs for box in graph}, ROWS)
    places = {name: [round(x, 2), round(y, 2)] for name, (x, y) in layout.places.items()}
    boxes = [
        {"name": box.name, "what": box.what, "shape": box.shape, "at": places[box.name]}
        | {"status": status[box.name], "note": notes.get(box.name, "") if status[box.name] else ""}
        for box in graph
    ]
    lines = [[[round(x, 2), round(y, 2)] for x, y in path] for path in layout.paths.values()]
    return {
        "width": round(layout.width, 2),
        "height": layout.height,
        "boxes": boxes,
        "lines": lines,
    }
