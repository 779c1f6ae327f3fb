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

from helpers import models, passes, pruning
from helpers.plots.interactive import FOLDER, interactive
from tests.course.publish.chromium import launched

WIDTH = 720
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>figure</title>
<style>:root {{ color-scheme: {scheme}; }} body {{ margin: 12px; }}</style></head><body>{figure}</body></html>"""


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
        "A window of 3 by 3 on an image of 7 by 7 numbers, and its output of 5 by 5. Stride and"
        " padding change how many places the window has, and so the size of the output.",
    ),
    "01-norm": (
        norm,
        "A histogram of y below, the line z = a y + c above it, and the histogram of z at its left."
        " BatchNorm moves the histogram to 0 and gives it the width 1.",
    ),
    "06-channels": (
        channels,
        "MobileNetV2 as a row of layers, as tall as their channels. The 32 channels of one stage are"
        " marked: they run through the ends of three blocks, and can only be removed from all.",
    ),
    "08-weights": (
        weights,
        "The weights of a layer as a histogram, and one row of marks per filter: the values that its"
        " codes stand for. With one scale for the layer a dead filter sets the scale, and most"
        " weights become 0.",
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


def take(browser, name):
    """The figure as a PNG of few colours; the numbers that it shows go along."""
    page = browser.new_page(viewport={"width": WIDTH + 24, "height": 900}, device_scale_factor=1.5)
    page.set_content(document(name, "light"))
    picture = Image.open(io.BytesIO(page.locator(".course-figure").screenshot()))
    about = PngInfo()
    about.add_text("numbers", json.dumps(numbers(page)))
    module = FOLDER / f"{name.split('-')[1]}.png"
    few = picture.convert("RGB").quantize(16, dither=Image.Dither.NONE)
    few.save(module, optimize=True, pnginfo=about)
    page.close()
    print(f"{module.name}: {module.stat().st_size:,} bytes")


def main(names):
    for name in names:
        still = FOLDER / f"{name.split('-')[1]}.png"
        if not still.exists():  # the figure must have one to be shown at all
            Image.new("RGB", (1, 1)).save(still)
    with launched() as browser:
        for name in names:
            take(browser, name)


if __name__ == "__main__":
    main(sys.argv[1:] or [*FIGURES])
