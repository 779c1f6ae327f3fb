"""Augmentation of whole batches, on the device where the model lives: no Python loop over images.

Crops and flips work on uint8 batches, where memory traffic is a quarter of float32's.
"""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from helpers.dataset import CIFAR10, Normalization, normalize

PADDING = 4  # how far a crop may move, in pixels
Policy = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def training_batch(
    images: torch.Tensor,
    indices: torch.Tensor,
    epoch: int,
    generator: torch.Generator,
    size: int | None = None,
    cutout: int = 0,
    policy: Policy | None = None,
    normalization: Normalization = CIFAR10,
    mirror: bool = True,
) -> torch.Tensor:
    """Pick images and augment them: crop, flip, policy, normalise, cutout, resize.

    Args:
        images: the whole training set, uint8 (N, C, H, W).
        indices: which images make the batch, (B,).
        epoch: counts from 0; every image is flipped in every other epoch.
        generator: the source of all randomness here, on the images' device.
        size: side of the result, since smaller images train faster; None leaves it as it is.
        cutout: side of the square that is blanked; 0 for none.
        policy: what else happens to the uint8 batch, such as `training.policy.autoaugment`.
        normalization: what the network takes.
        mirror: whether to flip at all.

    Returns:
        float32 (B, C, size, size), channels last in memory.
    """
    batch = random_crop(images[indices], PADDING, generator)
    if mirror:
        batch = alternating_flip(batch, indices, epoch)
    if policy is not None:
        batch = policy(batch, generator)
    batch = normalize(batch, normalization=normalization)
    if cutout:
        batch = cut_out(batch, cutout, generator)
    if size is not None and (size, size) != images.shape[2:]:
        batch = F.interpolate(
            batch, size=(size, size), mode="bilinear", antialias=True, align_corners=False
        )
    return batch.contiguous(memory_format=torch.channels_last)


def random_crop(batch: torch.Tensor, padding: int, generator: torch.Generator) -> torch.Tensor:
    """Move each image by up to `padding` pixels each way; a reflection fills the border."""
    count, _, height, width = batch.shape
    padded = F.pad(batch, [padding] * 4, mode="reflect")
    shift = torch.randint(
        0, 2 * padding + 1, (2, count, 1), generator=generator, device=batch.device
    )
    rows = shift[0] + torch.arange(height, device=batch.device)  # (B, H)
    columns = shift[1] + torch.arange(width, device=batch.device)  # (B, W)
    image = torch.arange(count, device=batch.device)[:, None, None]
    # Indexing around the channel dimension puts it last: (B, H, W, C), which is channels_last
    # without a copy.
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def alternating_flip(batch: torch.Tensor, indices: torch.Tensor, epoch: int) -> torch.Tensor:
    """Mirror half of the images, and the other half in the next epoch.

    Which half an image belongs to is a fixed hash of its index, so over two epochs it is seen once
    each way; coin flips would show half of the images the same way twice.
    """
    hashed = (indices * 2654435761 >> 16) + epoch
    return torch.where((hashed % 2 == 0)[:, None, None, None], batch.flip(-1), batch)


def cut_out(batch: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    """Blank one square of each normalised image (zero is the mean colour); it may reach over the
    border.
    """
    inside = []  # of the square: which rows (B, H), and which columns (B, W)
    for side in batch.shape[2:]:
        first = (
            torch.randint(0, side, (len(batch), 1), generator=generator, device=batch.device)
            - size // 2
        )
        place = torch.arange(side, device=batch.device)
        inside.append((place >= first) & (place < first + size))
    return batch.masked_fill((inside[0][:, :, None] & inside[1][:, None, :])[:, None], 0.0)
