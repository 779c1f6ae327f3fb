"""Training, fine-tuning and evaluation: resumable, seeded, on CPU or GPU."""

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch import nn
from tqdm.auto import tqdm

from helpers.allocator import kept_memory
from helpers.dataset import Dataset, normalization_of, normalize, set_default_normalization
from helpers.files import remove
from helpers.metrics import check_scores, device_of, evaluation_mode
from helpers.training.config import FINETUNING, Config, TrainingError
from helpers.training.loop import TrainingLoop
from helpers.training.state import TrainingState

AT_ONCE = 250  # images
STEPS_PER_EPOCH = 20  # at least, roughly: few images in large batches make too few steps to learn


class Evaluation(NamedTuple):
    """Accuracy as a fraction, the number of images, the 95 % interval (Wilson)."""

    accuracy: float
    n: int
    interval: tuple[float, float]


def train(
    model: nn.Module,
    dataset: Dataset,
    config: Config | None = None,
    checkpoint: str | Path | None = None,
    teacher: nn.Module | None = None,
    progress: bool = True,
    handover: str | Path | None = None,
) -> pd.DataFrame:
    """Train `model` in place; it ends with the averaged weights, in eval mode.

    If it was stopped, the same call (checkpoint path, settings, images, teacher, weights) goes on
    from the last finished epoch, and gives what an undisturbed run would have given; on a GPU,
    within noise.

    Args:
        model: the network, on the device on which it is to be trained.
        dataset: the data; a tenth of its training images is kept for validation.
        config: the settings; None takes the defaults of `Config`.
        checkpoint: where to keep the resumable state; None keeps none.
        teacher: a network to learn from (with ``config.distill`` > 0); its modules keep their train
            or eval mode.
        handover: where to keep a small file, with a CSV of the epochs beside it, from which another
            machine goes on with the same run, within noise of an undisturbed one; where there
            is a checkpoint, too, the file is removed at the end, and the CSV stays.

    Returns:
        One row per epoch: loss, validation accuracy, learning rate, image size, seconds. No test
            image is looked at.
    """
    config = config or Config()
    if (config.distill > 0) != (teacher is not None):
        raise TrainingError(
            "distillation needs both a teacher and distill > 0; only one of them was given"
        )
    if teacher is model:
        raise TrainingError(
            "the teacher is the network itself; give a copy: teacher=copy.deepcopy(model)"
        )
    set_default_normalization(dataset, model, teacher)
    check_scores(model, dataset)
    if not any(p.requires_grad for p in model.parameters()):
        raise TrainingError(
            "no parameter of the network can be trained: call requires_grad_() on what shall be; a"
            " quantized network is trained before it is quantized, by qat.prepare"
        )
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise TrainingError(f"{name} is no tensor and has no average: put it into a buffer")
    with evaluation_mode(*filter(None, [teacher])):
        loop = TrainingLoop(model, dataset.split(), config, teacher)
        state = TrainingState(loop, checkpoint, handover, model.state_dict().values())
        validation = loop.split.validation_images, loop.split.validation_labels
        bar = tqdm(
            total=config.epochs,
            initial=state.resume(),
            desc="training",
            unit="epoch",
            disable=not progress,
        )
        with kept_memory(), bar:
            while len(state.history) < config.epochs:
                row = loop.run_epoch(len(state.history), progress)
                row["validation_accuracy"] = evaluate(loop.averaged, *validation).accuracy
                state.finish_epoch(row)
                bar.update()
                bar.set_postfix(
                    loss=f"{row['loss']:.3f}", validation=f"{row['validation_accuracy']:.2%}"
                )
    model.eval().load_state_dict(loop.averaged.state_dict())
    # Laid out as in a loaded network, since the layout matters when it is timed.
    model.to(memory_format=torch.contiguous_format)
    if state.handover is not None and state.checkpoint is not None and state.checkpoint.exists():
        remove(state.handover)
    return pd.DataFrame(state.history)


def batch_size_for(dataset: Dataset) -> int:
    """The default, or less for few images."""
    return min(Config().batch_size, max(8, len(dataset.train_images) // STEPS_PER_EPOCH))


def finetune(
    model: nn.Module,
    dataset: Dataset,
    teacher: nn.Module | None = None,
    config: Config | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Train on from good weights: `train` with a short schedule, a low rate, and a teacher's
    answers when there is one.

    The network has usually lost some accuracy (pruned, quantized), and the teacher is what it was
    before.
    """
    if config is None:
        config = FINETUNING if teacher is not None else replace(FINETUNING, distill=0.0)
    return train(model, dataset, config, checkpoint, teacher, progress)


@torch.no_grad()
def evaluate(
    model: nn.Module, images: torch.Tensor, labels: torch.Tensor, progress: bool = False
) -> Evaluation:
    """Measure accuracy on uint8 images.

    Args:
        model: anything that maps normalised float32 images to one score per class.
        images: uint8 (N, C, H, W).
        labels: (N,), counted from 0.
    """
    fits = labels.shape == (len(images),) and not labels.is_floating_point()
    if len(images) == 0 or not fits:
        raise TrainingError(
            f"evaluate: {len(images)} images and labels of {labels.dtype} {tuple(labels.shape)};"
            " there must be a whole number for each image, and at least one"
        )
    first, last = (int(label) for label in labels.aminmax())
    device = device_of(model)
    memory_format = torch.channels_last
    correct = 0
    finite = True
    with evaluation_mode(model), kept_memory():
        for start in tqdm(
            range(0, len(images), AT_ONCE), desc="evaluating", leave=False, disable=not progress
        ):
            batch = images[start : start + AT_ONCE].to(device)
            batch = batch.contiguous(memory_format=memory_format)
            batch = normalize(batch, normalization=normalization_of(model))
            truth = labels[start : start + AT_ONCE].to(device)
            try:
                scores = model(batch)
            except RuntimeError:  # a `view` of a map needs contiguous memory
                memory_format = torch.contiguous_format
                scores = model(batch.contiguous())
            if scores.dim() != 2 or not 0 <= first <= last < scores.shape[1]:
                raise TrainingError(
                    f"evaluate: scores of shape {tuple(scores.shape)} for labels from {first} to"
                    f" {last}; there must be one score for each class, and classes count from 0"
                )
            finite = finite & scores.amax(1).isfinite().all()  # a class may be ruled out by -inf
            correct += (scores.argmax(1) == truth).sum()
    if not finite:
        raise TrainingError(
            "evaluate: the network answers NaN or infinity; check its weights, or train at lower lr"
        )
    accuracy = int(correct) / len(images)
    return Evaluation(accuracy, len(images), wilson_interval(accuracy, len(images)))


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a proportion; unlike share ± error it never leaves [0, 1]."""
    z = 1.96  # standard deviations
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)
