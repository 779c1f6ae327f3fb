"""Make the network that goes with the solutions, from a checkpoint of the course. Secret, as the file is.

    python -m helpers prune data/checkpoints/baseline.safetensors build/small.safetensors --ratio 0.5 --scope all
    python -m helpers finetune build/small.safetensors --teacher data/checkpoints/baseline.safetensors \
        --output build/tuned.safetensors
    python notebooks/assignments/a5/make_network.py build/tuned.safetensors

Prints what the file earns on disturbed validation images: no test image is looked at.
"""

import argparse
import json
from pathlib import Path

import safetensors.torch
import torch

from helpers import data, models, passes
from helpers.grading import answers, course
from helpers.grading.course import FOLDER

HERE = FOLDER / "a5"


def pack(layers: list[dict], squeeze_weight, bits: int, first_bits: int) -> dict[str, torch.Tensor]:
    """The tensors of the file: a plan as JSON, and all weights, scales and biases one after the other."""
    plan, weights, scales, biases = [], [], [], []
    for layer in layers:
        entry = {name: value for name, value in layer.items() if name not in ("weight", "bias")}
        if "weight" in layer:
            # Layers with few weights cost little and suffer most: depthwise ones and the first.
            width = first_bits if layer["weight"][0].numel() < 32 else bits
            packed, scale = squeeze_weight(layer["weight"], width)
            entry |= {"shape": list(layer["weight"].shape), "bits": width}
            weights.append(packed)
            scales.append(scale)
            biases.append(layer["bias"].half())
        plan.append(entry)
    text = json.dumps(plan, separators=(",", ":")).encode()
    tensors = {"weights": torch.cat(weights), "scales": torch.cat(scales), "biases": torch.cat(biases)}
    return tensors | {"plan": torch.frombuffer(bytearray(text), dtype=torch.uint8)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="a network that was pruned and fine-tuned")
    parser.add_argument("--bits", type=int, default=5, help="of most weights (default: %(default)s)")
    parser.add_argument("--first-bits", type=int, default=8, help="of layers with few weights (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=HERE / "network.safetensors")
    arguments = parser.parse_args()
    exercise = course.load("a5")
    student = answers.execute(answers.solution_cells(exercise))
    driver = course.load_driver(exercise)
    folded, _ = passes.optimize(models.load(arguments.checkpoint).eval(), torch.zeros(1, 3, 32, 32))
    tensors = pack(driver.layers_of(folded), student["squeeze_weight"], arguments.bits, arguments.first_bits)
    safetensors.torch.save_file(tensors, arguments.output)
    split = data.load_cifar10().split()
    images, labels = split.validation_images[:1000], split.validation_labels[:1000]
    disturbed = driver.disturb(images, torch.Generator().manual_seed(0))
    observed = driver.predict(student["restore"](safetensors.torch.load_file(arguments.output)), disturbed)
    print(driver.score_network(labels, observed, arguments.output.stat().st_size)[1])


if __name__ == "__main__":
    main()
