"""One page about a compressed network: what each stage reached, what was spared and why, and how to
make it again.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from course.lessons import onnx_float
from course.reference.table import as_markdown
from helpers import metrics, quantization
from helpers.dataset import Dataset, normalization_of, normalize
from helpers.files import remove, write_atomically
from helpers.pipeline import Compressed
from helpers.provenance import command, joined
from helpers.pruning import channel_groups

IMAGES, RUNS = 100, 20
COLUMNS = {
    "stage": lambda row: row.stage,
    "accuracy (95 % interval)": lambda row: f"{row.accuracy:.2%} ({row.low:.2%} to {row.high:.2%})",
    "parameters": lambda row: f"{row.params:,.0f}",
    "multiply-adds": lambda row: f"{row.macs:,.0f}",
    "file, bytes": lambda row: f"{row.file_bytes:,}",
    "one image, PyTorch": lambda row: f"{row.batch1_ms:.2f} ms ± {row.batch1_iqr_ms / 2:.2f}",
}


def write(result: Compressed, dataset: Dataset, folder: Path) -> Path:
    """Write report.md, and each stage as ONNX, into the folder with the stages of what
    `pipeline.compress` gave.
    """
    table, model = result.table, result.model
    rows = pd.DataFrame(
        {name: [cell(row) for row in table.itertuples()] for name, cell in COLUMNS.items()}
    )
    count = len(dataset.test_images)
    some = torch.linspace(
        0, count - 1, min(IMAGES, count)
    ).long()  # of all classes: they may come in their order
    images = normalize(dataset.test_images[some], normalization=normalization_of(model))
    mean, deviation = (", ".join(map(str, numbers)) for numbers in normalization_of(model))
    origin = table.iloc[0]
    parts = [
        f"# {model.spec.builder}, compressed",
        (
            f"{dataset.describe()}. Accuracy on the test images, each stage measured once; times on"
            f" {origin.device}, {origin.threads} {'thread' if origin.threads == 1 else 'threads'},"
            " median and half the interquartile range."
        ),
        as_markdown(rows.assign(**in_onnx_runtime(result, images, folder))),
        (
            f"Every network takes `(image / 255 - mean) / deviation`, mean {mean}, deviation"
            f" {deviation}; the ONNX files take one image of"
            f" {' x '.join(map(str, images.shape[1:]))} (*quantized* any number). *Same answer*:"
            " how many of these test images get the same class from ONNX Runtime as from PyTorch."
        ),
        "## Layers that stayed in float",
        in_float(model),
        "## Channels that were not cut",
        dead(result.dead),
        not_cut(result.stages["dense"], images[:1], result.scope),
        "## Make it again",
        again(),
        f"Load a stage with {loading(model)}.",
    ]
    return write_atomically(folder / "report.md", "\n\n".join(parts) + "\n")


def again() -> str:
    """The command that does all this again, if it was one."""
    if getattr(sys.modules["__main__"], "__spec__", None) is None:  # not by `python -m`
        return "Run the cell, or your own program, that called `pipeline.compress`."
    return f"```\ncd {joined([str(Path.cwd())])}\n{command(whole=True)}\n```"


def loading(model: nn.Module) -> str:
    """How a stage's file is loaded: code of one's own has to be named."""
    builder = model.spec.builder
    if model.spec.make is not None:
        return "`models.load(FILE, factory=FUNCTION)`, with a function that makes the dense network"
    return f"`models.load(FILE{f', factory={builder!r}' if ':' in builder else ''})`"


def in_onnx_runtime(result: Compressed, images: Tensor, folder: Path) -> dict[str, list[str]]:
    """Two columns: the time of one image, all stages in turn, and how often the answer is that of
    PyTorch.
    """
    calls, same = {}, {}
    for stage, network in result.stages.items():
        try:
            call = opened(network, images[:1], folder / f"{stage}.onnx")
            answers = torch.cat([call(image) for image in images.split(1)]).argmax(1)
        except Exception as error:  # the exporter and ONNX Runtime refuse in many ways
            remove(folder / f"{stage}.onnx")  # nobody should deploy it
            same[stage] = " ".join(f"no ONNX: {error}".split())[:120].replace("|", "/")
            continue
        calls[stage] = call
        with torch.no_grad():
            equal = answers == network(images).argmax(1)
        same[stage] = f"{int(equal.sum())} of {len(images)}"
    timed = (
        metrics.compare_latency(calls, images[:1], runs=RUNS, warmup=2).set_index("name")
        if calls
        else None
    )
    times = [
        f"{timed.median_ms[s]:.2f} ms ± {timed.iqr_ms[s] / 2:.2f}" if s in calls else "-"
        for s in result.stages
    ]
    return {"one image, ONNX Runtime": times, "same answer": list(same.values())}


def opened(network: nn.Module, image: Tensor, path: Path) -> Callable[[Tensor], Tensor]:
    """A network in ONNX Runtime; its file stays."""
    if isinstance(network, quantization.QuantizedModel):
        quantization.to_onnx(network, path)
    else:
        onnx_float.export(network, image, path)
    session = onnx_float.session(path, torch.get_num_threads())
    (given,) = session.get_inputs()
    return lambda x: torch.from_numpy(session.run(None, {given.name: x.numpy()})[0])


def in_float(model: quantization.QuantizedModel) -> str:
    """The steps without an integer form, and what they compute."""
    found = []
    for step in (step for step in model.steps.values() if step.op.kind == "float"):
        (node,) = step.module.graph.output_node().all_input_nodes
        target = step.module.get_submodule(node.target) if node.op == "call_module" else node.target
        found.append(
            (
                f"`{step.op.name}`",
                f"`{getattr(target, '__name__', target)}` has no integer form here",
            )
        )
    if not found:
        return "None: from the first layer to the last, everything is computed in integers."
    return as_markdown(pd.DataFrame(found, columns=["layer", "why"]))


def dead(found: dict[str, list[int]]) -> str:
    """The channels that went before any choice, and why."""
    if not found:
        return "No channel was dead, that is, had a value that no image changes."
    listed = ", ".join(f"{len(units)} of `{group}`" for group, units in found.items())
    return f"Dead channels, whose value no image changes, went first: {listed}."


def not_cut(model: nn.Module, image: Tensor, scope: str) -> str:
    """The groups of channels that pruning could not cut, or with scope="hidden" did not."""
    table = channel_groups(model, image).table()
    spared = table[(table["unprunable because"] != "") | (~table.hidden & (scope == "hidden"))]
    outside = "outside the blocks or on the trunk: only scope=all cuts here"
    why = [reason.replace("|", "/") or outside for reason in spared["unprunable because"]]
    return as_markdown(pd.DataFrame({"group": spared.group, "channels": spared.units, "why": why}))
