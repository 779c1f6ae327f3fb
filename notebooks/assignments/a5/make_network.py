"""Make the network that goes with the solutions, from the shipped dense `tiny`.

Secret, as the file is.

    python -m course prune data/checkpoints/tiny.safetensors --ratio 0.3 --scope all \
        --output build/small.safetensors
    python -m course finetune build/small.safetensors --teacher data/checkpoints/tiny.safetensors \
        --epochs 8 --muon 0.01 --lr 0.1 --batch-size 256 --image-sizes 24 28 32 \
        --output build/tuned.safetensors
    python notebooks/assignments/a5/make_network.py build/tuned.safetensors --bits 3 --epochs 4

The last line trains with the rounding of the file, and prints what the file earns on disturbed
validation images: no test image is looked at. It also prints the rule with which this network just
earns all points: for driver.py, and for the sentence in the notebook.
"""

import argparse
import copy
import json
import math
from pathlib import Path

import nbformat
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import parametrize

from course.grading import answers, course, intake
from course.grading.course import FOLDER
from helpers import data, models, passes, training

HERE = FOLDER / "a5"
IMAGES = 5000
MARGIN = 0.03  # other images, disturbed in other ways, may give so much less
APART = 0.10  # accuracy between the first points and the last
SMALLER = (
    1.8  # bytes for the first points, against those for the last: fewer than `tiny` has with 4 bits
)


class Rounded(nn.Module):
    """A weight as the file holds it; rounding has the slope 1, and the scale follows the largest
    weight.
    """

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits, self.most = bits, 2 ** (bits - 1) - 1

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Round to the levels of each output channel."""
        scale = weight.detach().flatten(1).abs().amax(1).clamp(min=1e-6) / self.most
        scale = scale.half().float().reshape(-1, *[1] * (weight.ndim - 1))
        steps = weight / scale
        return (steps + (steps.round() - steps).detach()) * scale


def width_of(weight: torch.Tensor, bits: int) -> int:
    """Layers with few weights cost little and suffer most: the first and the last have 6 bits at
    least.
    """
    return max(bits, 6) if weight.numel() < 1000 else bits


def train_rounded(
    folded: nn.Module, cifar: data.Dataset, bits: int, config: training.Config
) -> nn.Module:
    """Train a folded network with the rounding of the file.

    Its weights are then those that are rounded.
    """
    network = copy.deepcopy(folded)
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", Rounded(width_of(layer.weight, bits)))
    training.finetune(network, cifar, teacher=models.pretrained("tiny"), config=config)
    for layer in layers:
        parametrize.remove_parametrizations(layer, "weight")
    return network.eval()


def pack(layers: list[dict], squeeze_weight, bits: int) -> dict[str, torch.Tensor]:
    """The tensors of the file: a plan as JSON, and all weights, scales and biases one after the
    other.
    """
    plan, weights, scales, biases = [], [], [], []
    for layer in layers:
        entry = {name: value for name, value in layer.items() if name not in ("weight", "bias")}
        if "weight" in layer:
            width = width_of(layer["weight"], bits)
            packed, scale = squeeze_weight(layer["weight"], width)
            entry |= {"shape": list(layer["weight"].shape), "bits": width}
            weights.append(packed)
            scales.append(scale)
            biases.append(layer["bias"].half())
        plan.append(entry)
    text = json.dumps(plan, separators=(",", ":")).encode()
    tensors = {
        "weights": torch.cat(weights),
        "scales": torch.cat(scales),
        "biases": torch.cat(biases),
    }
    return tensors | {"plan": torch.frombuffer(bytearray(text), dtype=torch.uint8)}


def targets(accuracy: float, submitted_bytes: int) -> dict[str, float]:
    """The rule by which a network of this accuracy and size just earns all points.

    Example:
        >>> targets(0.845, 20_400)
        {'TARGET_ACCURACY': 0.71, 'FULL_ACCURACY': 0.81, 'TARGET_BYTES': 38000, 'FULL_BYTES': 21000}
    """
    full, least = (
        math.floor(100 * (accuracy - MARGIN)) / 100,
        math.ceil(submitted_bytes / 1000) * 1000,
    )
    return {
        "TARGET_ACCURACY": round(full - APART, 2),
        "FULL_ACCURACY": full,
        "TARGET_BYTES": int(round(SMALLER * least, -3)),
        "FULL_BYTES": least,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="a network that was pruned and fine-tuned")
    parser.add_argument(
        "--bits", type=int, default=3, help="of most weights (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=int, default=4, help="of training with rounding (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, default=HERE / "network.safetensors")
    arguments = parser.parse_args()
    exercise, cifar = course.load("a5"), data.load_cifar10()
    student = answers.execute(answers.solution_cells(exercise))
    driver = exercise.load_driver()
    folded, _ = passes.optimize(models.load(arguments.checkpoint).eval(), torch.zeros(1, 3, 32, 32))
    config = training.Config(
        epochs=arguments.epochs,
        batch_size=256,
        lr=0.02,
        weight_decay=0.0,
        ema=0.99,
        distill=0.7,
        label_smoothing=0.0,
        image_sizes=(28, 32),
    )
    rounded = train_rounded(folded, cifar, arguments.bits, config)
    tensors = pack(driver.layers_of(rounded), student["squeeze_weight"], arguments.bits)
    safetensors.torch.save_file(tensors, arguments.output)
    split = cifar.split()
    disturbed = driver.disturb(split.validation_images[:IMAGES], torch.Generator().manual_seed(0))
    observed = driver.predict(
        student["restore"](safetensors.torch.load_file(arguments.output)), disturbed
    )
    files = {driver.FILE: arguments.output.read_bytes()}
    size = intake.Submission(
        nbformat.read(exercise.notebook, as_version=4), files=files
    ).submitted_bytes
    _, words, measured = driver.score_network(split.validation_labels[:IMAGES], observed, size)
    print(words)
    rule = targets(measured["accuracy"], size).items()
    print("A rule that it just fulfils:", ", ".join(f"{name} {value}" for name, value in rule))


if __name__ == "__main__":
    main()
