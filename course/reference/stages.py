"""How the network of each stage is made from those before it."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from course.commands.quantize import HEADER_BYTES, SCAN_IMAGES
from course.commands.train import device
from course.reference import settings as rules
from course.reference.jobs import Job
from course.reference.settings import AMOUNTS, PRUNING, SweepError
from helpers import metrics, models, pruning, quantization, training
from helpers.data import Dataset, normalize
from helpers.passes import optimize
from helpers.quantization import qat

CALIBRATION_IMAGES = 1024


class Files(NamedTuple):
    """What a job leaves behind while it is under way, so that it goes on after a kill, or on
    another machine.
    """

    state: Path
    handover: Path
    cut: Path


def make(
    job: Job, source: nn.Module | None, teacher: nn.Module | None, cifar: Dataset, files: Files
) -> nn.Module:
    """The network of a job, in eval mode, on the CPU, from a source, which may be changed.

    Of the data only the training images are looked at, a tenth of them for validation.
    """
    torch.manual_seed(job.settings.get("seed", 0))
    return MAKERS[job.stage](job, source, teacher, cifar, files).eval()


def dense(
    job: Job, source: None, teacher: nn.Module | None, cifar: Dataset, files: Files
) -> nn.Module:
    """Trained from random weights."""
    network = models.tiny() if job.settings.get("network") == "tiny" else models.mobilenet_v2()
    return trained(network, job, teacher, cifar, files)


def pruned(job: Job, source: nn.Module, teacher: None, cifar: Dataset, files: Files) -> nn.Module:
    """Without some channels or blocks; BatchNorm is measured again unless told not to, no weight is
    trained.
    """
    settings = {"reestimate": True} | {
        name: value for name, value in job.settings.items() if name in PRUNING
    }
    reestimate, blocks, split = (
        settings.pop("reestimate"),
        settings.pop("without", []),
        cifar.split(),
    )
    for name in blocks:
        if not getattr(dict(source.named_modules()).get(name), "use_res_connect", False):
            raise SweepError(f"{job.name}: without: {name!r} is not a residual block")
    if (
        blocks
        and not settings.keys() & {*AMOUNTS}
        and not isinstance(settings.get("allocation"), dict)
    ):
        settings["allocation"] = {}  # all channels stay
    images = normalize(calibration_images(cifar)).split(128)
    if blocks and (target := settings.keys() & {"target_params", "target_macs"}):
        source, blocks = with_target_of_whole(source, blocks, settings, *target), []
    batches = list(zip(images, split.train_labels[:CALIBRATION_IMAGES].split(128), strict=True))
    small = models.bypass(pruning.prune(source, images[0][:1], batches=batches, **settings), blocks)
    return pruning.reestimate_batchnorm(small, images) if reestimate else small


def with_target_of_whole(
    source: nn.Module, blocks: list[str], settings: dict, target: str
) -> nn.Module:
    """The network without its blocks, of which as much stays as the job says of the whole one."""
    if settings[target] <= 1:
        cost = metrics.profile(source, torch.zeros(1, 3, 32, 32))
        whole = {"target_params": cost.params, "target_macs": cost.macs}[target]
        settings[target] = round(settings[target] * whole)
    return models.bypass(source, blocks)


def fine_tuned(
    job: Job, source: nn.Module, teacher: nn.Module | None, cifar: Dataset, files: Files
) -> nn.Module:
    """Trained on.

    What is cut first is kept in a file: another processor could choose other channels.
    """
    if job.cuts:
        if not files.cut.exists():
            models.save(pruned(job, source, None, cifar, files), files.cut)
        source = models.load(files.cut)
    return alive(trained(source, job, teacher, cifar, files), job.settings.get("round_to", 1))


def alive(network: nn.Module, multiple: int) -> nn.Module:
    """Without the channels that training has switched off, unless a width would no longer be such a
    multiple.
    """
    example = torch.zeros(1, 3, 32, 32)
    small, gone = pruning.remove_dead_channels(network.eval(), example)
    fits = all(
        group.size % multiple == 0
        for group in pruning.channel_groups(small, example)
        if group.name in gone
    )
    if gone:
        print(f"dead channels {'removed' if fits else 'stay, for the widths'}: {gone}", flush=True)
    return small if fits else network


def int8(job: Job, source: nn.Module, teacher: None, cifar: Dataset, files: Files) -> nn.Module:
    """Rounded after training, with calibration only."""
    return quantization.quantize(
        source, calibration_images(cifar), chosen_recipe(job, source, cifar)
    )


def quantization_aware(
    job: Job, source: nn.Module, teacher: nn.Module, cifar: Dataset, files: Files
) -> nn.Module:
    """Trained on with the rounding in place; it is its own teacher unless the job names one."""
    network = qat.prepare(source, calibration_images(cifar), chosen_recipe(job, source, cifar))
    teacher = (teacher or source) if rules.config(job.settings).distill > 0 else None
    return trained(network, job, teacher, cifar, files).convert()


MAKERS = {
    "dense": dense,
    "pruned": pruned,
    "fine-tuned": fine_tuned,
    "int8": int8,
    "qat": quantization_aware,
}


def trained(
    model: nn.Module, job: Job, teacher: nn.Module | None, cifar: Dataset, files: Files
) -> nn.Module:
    """Train on the GPU if there is one; the log of the epochs lies beside the state."""
    if teacher is not None:
        # Its answers take half of the time then, a sixth of a step. On a GPU, too, so that a
        # hand-over knows the teacher again.
        teacher, _ = optimize(teacher.eval(), torch.randn(2, 3, 32, 32), level="inference")
        teacher = teacher.to(device())
    config = rules.config(job.settings)
    training.train(model.to(device()), cifar, config, files.state, teacher, handover=files.handover)
    return model.cpu()


def chosen_recipe(job: Job, source: nn.Module, cifar: Dataset) -> quantization.Recipe:
    """The job's recipe, with bits chosen layer by layer when the job sets the size of the file."""
    recipe, budget = rules.recipe(job.settings), job.settings.get("file_bytes")
    if budget is None:
        return recipe
    images = calibration_images(cifar)[
        : 16 if cifar.is_sample else SCAN_IMAGES
    ]  # the sample is there to try out
    return quantization.mixed_recipe(source, images, budget - HEADER_BYTES, recipe)


def calibration_images(cifar: Dataset) -> torch.Tensor:
    """Training images that set ranges and statistics."""
    return cifar.split().train_images[:CALIBRATION_IMAGES]
