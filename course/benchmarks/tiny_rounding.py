"""What do 3 bits cost `tiny`, rounded after training or in training?

Lesson 09b's experiment, with three seeds.

    python -m course.benchmarks.tiny_rounding

The seed draws the images that calibrate, and the order of the training. Weights have few bits;
activations have 8, and are float in the lesson's own training. Accuracies are of the 5,000
validation images. Rows that are there are kept; one training takes about a minute on a quiet core.
"""

from copy import deepcopy
from functools import partial

import nbformat
from torch import nn
from torch.nn.utils import parametrize

from course.benchmarks.common import described
from course.benchmarks.quantization import calibration
from course.benchmarks.tiny_recovery import SEEDS, Trials, solution
from course.publish.runner import lessons
from helpers import quantization

BITS = 3
RATE, SHARE, PASSES = 0.02, 0.7, 1
CORRECTED, LEARNED = {"bias_correction": "empirical"}, {"rounding": "learned"}
AFTER_TRAINING = {"rounded to the nearest": {}, "nearest, biases corrected": CORRECTED}
AFTER_TRAINING |= {"AdaRound": LEARNED, "AdaRound, biases corrected": CORRECTED | LEARNED}


def quantized(trials: Trials, seed: int, choices: dict) -> quantization.QuantizedModel:
    """`tiny`, quantized without training."""
    recipe = quantization.Recipe(weight_bits=BITS, observer="minmax", **choices)
    model = quantization.quantize(trials.tiny, calibration(trials.cifar, seed), recipe)
    model.mode = "kernel"
    return model


def with_rounded_weights(network: nn.Module, bits: int) -> nn.Module:
    """What two cells of the lesson make, with the solution of its exercise."""
    names = {
        "fake_quantize": solution("fake_quantize"),
        "nn": nn,
        "parametrize": parametrize,
        "deepcopy": deepcopy,
    }
    for cell in nbformat.read(lessons(["09b"])[0], as_version=4).cells:
        if cell.id in ("qat-rounded", "qat-own"):
            exec(cell.source, names)
    return names["with_rounded_weights"](network, bits)


def main() -> None:
    """Make the rows that are missing."""
    described(__doc__).parse_args()
    trials = Trials("tiny_rounding", rate=RATE, share=SHARE, passes=PASSES)
    trials.note(lambda: trials.tiny, 0, way="float32", bits=32)
    student = with_rounded_weights(trials.tiny, BITS)
    for seed in SEEDS:
        for way, choices in AFTER_TRAINING.items():
            trials.note(partial(quantized, trials, seed, choices), seed, way=way, bits=BITS)
        trials.note(
            partial(trials.train, student, SHARE, seed, PASSES, RATE), seed, way="QAT", bits=BITS
        )


if __name__ == "__main__":
    main()
