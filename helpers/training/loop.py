"""One epoch of training: batches, loss, step, averaged weights."""

import copy
import math
import time
from itertools import chain

import torch
from torch import nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from helpers.augment import PADDING, training_batch
from helpers.dataset import Split, normalization_of, normalize
from helpers.equivalence import forked_random
from helpers.metrics import device_of, use_faster_format
from helpers.training.config import Config, TrainingError
from helpers.training.optimizers import optimizers
from helpers.training.policy import autoaugment
from helpers.training.precision import StridedDepthwiseInFloat32

ALL_IMAGES_FROM = 0.875  # of the run
NOT_FINITE = (
    "the loss is {loss} in epoch {epoch}, step {step}, and would be again with these settings:"
    " lower lr, or lower clip, and start anew with another checkpoint, since a checkpoint goes on"
    " only with the settings that it was made with"
)


class TrainingLoop:
    """A model, its averaged twin, its optimizers and the data; `run_epoch` trains for one epoch."""

    def __init__(
        self, model: nn.Module, split: Split, config: Config, teacher: nn.Module | None = None
    ):
        """Move data to the model's device, set up the optimizers; `model` is trained in place, and
        `teacher` is put into eval mode.
        """
        check_images(split.train_images, config)
        self.model = model
        self.config = config
        self.split = split
        self.device = device_of(model)
        self.normalization = normalization_of(model)
        if teacher is not None and normalization_of(teacher) != self.normalization:
            raise TrainingError(
                f"the teacher's images are normalised otherwise: {normalization_of(teacher)}"
            )
        image = normalize(split.train_images[:1].to(self.device), normalization=self.normalization)
        self.form = use_faster_format(image, model, teacher=teacher)
        self.averaged = copy.deepcopy(model).eval()
        self.averaged.input_normalization = self.normalization  # a copied graph forgets it
        self.teacher = teacher.eval() if teacher is not None else None
        self.scores_of = torch.compile(model, dynamic=False) if config.compile else model
        self.images = split.train_images.to(self.device)
        self.labels = split.train_labels.to(self.device)
        self.batch_size = min(config.batch_size, len(self.images))
        self.steps_per_epoch = len(self.images) // self.batch_size
        self.weights = torch.ones(len(self.labels), device=self.device)
        self.last_losses = torch.full_like(self.weights, math.inf)
        self.optimizers = optimizers(model, config)

    def run_epoch(self, epoch: int, progress: bool = False) -> dict[str, float]:
        """Train once on each image that `choose` picks; a last batch that is not full is left out,
        unless it is the only one. Equal seeds give equal batches.
        """
        started = time.perf_counter()
        losses = []
        size = self.image_size(epoch)
        self.model.train()
        with forked_random():
            seed = self.config.seed * 100_003 + epoch
            torch.manual_seed(seed)  # for what draws from the global generator, such as dropout
            generator = torch.Generator(self.device).manual_seed(seed)
            order = self.choose(epoch, generator)
            self.steps_per_epoch = max(1, len(order) // self.batch_size)
            for step in tqdm(
                range(self.steps_per_epoch),
                desc=f"epoch {epoch + 1}",
                leave=False,
                disable=not progress,
            ):
                indices = order[step * self.batch_size : (step + 1) * self.batch_size]
                losses.append(self.step(epoch, step, indices, size, generator))
                # On a GPU, reading a loss makes the CPU wait, so there the epoch is finished first.
                if self.device.type == "cpu" and not losses[-1].isfinite():
                    break
        losses = torch.stack(losses).tolist()
        for step, loss in enumerate(losses, 1):
            if not math.isfinite(loss):
                raise TrainingError(NOT_FINITE.format(loss=loss, epoch=epoch + 1, step=step))
        return {
            "epoch": epoch + 1,
            "loss": math.fsum(losses) / len(losses),
            "lr": self.optimizers[0].param_groups[0]["lr"],
            "image_size": size or self.images.shape[-1],
            "seconds": time.perf_counter() - started,
        }

    def choose(self, epoch: int, generator: torch.Generator) -> torch.Tensor:
        """The images of this epoch, in a new order; sets the weight of each.

        Of the easy ones, whose last loss was below the mean, a share is skipped, and the rest of
        them weigh more, so that the expected sum of gradients stays the same (InfoBatch, Qin et al.
        2024). In the last epochs none is skipped.
        """
        order = torch.randperm(len(self.labels), generator=generator, device=self.device)
        self.weights.fill_(1)
        seen = self.last_losses.isfinite()
        if self.config.skip and seen.any() and epoch < ALL_IMAGES_FROM * self.config.epochs:
            easy = self.last_losses < self.last_losses[seen].mean()
            drawn = torch.rand(len(easy), generator=generator, device=self.device)
            self.weights[easy] = 1 / (1 - self.config.skip)
            order = order[~(easy & (drawn < self.config.skip))[order]]
        return order

    def step(
        self, epoch: int, step: int, indices: torch.Tensor, size: int, generator: torch.Generator
    ) -> torch.Tensor:
        """One optimizer step; the learning rate is set anew for each."""
        done = epoch * self.steps_per_epoch + step
        share = share_of_peak(done, self.config.epochs * self.steps_per_epoch, self.config.warmup)
        for group in chain.from_iterable(optimizer.param_groups for optimizer in self.optimizers):
            group["lr"] = group["peak"] * share
        batch = training_batch(
            self.images,
            indices,
            epoch,
            generator,
            size,
            cutout=self.config.cutout,
            policy=autoaugment if self.config.autoaugment else None,
            normalization=self.normalization,
            mirror=self.split.mirror,
        )
        batch = batch.contiguous(memory_format=self.form)
        lower = uses_bfloat16(self.config.precision, self.device)
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=lower)
        with autocast, StridedDepthwiseInFloat32():
            losses = self.losses(batch, self.labels[indices])
        self.model.zero_grad(set_to_none=True)
        (losses * self.weights[indices]).mean().backward()
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self.update_average(done)
        self.last_losses[indices] = losses.detach().float()
        return losses.detach().mean()

    def losses(self, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """For each image its cross-entropy with the label, mixed with the teacher's softened
        answers.
        """
        scores = self.scores_of(batch)
        if not isinstance(scores, torch.Tensor):
            kind = type(scores).__name__
            raise TrainingError(
                f"in train mode the network gives {kind}, not scores: build it with"
                " aux_logits=False"
            )
        hard = F.cross_entropy(
            scores, labels, label_smoothing=self.config.label_smoothing, reduction="none"
        )
        if self.teacher is None:
            return hard
        with torch.no_grad():
            taught = self.teacher(batch)
        if taught.shape != scores.shape:
            raise TrainingError(
                f"the teacher gives scores of shape {tuple(taught.shape)}, the network"
                f" {tuple(scores.shape)}: both must have the data's classes"
            )
        # A CPU's autocast leaves them in bfloat16, where near answers differ by rounding alone.
        wanted = F.log_softmax(taught.float() / self.config.temperature, 1)
        softened = F.log_softmax(scores.float() / self.config.temperature, 1)
        soft = (
            F.kl_div(softened, wanted, reduction="none", log_target=True).sum(1)
            * self.config.temperature**2
        )
        return (1 - self.config.distill) * hard + self.config.distill * soft

    @torch.no_grad()
    def update_average(self, done: int) -> None:
        """Move the averaged twin a little towards the model; early on, while the weights still
        change fast, by more.
        """
        keep = min(self.config.ema, (1 + done) / (10 + done))
        averages = self.averaged.state_dict(keep_vars=True)
        current = self.model.state_dict(keep_vars=True)
        # A tensor that two layers share has two names, and moves once all the same.
        pairs = {id(average): (average, current[name]) for name, average in averages.items()}
        floats = [pair for pair in pairs.values() if pair[0].is_floating_point()]
        counters = [pair for pair in pairs.values() if not pair[0].is_floating_point()]
        torch._foreach_lerp_(*zip(*floats, strict=True), 1 - keep)
        if counters:
            torch._foreach_copy_(*zip(*counters, strict=True))
        for name, average in self.averaged.named_buffers():
            # A buffer that is in no state dict is copied; its shape may change.
            if name not in averages:
                average.data = self.model.get_buffer(name).clone()

    def image_size(self, epoch: int) -> int | None:
        """The side of the images in this epoch, None for that of the data. The run is cut into
        equal parts, one for each size.
        """
        sizes = self.config.image_sizes or (None,)
        return sizes[epoch * len(sizes) // self.config.epochs]


def check_images(images: torch.Tensor, config: Config) -> None:
    """Refuse to train without images, or on images whose size does not suit the settings."""
    height, width = images.shape[2:]
    size = f"{width} x {height} pixels"
    if not len(images):
        raise TrainingError(
            "no image is left to train on: one is set aside for validation, so give two or more"
        )
    if config.image_sizes and height != width:
        raise TrainingError(f"image_sizes are sides of squares, and the images have {size}")
    if min(height, width) <= PADDING:
        raise TrainingError(f"images of {size} are too small to be shifted by {PADDING}")


def share_of_peak(step: int, steps: int, warmup: float) -> float:
    """How much of its peak a learning rate has at a step: it rises in a line, then falls to zero
    along a cosine.
    """
    rising = warmup * steps
    if step < rising:
        return (step + 1) / (rising + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def uses_bfloat16(precision: str, device: torch.device) -> bool:
    """Whether to compute in bfloat16: "auto" asks for hardware that multiplies in it, since
    emulation is slower.
    """
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        with torch.cuda.device(device):  # of several GPUs it asks the current one
            return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )
