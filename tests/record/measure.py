"""What is recorded: each function looks at the code as it is now and returns plain JSON."""

import csv
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torchvision
from torch import nn

from helpers import data, models, passes, pruning, quantization
from tests.passes.equivalence import build, example
from tests.passes.zoo import ZOO

PROGRAM = "helpers"  # whose `python -m PROGRAM grade demo` makes the marks
CHECKPOINTS = sorted(path.stem for path in models.CHECKPOINTS.glob("*.safetensors"))
OURS = "mobilenet_v2_cifar"
NETWORKS = torchvision.models.list_models(module=torchvision.models)
ROUTES = ("fx", "export")
IMAGES = 8
CALIBRATION = 32
RANDOM_INITS = ("kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "uniform_", "normal_", "trunc_normal_")


def digest(value: bytes | np.ndarray | torch.Tensor) -> str:
    return hashlib.sha256(value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()).hexdigest()


def machine() -> str:
    """Where float kernels give the same bits: the processor's instructions and the version of torch."""
    features = json.dumps(torch.cpu.get_capabilities(), sort_keys=True, default=str)
    return f"{torch.backends.cpu.get_cpu_capability()} {digest(features.encode())[:8]} torch {torch.__version__}"


def logits(name: str) -> dict[str, torch.Tensor]:
    """What one checkpoint answers in each of its modes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums are split among threads
    try:
        cifar = data.load_cifar10(source="sample")
        images = data.normalize(cifar.test_images[:IMAGES])
        with torch.no_grad():
            return {mode: model(images) for mode, model in modes(name, cifar)}
    finally:
        torch.set_num_threads(threads)


def modes(name: str, cifar: data.Cifar10) -> Iterator[tuple[str, nn.Module]]:
    model = models.pretrained(name)
    if isinstance(model, quantization.QuantizedModel):
        for mode in quantization.MODES:
            model.mode = mode
            yield mode, model
        return
    x = torch.zeros(1, *cifar.test_images.shape[1:])
    yield "float", model
    yield "folded", passes.optimize(model, x)[0]
    yield "fused", passes.optimize(model, x, level="inference")[0]
    if name != "baseline":
        return
    yield "pruned", pruning.prune(model, x, ratio=0.25, scope="all").eval()
    yield "quantized", quantization.quantize(model, cifar.train_images[:CALIBRATION])


@contextmanager
def same_weights() -> Iterator[None]:
    """Networks are built with constant weights: faster than random ones, and shapes are all that counts here."""

    def fill(tensor: torch.Tensor, *_args, **_settings) -> torch.Tensor:
        with torch.no_grad():
            return tensor.fill_(0.01)

    with mock.patch.multiple(nn.init, **dict.fromkeys(RANDOM_INITS, fill)):
        yield


def network(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A network in eval mode, and an image of the smallest usual size that it takes."""
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with same_weights():
        model = (models.mobilenet_v2() if name == OURS else models.build(name, **extra)).eval()
    usual = 32 if name == OURS else 299 if name == "inception_v3" else 96
    size = 224 if name.startswith(("vit", "swin", "maxvit")) else usual
    return model, torch.zeros(1, 3, size, size)


def groups(name: str) -> list:
    """Each channel group: name, size, why it cannot be pruned, whether it is hidden, and all its members."""
    found = pruning.channel_groups(*network(name))
    return [[group.name, group.size, group.reason, group.hidden, members(group)] for group in found]


def members(group: pruning.groups.Group) -> list:
    """Tensor, axis, number of indices and a digest of which index belongs to which unit (in order of appearance)."""
    ordered = sorted(group.members, key=lambda m: (m.tensor, m.dim, m.positions.tolist()))
    numbers: dict[int, int] = {}
    lines = []
    for member in ordered:
        pairs = sorted(zip(member.positions.tolist(), member.units.tolist(), strict=True))
        units = [(position, numbers.setdefault(unit, len(numbers))) for position, unit in pairs]
        lines.append([member.tensor, member.dim, len(units), digest(np.array(units, dtype=np.int64))[:12]])
    return lines


def summary(found: list) -> dict:
    prunable = [hidden for _, _, reason, hidden, _ in found if reason is None]
    sizes = {"groups": len(found), "prunable": len(prunable), "hidden": sum(prunable)}
    return sizes | {"sha256": digest(json.dumps(found).encode())[:16]}


def is_batch_norm(graph_module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    if node.op == "call_module":
        return isinstance(graph_module.get_submodule(node.target), nn.modules.batchnorm._BatchNorm)
    return node.op == "call_function" and "batch_norm" in str(node.target)


def folds(model: nn.Module, x: torch.Tensor, route: str, level: str = "fold") -> tuple[list[str], dict[str, list[str]]]:
    """Which node was folded into which layer, and the batch norms that are left with the reasons."""
    graph_module, report = passes.optimize(model, x, level=level, route=route)
    folded = sorted(f"{node} {what}" for _, node, what in report.changed if what.startswith("folded into"))
    left = [node.name for node in graph_module.graph.nodes if is_batch_norm(graph_module, node)]
    return folded, {norm: sorted({why for _, node, why in report.declined if node == norm}) for norm in left}


def zoo_folds(route: str, level: str = "fold") -> dict[str, list]:
    return {
        f"{case.name} ({route})": list(folds(build(case), example(case), route, level))
        for case in ZOO
        if route in case.routes
    }


def network_folds(name: str) -> dict[str, list[int]]:
    """For each route how many nodes fold, and how many batch norms are left."""
    model, x = network(name)
    return {route: [len(part) for part in folds(model, x, route)] for route in ROUTES}


def marks(folder: Path) -> dict[str, dict[str, float]]:
    """Points of each student of the demonstration class. It is graded without the box, which not every machine has."""
    command = [sys.executable, "-m", PROGRAM, "grade", "demo", "--unsafe", "--folder", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    table: dict[str, dict[str, float]] = {}
    with open(folder / "export" / "items.csv", newline="") as file:
        for row in csv.DictReader(file):
            table.setdefault(row["student"], {})[row["item"]] = float(row["points"])
    return table
