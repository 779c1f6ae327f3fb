"""What brings `tiny` back after half of its channels are gone?

Lesson 07's experiment, with three seeds.

    python -m course.benchmarks.tiny_recovery

The training loop is the solution of the lesson's own exercise. Accuracies are of the 5,000
validation images. Rows that are there are kept; one training takes about a minute on a quiet core.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from course.benchmarks.common import KnownRows, described
from course.lessons.batches import TrainingBatches
from course.publish.runner import NOTEBOOKS
from helpers import checks, data, models, pruning, training
from helpers.models import CHECKPOINTS

RATIO, RATE, PASSES = 0.5, 0.05, 2
SEEDS = (0, 1, 2)
SHARES = {"labels alone": 0.0, "with a teacher": 0.7}


def solution(name: str) -> Any:
    """What an exercise asks for, as its solution writes it."""
    checks.use(NOTEBOOKS / "exercises" / "lesson_07.py")
    return checks.lessons().define(name, {})


class Trials:
    """What each recovery makes of `tiny`, as a table.

    The dense one is the teacher, and the loop is that of lesson 07.
    """

    def __init__(self, table: str, **settings: object) -> None:
        torch.set_num_threads(1)
        self.cifar, self.tiny = data.load_cifar10("local"), models.pretrained("tiny")
        self.split = self.cifar.split()
        self.rows = KnownRows(table, CHECKPOINTS / "tiny.safetensors", **settings)

    def note(self, make: Callable[[], nn.Module], seed: int, **row: object) -> None:
        """Make a network and keep its accuracy, unless the table has it."""
        if self.rows.find(**row, seed=seed) is None:
            model = make()
            found = training.evaluate(
                model, self.split.validation_images, self.split.validation_labels
            )
            low, high = found.interval
            interval = {"accuracy": found.accuracy, "low": low, "high": high, "images": found.n}
            self.rows.add(row | {"seed": seed} | interval, seed)

    def train(
        self, student: nn.Module, share: float, seed: int, passes: int, rate: float
    ) -> nn.Module:
        """A trained copy of the student."""
        batches = TrainingBatches(
            self.split.train_images, self.split.train_labels, passes, seed=seed
        )
        return solution("train_with_teacher")(
            copy.deepcopy(student), self.tiny, batches, rate, share
        )


def in_steps(trials: Trials, seed: int) -> nn.Module:
    """The same cut and the same number of passes, in two rounds of cutting and training."""
    student, example = trials.tiny, torch.zeros(1, 3, 32, 32)
    for number in (1, 2):
        share = 1 - (1 - RATIO * number / 2) / (1 - RATIO * (number - 1) / 2)
        student = pruning.prune(student, example, ratio=share)
        student = trials.train(
            student, SHARES["with a teacher"], seed + 10 * number, PASSES // 2, RATE
        )
    return student


def main() -> None:
    """Make the rows that are missing."""
    described(__doc__).parse_args()
    trials = Trials("tiny_recovery", ratio=RATIO, rate=RATE, passes=PASSES)
    cut = pruning.prune(trials.tiny, torch.zeros(1, 3, 32, 32), ratio=RATIO)
    statistics = [data.normalize(part) for part in trials.split.train_images[:512].split(128)]
    measured = pruning.reestimate_batchnorm(copy.deepcopy(cut), statistics)
    for way, model in {"dense": trials.tiny, "cut": cut, "measured again": measured}.items():
        trials.note(partial(copy.deepcopy, model), 0, way=way)
    for seed in SEEDS:
        for way, share in SHARES.items():
            trials.note(partial(trials.train, measured, share, seed, PASSES, RATE), seed, way=way)
        trials.note(partial(in_steps, trials, seed), seed, way="with a teacher, in two steps")


if __name__ == "__main__":
    main()
