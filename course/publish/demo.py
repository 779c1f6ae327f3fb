"""The networks as one page that computes them in integers: no server, no connection, any photo.

The page holds each network as JSON: its steps in order, weights in the packed bytes of the shipped
file, and the whole numbers that the integer mode computes with. `demo/interpreter.js` does the
rest.
"""

import base64
import html
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from IPython.display import HTML

from course.publish.page import as_json, filled
from helpers import data, models
from helpers.dataset import input_of
from helpers.files import write_atomically
from helpers.quantization.integer import Layer, Step
from helpers.quantization.model import QuantizedModel
from helpers.quantization.plan import INPUT
from helpers.quantization.weights import pack

SHOWN = {"dense": "dense-int8", "a tenth": "tenth-int8", "smallest": "tenth-mixed"}
IMAGES_PER_CLASS = 4
LEAST_SHIFT = 17  # below it, the interpreter's two halves of a product no longer do


def write_demo(target: Path, cifar: data.Dataset, networks: dict[str, Path] | None = None) -> Path:
    """Write the page with test images and the files of networks, by the name that the page shows.

    Args:
        target: the page to write.
        cifar: where the test images come from.
        networks: default: three shipped ones.
    """
    packed = [pack_network(*named) for named in (networks or shipped()).items()]
    chosen = pictures(cifar)
    images = {"labels": cifar.test_labels[chosen].tolist(), "classes": list(cifar.classes)}
    images["pixels"] = text_of(cifar.test_images[chosen].permute(0, 2, 3, 1))
    return write_atomically(target, filled("page.html", {"images": images, "networks": packed}))


def shipped() -> dict[str, Path]:
    """The networks of the course that the page shows."""
    return {told: models.CHECKPOINTS / f"{name}.safetensors" for told, name in SHOWN.items()}


def own_networks(folders: Iterable[Path]) -> dict[str, Path]:
    """The integer networks that a learner has kept, by the name that the page shows."""
    found: dict[str, Path] = {}
    for path in [path for folder in folders for path in sorted(folder.glob("*.safetensors"))]:
        name = f"yours: {path.stem}"
        try:
            model = models.load(path)
            if not isinstance(model, QuantizedModel):
                raise ValueError("it has float weights; lesson 09 makes integers of them")
            pack_network(name, path)
        except (ValueError, RuntimeError) as reason:
            print(f"{path} is not on the page: {reason}")
        else:
            found.setdefault(name, path)
    return found


def frame(page: Path) -> HTML:
    """The page as the output of a cell, for a browser that may not open files."""
    source = html.escape(page.read_text(encoding="utf-8"))
    title = "The networks, computing in your browser"
    shown = f'<iframe title="{title}" srcdoc="{source}" width="100%" height="700"></iframe>'
    return HTML(f"<div>{shown}</div>")


def pictures(cifar: data.Dataset) -> torch.Tensor:
    """Which test images the page shows, in its order: the first few of each class."""
    return torch.cat(
        [
            (cifar.test_labels == c).nonzero()[:IMAGES_PER_CLASS, 0]
            for c in range(len(cifar.classes))
        ]
    )


def pack_network(name: str, path: Path) -> dict[str, Any]:
    """A shipped network with its size, and a checksum by which the page sees damage."""
    model = models.load(path)
    if model.input_shape != (3, 32, 32):
        raise ValueError(
            f"{path.stem} takes inputs of {tuple(model.input_shape)}; the page has photos of (3,"
            " 32, 32)"
        )
    outputs = [*model.steps.values()][-1].op.shape
    if outputs != (10,):
        raise ValueError(f"{path.stem} has outputs of {outputs}; the page names ten classes")
    greys = (
        torch.arange(256, dtype=torch.uint8).reshape(256, 1, 1, 1).expand(256, 3, 1, 1)
    )  # every byte, every colour
    network = {
        "shape": list(model.input_shape),
        "zero": int(model.edges[INPUT].zero_point),
        "table": text_of(model.input.encode(input_of(model, greys))[:, :, 0, 0].T),
        "steps": [pack_step(step, model) for step in model.steps.values()],
    }
    letters = np.frombuffer(as_json(network).encode(), np.uint8)
    return {
        "name": name,
        "bytes": path.stat().st_size,
        "checksum": checksum(letters),
        "network": network,
    }


def pack_step(step: Step, model: QuantizedModel) -> dict[str, Any]:
    """One step as the interpreter reads it; whole numbers and text only, so that JSON is the same
    everywhere.
    """
    op = step.op
    packed = {
        "name": op.name,
        "kind": op.kind,
        "inputs": list(op.inputs),
        "shape": [*op.shape, 1, 1][:3],
    }
    packed["coded"] = step.has_codes or op.kind == "reshape"
    if isinstance(step, Layer):
        packed |= pack_layer(step)
    elif op.kind != "add" or [model.step(name).op.shape for name in op.inputs] != [op.shape] * 2:
        before = model.step(op.inputs[0]).op.shape
        whole_map = op.kind == "average_pool" and tuple(op.attributes["kernel"]) == tuple(
            before[1:]
        )
        if not whole_map and not (op.kind == "reshape" and before == (*op.shape, 1, 1)):
            raise ValueError(
                f"{op.name} ({op.kind}) has no form in the page's interpreter; leave this"
                " network out"
            )
    return packed | (pack_factors(step) if step.has_codes else {})


def pack_layer(layer: Layer) -> dict[str, Any]:
    """Geometry, weights and bias. A linear layer is a convolution of a map with one pixel."""
    op, weight, geometry, channels = layer.op, layer.codes, layer.geometry, len(layer.codes)
    depthwise = channels > 1 and geometry["groups"] == channels and weight.shape[1] == 1
    if geometry["dilation"] != (1, 1) or not (depthwise or geometry["groups"] == 1):
        raise ValueError(
            f"{op.name}: the page's interpreter knows no dilation and no groups; leave this"
            " network out"
        )
    packed = {
        "kind": "conv",
        "depthwise": depthwise,
        "kernel": [*weight.shape[2:], 1, 1][:2],
        "weightShape": [*weight.shape, 1, 1][:4],
        "stride": list(geometry["stride"]),
        "padding": list(geometry["padding"]),
        "bits": layer.bits,
        "weights": text_of(pack(weight, layer.bits)),
        "bias": text_of(layer.folded_bias),
    }
    return packed if layer.has_codes else packed | {"factor": text_of(layer.factors()[0].float())}


def pack_factors(step: Step) -> dict[str, Any]:
    """What turns the sums of a step into codes, one number for each channel."""
    multipliers = [flat(multiplier, step) for multiplier in step.multipliers]
    shift = flat(step.shift, step)
    if int(shift.min()) < LEAST_SHIFT:
        raise ValueError(
            f"{step.op.name}: its factor is too large for the page's interpreter; leave this"
            " network out"
        )
    packed = {
        "zero": int(step.out_zero_point),
        "first": int(step.first),
        "last": text_of(flat(step.last, step)),
        "multiplier": text_of(multipliers[0].int()),
        "shift": text_of(shift.byte()),
    }
    return packed | (
        {"residualMultiplier": text_of(multipliers[1].double())} if len(multipliers) > 1 else {}
    )


def flat(numbers: torch.Tensor, step: Step) -> torch.Tensor:
    """One number for each output channel."""
    return numbers.flatten().expand(len(step.last))


def checksum(values: np.ndarray) -> int:
    """As in `demo/interpreter.js`: a signed 32-bit number that changes with any single value and
    its place.
    """
    places = np.arange(values.size, dtype=np.uint32) * np.uint32(2654435761) | np.uint32(1)
    total = int((values.ravel().astype(np.uint32) * places).sum(dtype=np.uint32))
    return total - 2**32 if total >= 2**31 else total


def text_of(numbers: torch.Tensor) -> str:
    """The bytes of a tensor, lowest byte first, as base64."""
    array = numbers.contiguous().numpy()
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()
