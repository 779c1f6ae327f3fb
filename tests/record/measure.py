"""What is recorded: each function looks at the code as it is now and returns plain JSON, one entry
a name.
"""

import gc
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch
import torchvision
from torch import nn

from helpers import data, models, passes, pruning, quantization
from tests.passes.graphs import build, example, norm_calls
from tests.passes.zoo import ZOO

GRADING = [sys.executable, "-m", "course", "grade"]
CHECKPOINTS = sorted(path.stem for path in models.CHECKPOINTS.glob("*.safetensors"))
OURS = "mobilenet_v2_cifar"
NETWORKS = [OURS, *torchvision.models.list_models(module=torchvision.models)]
ROUTES = ("fx", "export")
IMAGES, CALIBRATION = 8, 32
RANDOM_INITS = (
    "kaiming_uniform_",
    "kaiming_normal_",
    "xavier_uniform_",
    "uniform_",
    "normal_",
    "trunc_normal_",
)


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:16]


def machine() -> str:
    """Where float kernels give the same bits: the processor's instructions and caches, and the
    version of torch.
    """
    caches = [
        path.read_text()
        for path in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/s[ih]*"))
    ]
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.10 has no such function
    features = json.dumps([capabilities, caches], sort_keys=True, default=str).encode()
    return f"{torch.backends.cpu.get_cpu_capability()} {digest(features)} torch {torch.__version__}"


def logits(name: str) -> dict[str, dict]:
    """What a checkpoint answers in each of its modes, rounded, and a digest of the bits with where
    they hold.
    """
    cifar, found, threads = data.load_cifar10(source="sample"), {}, torch.get_num_threads()
    torch.set_num_threads(1)  # threads split the sums
    for mode, model in modes(name, cifar):
        with torch.no_grad():
            y = model(data.normalize(cifar.test_images[:IMAGES]))
        bits = {"anywhere" if mode == "integer" else machine(): digest(y.numpy().tobytes())}
        found[f"{name} {mode}"] = {
            "sha256": bits,
            "logits": [[round(v, 2) for v in row] for row in y.tolist()],
        }
    torch.set_num_threads(threads)
    return found


def modes(name: str, cifar: data.Dataset) -> Iterator[tuple[str, nn.Module]]:
    model, x = models.pretrained(name), torch.zeros(1, 3, 32, 32)
    if isinstance(model, quantization.QuantizedModel):
        for mode in quantization.MODES:
            model.mode = mode
            yield mode, model
        return
    yield "float", model
    yield "folded", passes.optimize(model, x)[0]
    yield "fused", passes.optimize(model, x, level="inference")[0]
    if name == "dense":
        yield "pruned", pruning.prune(model, x, ratio=0.25, scope="all").eval()
        yield "quantized", quantization.quantize(model, cifar.train_images[:CALIBRATION])


def network(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A network and the smallest usual image that it takes.

    Random weights would take most of the time.
    """
    gc.collect()  # the gigabytes of the network before
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with mock.patch.multiple(
        nn.init, **dict.fromkeys(RANDOM_INITS, lambda tensor, *_, **__: tensor.data.fill_(0.01))
    ):
        model = models.mobilenet_v2() if name == OURS else models.build(name, **extra)
    size = {OURS: 32, "inception_v3": 299}.get(
        name, 224 if name.startswith(("vit", "swin", "maxvit")) else 96
    )
    return model.eval(), torch.zeros(1, 3, size, size)


def members(group) -> list:
    """Tensor, axis, number of indices, and a digest of which index belongs to which unit (in order
    of appearance).
    """
    numbers: dict[int, int] = {}
    lines = []
    for member in sorted(group.members, key=lambda m: (m.tensor, m.dim, m.indices.tolist())):
        pairs = sorted(zip(member.indices.tolist(), member.numbers.tolist(), strict=True))
        units = [(index, numbers.setdefault(unit, len(numbers))) for index, unit in pairs]
        lines.append(
            [
                member.tensor,
                member.dim,
                len(units),
                digest(np.array(units, dtype=np.int64).tobytes()),
            ]
        )
    return lines


def groups(name: str) -> dict[str, dict]:
    """Each channel group: name, size, why it cannot be pruned, whether it is hidden, and all its
    members.
    """
    found = [
        [g.name, g.size, g.reason, g.hidden, members(g)]
        for g in pruning.channel_groups(*network(name))
    ]
    hidden = [group[3] for group in found if group[2] is None]
    counts = {"groups": len(found), "prunable": len(hidden), "hidden": sum(hidden)}
    return {name: counts | {"sha256": digest(json.dumps(found).encode())}}


def folded_and_left(
    model: nn.Module, x: torch.Tensor, route: str, level: str = "fold"
) -> tuple[list, dict]:
    """Which node was folded into which layer, and the batch norms that are left, with reasons."""
    graph_module, report = passes.optimize(model, x, level=level, route=route)
    left = {node.name: set() for node in norm_calls(graph_module)}
    for _, node, why in report.declined:
        left.get(node, set()).add(why)
    left = {node: sorted(reasons) for node, reasons in left.items()}
    return (
        sorted(
            f"{node} {what}" for _, node, what in report.changed if what.startswith("folded into")
        ),
        left,
    )


def folds(route: str, level: str = "fold") -> dict[str, list]:
    """For each network of the zoo; the same at both levels."""
    cases = [case for case in ZOO if route in case.routes]
    return {
        f"{c.name} ({route})": [*folded_and_left(build(c), example(c), route, level)] for c in cases
    }


def networks(name: str) -> dict[str, dict]:
    model, x = network(name)
    return {
        name: {route: [len(part) for part in folded_and_left(model, x, route)] for route in ROUTES}
    }


def marks(folder: Path) -> dict[str, dict]:
    """Points of each student of the demonstration class, graded without the box, which not every
    machine has.
    """
    subprocess.run(
        [*GRADING, "demo", "--unsafe", "--folder", folder], check=True, stdout=subprocess.DEVNULL
    )
    table = pd.read_csv(folder / "export" / "items.csv")
    return {
        name: dict(zip(rows["item"], rows["points"], strict=True))
        for name, rows in table.groupby("student")
    }
