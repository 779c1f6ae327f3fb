"""How the exercises of a5 are run and scored.

Holds no answer: it travels to students and into the box.

A network is a list of layers, each a dictionary of plain data. A layer takes the output of the one
before it, or of layer i, counted from 0, where it says "from": i.

    {"kind": "conv", "weight", "bias", "stride", "padding", "groups"}      weight (O, I / groups,
    kh, kw), bias (O,)
    {"kind": "relu6"}, {"kind": "relu"}
    {"kind": "add", "with": i}          adds the output of layer i
    {"kind": "pool"}                    the mean over all pixels: (N, C, H, W) becomes (N, C)
    {"kind": "linear", "weight", "bias"}
"""

import contextlib
import json
import math
import operator
import zlib
from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

FILE = "network.safetensors"
NOTEBOOK = "a5.ipynb"
FOLDER = Path.cwd()  # that of the notebook, which imports this first
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TARGET_ACCURACY, FULL_ACCURACY = 0.65, 0.75
TARGET_BYTES, FULL_BYTES = 34_000, 19_000
MOST_SHIFT, NOISE = 3, 3.0  # pixels, and steps of 255


def earned(accuracy, submitted_bytes):
    """The share of the network's points: nothing outside the targets, a fifth within them, and the
    rest as a product.

    Example:
        >>> earned(TARGET_ACCURACY, TARGET_BYTES), earned(FULL_ACCURACY, FULL_BYTES), earned(0.0, 1)
        (0.2, 1.0, 0.0)
    """
    if not (accuracy >= TARGET_ACCURACY and submitted_bytes <= TARGET_BYTES):
        return 0.0
    better = min(1.0, (accuracy - TARGET_ACCURACY) / (FULL_ACCURACY - TARGET_ACCURACY))
    # Each saving of the same share of the bytes is worth the same.
    smaller = min(
        1.0, math.log(TARGET_BYTES / max(submitted_bytes, 1)) / math.log(TARGET_BYTES / FULL_BYTES)
    )
    return round(0.2 + 0.8 * better * smaller, 4)


def disturb(images, generator):
    """Shift, flip and add noise to uint8 images, each image in its own way."""
    padded, count = F.pad(images, [MOST_SHIFT] * 4, mode="reflect"), len(images)
    corners = torch.randint(0, 2 * MOST_SHIFT + 1, (count, 2), generator=generator).tolist()
    side = images.shape[-1]
    moved = torch.stack(
        [
            padded[i, :, top : top + side, left : left + side]
            for i, (top, left) in enumerate(corners)
        ]
    )
    mirrored = torch.rand(count, generator=generator) < 0.5
    moved[mirrored] = moved[mirrored].flip(-1)
    noise = torch.randn(moved.shape, generator=generator) * NOISE
    return (moved + noise).round().clamp(0, 255).to(torch.uint8)


def execute(layers, x):
    """Compute the layers in float32."""
    used_later, outputs = (
        {layer[name] for layer in layers for name in ("with", "from") if name in layer},
        {-1: x},
    )
    for position, layer in enumerate(layers):
        try:
            x = _compute(layer, _output(layer["from"], outputs) if "from" in layer else x, outputs)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError) as problem:
            kind = str(layer.get("kind"))[:30]
            words = f"layer {position} ({kind}): {type(problem).__name__}: {problem}"
            raise ValueError(words) from problem
        if position in used_later:
            outputs[position] = x
    return x


def _output(position, outputs):
    if position not in outputs:
        raise LookupError(f"the output of layer {position} is not there yet")
    return outputs[position]


def _compute(layer, x, outputs):
    kind = layer["kind"]
    if kind == "conv":
        weight, bias = layer["weight"].float(), layer["bias"].float()
        return F.conv2d(x, weight, bias, layer["stride"], layer["padding"], 1, layer["groups"])
    if kind == "linear":
        return F.linear(x, layer["weight"].float(), layer["bias"].float())
    if kind == "add":
        return x + _output(layer["with"], outputs)
    simple = {"relu6": F.relu6, "relu": F.relu, "pool": lambda x: x.mean((2, 3))}
    if kind not in simple:
        raise ValueError(f"a layer of kind {str(kind)[:30]!r} is not known")
    return simple[kind](x)


def predict(layers, images):
    """The most likely class of each uint8 image."""
    # A cell may have changed the default type.
    mean, deviation = (
        torch.tensor(values, dtype=torch.float32).reshape(3, 1, 1) for values in (MEAN, DEVIATION)
    )
    classes = []
    with torch.no_grad():
        for batch in images.split(50):
            x = ((batch.float() / 255 - mean) / deviation).contiguous(
                memory_format=torch.channels_last
            )
            classes.append(execute(layers, x).argmax(1))
    return torch.cat(classes)


def layers_of(graph_module):
    """The layers of a folded network, as `helpers.passes.optimize` returns it."""
    layers, at = [], {}
    for node in graph_module.graph.nodes:
        layer = _layer_of(node, graph_module)
        if layer is not None:
            sources = sorted(at[argument] for argument in node.all_input_nodes)
            if layer["kind"] == "add":
                layer["with"] = sources[0]
            if sources[-1] != len(layers) - 1:
                layer["from"] = sources[-1]
            layers.append(layer)
        at[node] = at[node.args[0]] if layer is None and node.args else len(layers) - 1
    return layers


def _layer_of(node, graph_module):
    """One node as a layer; None where nothing is computed."""
    target = graph_module.get_submodule(node.target) if node.op == "call_module" else node.target
    if isinstance(target, nn.Conv2d | nn.Linear):
        bias = torch.zeros(len(target.weight)) if target.bias is None else target.bias.detach()
        layer = {"kind": "linear", "weight": target.weight.detach(), "bias": bias}
        if isinstance(target, nn.Conv2d):
            sizes = {
                "stride": target.stride[0],
                "padding": target.padding[0],
                "groups": target.groups,
            }
            layer |= {"kind": "conv"} | sizes
        return layer
    kinds = {
        F.relu6: "relu6",
        F.relu: "relu",
        operator.add: "add",
        torch.add: "add",
        F.adaptive_avg_pool2d: "pool",
    }
    if node.op in ("placeholder", "output") or target is torch.flatten:
        return None
    if target not in kinds:
        raise ValueError(
            f"{node.name}: no layer does {target}; fold the network first, with"
            " helpers.passes.optimize"
        )
    return {"kind": kinds[target]}


def network_file():
    """Where the network lies, or None; a cell may have changed the folder."""
    return next((path for path in (Path(FILE), FOLDER / FILE) if path.exists()), None)


def run_network(student, inputs):
    """Restore the network from the file that was handed in."""
    file = network_file()
    if file is None:
        with contextlib.suppress(LookupError):  # an untouched exercise says that it is not done yet
            student["restore"]({})
        given = {"visible.safetensors"}
        others = sorted({str(path) for path in Path().glob("**/*.safetensors")} - given)[:3]
        there = f"; there is {', '.join(others)}" if others else ""
        raise FileNotFoundError(f"{FILE} is not beside the notebook{there}")
    return student["restore"](
        safetensors.torch.load(file.read_bytes())
    )  # Windows overwrites no mapped file


def view_network(answer, probe):
    """What the restored network says about images that the student's code has not seen."""
    if not isinstance(answer, list):
        raise TypeError(f"restore returns no list of layers, but a {type(answer).__name__}")
    return predict(answer, probe["images"])


def saved_code_bytes():
    """The packed bytes of the student's cells, as the notebook was saved last."""
    path = FOLDER / NOTEBOOK
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
    own = [
        "".join(cell["source"])
        for cell in cells
        if cell["cell_type"] == "code" and not cell["metadata"].get("nbgrader", {}).get("locked")
    ]
    return len(zlib.compress("\n".join(own).encode(), 9))


def score_network(expected, observed, submitted_bytes=None):
    """The share of the points, in words, and what was measured.

    Without a number of bytes those of the network and of the notebook's code count.
    """
    size, at_home = submitted_bytes, ""
    if size is None:
        code = saved_code_bytes()
        size = network_file().stat().st_size + len(FILE) + code
        at_home = f" ({code:,} of these bytes are code in {NOTEBOOK}, as you saved it last;"
        at_home += " other files of your own, and given cells that you changed, will count, too)"
    if not isinstance(observed, torch.Tensor) or observed.shape != expected.shape:
        return 0.0, "the network does not give one class for each image", {}
    accuracy = (observed == expected).double().mean().item()
    share = earned(accuracy, size)
    words = (
        f"{accuracy:.1%} of {len(expected)} images right with {size:,} bytes earn {share:.1%} of"
        f" the points{at_home}"
    )
    return share, words, {"accuracy": accuracy, "bytes": size}


RUNS = {"network": run_network}
VIEWS = {"network": view_network}
SCORES = {"network": score_network}
