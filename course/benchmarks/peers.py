"""Small networks of others that take about as long as `fast`, trained as it was.

    python -m course.benchmarks.peers            train them, for hours
    python -m course.benchmarks.peers --speed    time them beside `fast`, for minutes

Each starts from random weights and learns from the same teacher as `fast`, with its augmentation
and for as many epochs; only the rates are those for random weights. `fast` itself was cut from a
network that had been trained for long. The test images are read once for each network. Rows go to
data/results/peers.csv; a row that is there is not computed again, and a training that was stopped
goes on. Milliseconds go to data/results/peers_speed.csv.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torchvision
from torch import nn

from course.benchmarks import speed
from course.benchmarks.common import DENSE, KnownRows, described
from course.reference import jobs, stages
from course.reference.measuring import float_structure
from course.reference.table import FOLDER
from helpers import data, metrics, models, training

RATES = {"lr": 0.2, "muon": 0.02}  # of random weights
WORK = data.REPOSITORY / "build/peers"
HANDOVERS = data.REPOSITORY / "data/training"
ENGINES = ["ONNX Runtime float32", "ONNX Runtime int8"]


def mobilenet_v3_small() -> nn.Module:
    """With one stride fewer than for images of 224 pixels."""
    model = torchvision.models.mobilenet_v3_small(num_classes=10)
    model.features[0][0].stride = (1, 1)
    return model


def shufflenet_v2() -> nn.Module:
    """Of half the usual width, with two strides fewer."""
    model = torchvision.models.shufflenet_v2_x0_5(num_classes=10)
    model.conv1[0].stride = (1, 1)
    model.maxpool = nn.Identity()
    return model


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MobileNetV3-small": mobilenet_v3_small,
    "ShuffleNetV2 x0.5": shufflenet_v2,
}


def trained(name: str, cifar: data.Dataset) -> nn.Module:
    """A network of others after the training that `fast` had, but from random weights."""
    fast = jobs.read("reference").jobs["fast"]
    job = replace(fast, settings=fast.settings | RATES)
    files = stages.Files(WORK / f"{name}.state", HANDOVERS / f"{name}.safetensors", Path())
    torch.manual_seed(0)
    return stages.trained(NETWORKS[name](), job, models.load(DENSE), cifar, files)


def row(name: str, cifar: data.Dataset) -> dict:
    """Train a network of others; say how large it is and how often it is right."""
    model, split = trained(name, cifar).eval(), cifar.split()
    chosen = training.evaluate(model, split.validation_images, split.validation_labels)
    return {
        "network": name,
        "parameters": metrics.count_parameters(model),
        "macs": metrics.count_macs(model, torch.zeros(1, 3, 32, 32)),
        "validation": chosen.accuracy,
        "test": training.evaluate(model, cifar.test_images, cifar.test_labels).accuracy,
    }


def time_them() -> None:
    """All networks and `fast`, in the same rounds."""
    torch.set_num_threads(1)  # workers are forked from here
    networks = {"fast": float_structure(speed.file_of("fast"))}
    networks |= {name: build().eval() for name, build in NETWORKS.items()}
    table = speed.measured(networks, ENGINES)
    speed.save(table, FOLDER / "peers_speed.csv")
    print(table.to_string())


def main() -> None:
    parser = described(__doc__)
    parser.add_argument("--speed", action="store_true", help="time the networks, untrained")
    if parser.parse_args().speed:
        time_them()
        return
    cifar = data.load_cifar10("local")
    known = KnownRows("peers", DENSE)
    for name in NETWORKS:
        if known.find(network=name) is None:
            known.add(row(name, cifar), seed=0)


if __name__ == "__main__":
    main()
