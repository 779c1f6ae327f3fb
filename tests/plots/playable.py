"""The figures to play with as the lessons show them: name -> data and alternative text.

`python -m tests.plots.playable` takes the pictures that stand in for them where no script runs.
"""

import io
import json
import sys
from functools import cache
from unittest import mock

import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import nn
from torch.nn import functional as F

from course.lessons.roofline import kind_of
from course.reference import load
from helpers import models, passes, pruning
from helpers.graphs.tracing import trace
from helpers.plots.graphs import outline
from helpers.plots.interactive import FOLDER, interactive
from tests.course.publish.chromium import launched

WIDTH = 720
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>figure</title>
<style>:root {{ color-scheme: {scheme}; }} body {{ margin: 12px; }}</style></head>
<body>{figure}</body></html>"""


@cache
def networks():
    """The shipped network, and the same folded."""
    network = models.pretrained()
    return network, passes.optimize(network, torch.zeros(1, 3, 32, 32))[0]


def weights():
    network, folded = networks()
    dead = network.features[2].conv[1][1].running_var < 1e-8
    weight = folded.get_submodule("features.2.conv.1.0").weight
    return {"weight": weight, "filters": len(weight), "dead": dead.nonzero().flatten().tolist()}


def channels():
    network, _ = networks()
    groups = pruning.channel_groups(network, torch.zeros(1, 3, 32, 32))
    axes = {(part.tensor, part.dim): group.name for group in groups for part in group.members}
    layers = [
        {
            "made": axes[f"{name}.weight", 0],
            "read": axes.get((f"{name}.weight", 1)),
            "kernel": getattr(layer, "kernel_size", [1])[0],
            "stride": getattr(layer, "stride", [1])[0],
            "depthwise": getattr(layer, "groups", 1) > 1,
            "linear": isinstance(layer, nn.Linear),
        }
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    told = [
        {"name": group.name, "size": group.size, "hidden": group.hidden, "fixed": group.reason}
        | {"tensors": len(group.members)}
        for group in groups
    ]
    return {"layers": layers, "groups": told, "image": 32, "colours": 3}


class Small(nn.Module):
    """The network of lesson 02."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.drop = nn.Dropout()
        self.norm = nn.BatchNorm2d(8)
        self.shift = nn.Parameter(torch.randn(8, 1, 1))

    def forward(self, x):
        normed = torch.mul(self.norm(self.drop(self.conv(x))), 1.0)
        return F.relu(normed + self.shift.add(2.0))


def boxes(graph_module):
    return [vars(box) for box in outline(graph_module)]


def graph():
    graph_module = trace(Small().eval(), (torch.randn(2, 3, 8, 8),), "fx")
    steps = [{"name": "as traced", "boxes": boxes(graph_module)}]
    for name in (
        "canonicalize",
        "elim_identity",
        "constant_folding",
        "conv_bn_folding",
        "conv_add_folding",
    ):
        passes.Passer([name]).run(graph_module)
        steps.append({"name": name, "boxes": boxes(graph_module)})
    return {"steps": steps}


class Net(nn.Module):
    """A network of lesson 03's zoo."""

    def __init__(self, run):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.run = run

    def forward(self, x):
        return self.run(self, x)


ZOO = {
    "straight": Net(lambda m, x: m.norm(m.conv(x))),
    "output read twice": Net(lambda m, x: (y := m.conv(x)) + m.norm(y)),
    "convolution called twice": Net(lambda m, x: m.norm(m.conv(m.conv(x)))),
    "weight read elsewhere": Net(lambda m, x: m.norm(m.conv(x)) * m.conv.weight.abs().mean()),
    "a method called norm": Net(lambda m, x: m.norm(x) / m.conv(x).norm()),
}


def traps():
    probe = torch.randn(4, 4, 8, 8)
    steps = [
        {"name": name, "boxes": boxes(trace(net.eval(), (probe,), "fx"))}
        for name, net in ZOO.items()
    ]
    return {"steps": steps, "traps": True}


def separable():
    return {"channels": 64, "kernel": 3, "size": 32}


def staircase():
    return {"scale": 1, "zero": 1, "bits": 2, "x": 0.9}


def clipping():
    torch.manual_seed(0)
    values = torch.cat([torch.randn(3000).abs(), 12 * torch.rand(3)])
    return {"values": values, "bits": 4}


def corners():
    return {"weights": [0.44, 0.36], "correlation": 0.9}


def rounding():
    return {"multiplier": 5, "shift": 3, "reach": 40}


def roofline():
    _, folded = networks()
    layers = []
    for node in folded.graph.nodes:
        layer = node.op == "call_module" and folded.get_submodule(node.target)
        if isinstance(layer, nn.Conv2d):
            made = node.meta["val"].numel()
            maps = 4 * (node.args[0].meta["val"].numel() + made)
            layers.append(
                {"name": node.target, "kind": kind_of(layer), "maps": maps}
                | {"operations": 2 * made * layer.weight[0].numel(), "weights": layer.weight.nbytes}
            )
    return {"layers": layers, "peak": 150e9, "bandwidth": 12e9, "overhead": 30e-6}


def shipped():
    columns = ["name", "accuracy", "low", "high", "file_bytes"]
    table = load()[columns].dropna().rename(columns={"file_bytes": "bytes"})
    return {"networks": table.to_dict("records")}


def window():
    image = torch.zeros(7, 7, dtype=torch.int64)
    image[1:6, 1] = image[1, 1:6] = image[3, 1:5] = 1  # the letter F
    weights = [[-1, 1, 0], [-1, 1, 0], [-1, 1, 0]]  # large where a stroke begins
    return {"image": image.tolist(), "weights": weights, "bias": 0}


def norm():
    torch.manual_seed(1)
    return {"y": 1.5 + 0.8 * torch.randn(2000), "eps": 1e-5}


FIGURES = {
    "01-window": (
        window,
        "A window of 3 by 3 on an image of 7 by 7 numbers, and its output of 5 by 5. Stride"
        " and padding change how many places the window has, and so the size of the output.",
    ),
    "01-norm": (
        norm,
        "A histogram of y below, the line z = a y + c above it, and the histogram of z at its"
        " left. BatchNorm moves the histogram to 0 and gives it the width 1.",
    ),
    "02-graph": (
        graph,
        "The graph of a small network as rows of nodes, before and after each pass: dropout,"
        " the multiplication by one and the BatchNorm disappear one after the other.",
    ),
    "03-graph-traps": (
        traps,
        "Small networks with a convolution and a BatchNorm. Where something else needs the"
        " convolution's output or weights it is red, and the two must not be folded.",
    ),
    "04-roofline": (
        roofline,
        "The roofline with a point for each layer. For one image overhead bounds most layers;"
        " the larger the batch, the more of them reach the slope of memory or the flat roof of"
        " compute.",
    ),
    "05-separable": (
        separable,
        "A rectangle, pixels of the window by channels, for an ordinary convolution; a"
        " separable one costs only two of its edges. Bars compare the multiply-adds of a layer.",
    ),
    "06-channels": (
        channels,
        "MobileNetV2 as a row of layers, as tall as their channels. The 32 channels of one"
        " stage are marked: they run through the ends of three blocks, and can only be removed"
        " from all.",
    ),
    "08-staircase": (
        staircase,
        "A staircase of four values follows the diagonal from -1 to 2. Within that range the error"
        " is a sawtooth of at most half a step; outside of it the error grows without limit.",
    ),
    "08-clipping": (
        clipping,
        "A histogram with a few outliers, and the error against the end of the range: clipping"
        " falls, rounding grows, and their sum is smallest well below the largest value.",
    ),
    "08-weights": (
        weights,
        "The weights of a layer as a histogram, and one row of marks per filter: the values"
        " that its codes stand for. With one scale for the layer a dead filter sets the scale,"
        " and most weights become 0.",
    ),
    "09-rounding": (
        rounding,
        "A number line with an exact half, and where three rules take it: the shift alone goes"
        " down, half up goes up, half to even to the even neighbour, with no error on average.",
    ),
    "09b-corners": (
        corners,
        "Two weights between four codes, with ellipses of equal error of the output. The"
        " corner that is nearest to the weights has a larger error than the corner along the"
        " ellipse.",
    ),
    "10-networks": (
        shipped,
        "Accuracy over the size of the file for all networks of the course, with error bars. A"
        " budget of bytes is shaded, and the best network below it is marked.",
    ),
}


@cache
def html(name):
    """The figure as it goes into a notebook."""
    data, alt = FIGURES[name]
    with mock.patch.object(sys.modules["helpers.plots.interactive"], "display") as display:
        interactive(name, data(), alt)
    return display.call_args.args[0]["text/html"]


def document(name, scheme="light dark"):
    return PAGE.format(figure=html(name), scheme=scheme)


def numbers(page, index=0):
    """What a figure says that it shows."""
    return json.loads(page.locator(".course-figure").nth(index).get_attribute("data-numbers"))


def words(page):
    """All that a figure says, on the axes too."""
    return page.locator(".live").text_content()


def take(browser, name):
    """The figure as a PNG of few colours; the numbers and words that it shows go along."""
    page = browser.new_page(viewport={"width": WIDTH + 24, "height": 900}, device_scale_factor=1.25)
    page.set_content(document(name, "light"))
    picture = Image.open(io.BytesIO(page.locator(".course-figure").screenshot()))
    about = PngInfo()
    about.add_text("numbers", json.dumps(numbers(page)))
    about.add_text("words", json.dumps(words(page)))
    still = FOLDER / f"{name}.png"
    few = picture.convert("RGB").quantize(16, dither=Image.Dither.NONE)
    few.save(still, optimize=True, pnginfo=about)
    page.close()
    print(f"{still.name}: {still.stat().st_size:,} bytes")


def main(names):
    for name in names:
        still = FOLDER / f"{name}.png"
        if not still.exists():  # the figure must have one to be shown at all
            Image.new("RGB", (1, 1)).save(still)
    with launched() as browser:
        for name in names:
            take(browser, name)


if __name__ == "__main__":
    main(sys.argv[1:] or [*FIGURES])
