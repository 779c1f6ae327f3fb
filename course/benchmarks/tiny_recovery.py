"""What brings `tiny` back after half of its channels are gone? Lesson 07's experiment, with three seeds.

    python -m course.benchmarks.tiny_recovery

The training loop is the solution of the lesson's own exercise. Accuracies are of the 5,000 validation images. Rows that
are there are kept; one training takes about a minute on a quiet core.
"""

import copy

import torch
from torch import nn

from course.benchmarks.common import KnownRows
from course.lessons.batches import TrainingBatches
from course.publish.runner import NOTEBOOKS
from helpers import checks, data, models, pruning, training
from helpers.checks.exercises import answers
from helpers.models import CHECKPOINTS

RATIO, RATE, PASSES = 0.5, 0.05, 2
SEEDS = (0, 1, 2)
SHARES = {"labels alone": 0.0, "with a teacher": 0.7}


def recover(
    split: data.Split, student: nn.Module, teacher: nn.Module, share: float, seed: int, passes: int
) -> nn.Module:
    """Train a copy of the student with the lesson's loop."""
    checks.use(NOTEBOOKS / "exercises" / "lesson_07.py")
    loop = answers().reference("train_with_teacher")
    batches = TrainingBatches(split.train_images, split.train_labels, passes, seed=seed)
    return loop(copy.deepcopy(student), teacher, batches, RATE, share)


def in_steps(split: data.Split, tiny: nn.Module, seed: int) -> nn.Module:
    """The same cut and the same number of passes, in two rounds of cutting and training."""
    student, example = tiny, torch.zeros(1, 3, 32, 32)
    for number in (1, 2):
        share = 1 - (1 - RATIO * number / 2) / (1 - RATIO * (number - 1) / 2)
        student = pruning.prune(student, example, ratio=share)
        student = recover(split, student, tiny, SHARES["with a teacher"], seed + 10 * number, PASSES // 2)
    return student


def main() -> None:
    """Make the rows that are missing."""
    torch.set_num_threads(1)
    split, tiny = data.load_cifar10("local").split(), models.pretrained("tiny")
    rows = KnownRows("tiny_recovery", CHECKPOINTS / "tiny.safetensors", ratio=RATIO, rate=RATE, passes=PASSES)

    def note(way: str, seed: int, make) -> None:
        if rows.find(way=way, seed=seed) is None:
            model = make()
            found = training.evaluate(model, split.validation_images, split.validation_labels)
            low, high = found.interval
            size = sum(p.numel() for p in model.parameters())
            interval = {"accuracy": found.accuracy, "low": low, "high": high, "images": found.n}
            rows.add({"way": way, "seed": seed, "params": size} | interval, seed)

    cut = pruning.prune(tiny, torch.zeros(1, 3, 32, 32), ratio=RATIO)
    statistics = [data.normalize(part) for part in split.train_images[:512].split(128)]
    measured = pruning.reestimate_batchnorm(copy.deepcopy(cut), statistics)
    note("dense", 0, lambda: tiny)
    note("cut", 0, lambda: cut)
    note("measured again", 0, lambda: measured)
    for seed in SEEDS:
        for way, share in SHARES.items():
            note(way, seed, lambda share=share, seed=seed: recover(split, measured, tiny, share, seed, PASSES))
        note("with a teacher, in two steps", seed, lambda seed=seed: in_steps(split, tiny, seed))


if __name__ == "__main__":
    main()
