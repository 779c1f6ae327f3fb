"""Whether every way to run an integer network gives the same classes, and the same codes in each layer."""

from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime
import pandas as pd
import torch
from torch import nn

from course.benchmarks import quantization_rivals as rivals
from helpers import data, quantization
from helpers.quantization.plan import INPUT

BATCH = 250
RUNTIME = "ONNX Runtime"
Codes = dict[str, torch.Tensor]


def agreement(model: nn.Module, calibration: torch.Tensor, images: torch.Tensor, folder: Path) -> pd.DataFrame:
    """The share of images that get the same class from integer arithmetic and from each other way."""
    rows = []
    for network, exported in both_residual_forms(model, calibration, folder):
        found = {}
        for network.mode in quantization.MODES:
            found[network.mode] = classes(network, images)
        if exported:
            found[RUNTIME] = classes(rivals.run_onnx(exported), images)
        exact = found.pop("integer")
        for name, other in found.items():
            agrees = (other == exact).double().mean().item()
            rows.append({"residual": network.recipe.residual, "name": name, "agrees": agrees, "images": len(exact)})
            print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def layers(model: nn.Module, calibration: torch.Tensor, images: torch.Tensor, folder: Path) -> pd.DataFrame:
    """For each layer, given the same codes: how many come out different from integer arithmetic, and by how much."""
    x, rows = data.normalize(images), []
    for network, exported in both_residual_forms(model, calibration, folder):
        seen = integer_codes(network, x)
        for mode in ("simulated", "kernel"):
            made = {
                s.op.name: getattr(s, mode)(*(seen[i].clone() for i in s.op.inputs)) for s in network.steps.values()
            }
            rows += compare(network, mode, seen, made)
        if exported:
            made = runtime_codes(network, exported, x)
            rows += compare(network, RUNTIME, made, made)
    return pd.DataFrame(rows)


def both_residual_forms(model: nn.Module, calibration: torch.Tensor, folder: Path):
    """The network with one rounding for a residual addition, then with two and the file that computes the same."""
    yield quantization.quantize(model, calibration, quantization.Recipe(residual="fused")), None
    network = quantization.quantize(model, calibration, quantization.Recipe(residual="separate"))
    yield network, quantization.to_onnx(network, folder / "ours.onnx")


@torch.no_grad()
def classes(network: Callable, images: torch.Tensor) -> torch.Tensor:
    """The class of each image."""
    return torch.cat([network(data.normalize(part)).argmax(1) for part in images.split(BATCH)])


def integer_codes(network: quantization.QuantizedModel, x: torch.Tensor) -> Codes:
    """What integer arithmetic computes, for each step."""
    network.mode, seen = "integer", {}
    network.run(x, watch=lambda name, value: seen.update({name: value.clone()}))
    return seen


def runtime_codes(network: quantization.QuantizedModel, path: Path, x: torch.Tensor) -> Codes:
    """What ONNX Runtime computes, for each step; what it does not show (a reshape) follows from what it does."""
    file = onnx.load(path)
    names = [n.output[0] for n in file.graph.node if n.op_type == "QuantizeLinear"]
    file.graph.output.extend(onnx.helper.make_tensor_value_info(n, onnx.TensorProto.UINT8, None) for n in names)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact without VNNI, too
    session = onnxruntime.InferenceSession(file.SerializeToString(), options, providers=["CPUExecutionProvider"])
    shown = dict(zip(names, session.run(names, {INPUT: x.contiguous().numpy()}), strict=True))
    seen = {name.removesuffix(".codes"): torch.from_numpy(codes) for name, codes in shown.items()}
    for step in network.steps.values():
        if step.op.name not in seen:
            seen[step.op.name] = step.integer(*(seen[i] for i in step.op.inputs))
    return seen


def compare(network: quantization.QuantizedModel, way: str, inputs: Codes, made: Codes) -> list[dict]:
    """One row per layer: what was made from these inputs beside what integer arithmetic makes of them."""
    rows = []
    for step in network.steps.values():
        name = step.op.name
        if step.coded:
            gap = (made[name].int() - step.integer(*(inputs[i] for i in step.op.inputs)).int()).abs()
            row = {"residual": network.recipe.residual, "way": way, "layer": name, "codes": gap.numel()}
            rows.append(row | {"different": (gap > 0).sum().item(), "largest": gap.max().item()})
    return rows
