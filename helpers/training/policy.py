"""AutoAugment's policy for CIFAR-10 on whole batches, in which each image draws its own operations.

Torchvision draws once for all images that it is given, so they would have to go through it one by
one, which takes long. Here nothing loops over images and nothing waits for the device: all
operations that move pixels are one sampling, all that mix an image with another are one sum, and
all that map values to values are one table. On a GPU each image takes part in all three, with a
strength of 0 where it drew something else; on a CPU only in those that it drew.

    image 0 draws (ShearX, AutoContrast), image 1 draws (Invert, Contrast), ...
    first operation     image 0 is sheared, image 1 goes through the table 255 - v
    second operation    image 0 goes through the table of its own contrast, image 1 turns greyer
"""

from functools import cache
from typing import NamedTuple

import torch
from torch.nn import functional as F
from torchvision.transforms import AutoAugment, AutoAugmentPolicy

LEVELS = 9  # of strength, above 0
# How strong the last level is; half of the images take the opposite sign.
MOVES = {
    "ShearX": 0.3,  # pixels to the side for each row
    "ShearY": 0.3,
    "TranslateX": 150 / 331,  # of the width
    "TranslateY": 150 / 331,
    "Rotate": torch.pi / 6,
}
MIXTURES = dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), 0.9)  # of the way
SIGNED = MOVES | MIXTURES
TABLES = ("Posterize", "Solarize", "AutoContrast", "Equalize", "Invert")
NAMES = ("Identity", *SIGNED, *TABLES)
LUMA = (0.2989, 0.587, 0.114)  # of red, green and blue in grey, as torchvision has it


def strength_of(name: str, level: int | None) -> float:
    """How strong an operation is at a level; 0 where it has none."""
    if level is None:
        return 0.0
    if name in SIGNED:
        return SIGNED[name] * level / LEVELS
    if name == "Posterize":  # the step between the values that are left
        return 2.0 ** round(4 * level / LEVELS)
    return 255 * (1 - level / LEVELS)  # Solarize: the least value that is inverted


@cache
def pairs(device: torch.device) -> torch.Tensor:
    """Torchvision's 25 pairs as (3, 2, 25): place in NAMES, probability, strength of each half."""
    rows = [
        [(NAMES.index(name), chance, strength_of(name, level)) for name, chance, level in pair]
        for pair in AutoAugment(AutoAugmentPolicy.CIFAR10).policies
    ]
    return torch.tensor(rows).permute(2, 1, 0).to(device)


def autoaugment(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Uint8 images, each through a pair of operations, each of which happens with its own
    probability.
    """
    options = {"generator": generator, "device": batch.device}
    table = pairs(batch.device)
    drawn = torch.randint(table.shape[2], (len(batch),), **options)
    operations, chances, strengths = table[:, :, drawn]
    happens = torch.rand(chances.shape, **options) < chances
    turned = torch.rand(chances.shape, **options) < 0.5
    images = batch.contiguous().float()
    for half in range(2):
        operation = operations[half] * happens[half]  # the first of NAMES is Identity
        strength = torch.where(turned[half], -strengths[half], strengths[half])
        images = operate(images, operation, strength)
    return images.to(torch.uint8)


def operate(images: torch.Tensor, operation: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    """Images of whole numbers from 0 to 255, each through its operation.

    Args:
        images: float32 (B, C, H, W).
        operation: the place in NAMES, (B,).
        strength: as in `strength_of`, of either sign, (B,).
    """
    images = images.clone()
    for change, names in ((sample, MOVES), (blend, MIXTURES), (recolour, TABLES)):
        # Finding out which images take part would make a GPU wait; there all go through instead.
        if images.device.type == "cpu":
            places = torch.tensor([NAMES.index(name) for name in names])
            rows = torch.isin(operation, places).nonzero()[:, 0]
            drawn = Drawn(operation[rows], strength[rows])
            images[rows] = change(images[rows], drawn)
        else:
            images = change(images, Drawn(operation, strength))
    return images


class Drawn(NamedTuple):
    """What some images have drawn."""

    operation: torch.Tensor
    strength: torch.Tensor

    def chosen(self, name: str) -> torch.Tensor:
        """Which images have drawn this operation, (B, 1, 1)."""
        return (self.operation == NAMES.index(name))[:, None, None]

    def amount(self, name: str) -> torch.Tensor:
        """The strength of an operation, 0 where another one was drawn, (B, 1, 1)."""
        return self.chosen(name) * self.strength[:, None, None]


def sample(images: torch.Tensor, drawn: Drawn) -> torch.Tensor:
    """Sheared about the first pixel, shifted by whole pixels, or turned about the middle."""
    height, width = images.shape[2:]
    # Places are in pixels from the middle.
    x = torch.arange(width, device=images.device) - (width - 1) / 2
    y = (torch.arange(height, device=images.device) - (height - 1) / 2)[:, None]
    angle = drawn.amount("Rotate")
    cosine = angle.cos()
    sine = angle.sin()
    right = (drawn.amount("TranslateX") * width).trunc()
    down = (drawn.amount("TranslateY") * height).trunc()
    # Where each pixel comes from.
    columns = cosine * x - sine * y
    columns = columns + drawn.amount("ShearX") * (y + height / 2) - right
    rows = sine * x + cosine * y
    rows = rows + drawn.amount("ShearY") * (x + width / 2) - down
    places = torch.stack([columns * 2 / width, rows * 2 / height], 3)
    return F.grid_sample(images, places, mode="nearest", align_corners=False)


def blend(images: torch.Tensor, drawn: Drawn) -> torch.Tensor:
    """Towards black, grey, the mean grey or a blurred image, or by as much away from it."""
    channels = images.shape[1]
    shares = LUMA if channels == 3 else [1 / channels] * channels
    weights = images.new_tensor(shares)[:, None, None]
    grey = (images * weights).sum(1, keepdim=True).floor()
    others = {
        "Brightness": torch.zeros_like(grey),
        "Color": grey,
        "Contrast": grey.mean((2, 3), keepdim=True),
        "Sharpness": blurred(images),
    }
    change = torch.zeros_like(images)
    for name, other in others.items():
        change += drawn.amount(name)[:, None] * (images - other)
    return (images + change).clamp(0, 255).floor()


def blurred(images: torch.Tensor) -> torch.Tensor:
    """Each pixel and its eight neighbours averaged, itself five times; the border stays."""
    middle = images[..., 1:-1, 1:-1]
    around = F.avg_pool2d(images, 3, stride=1, divisor_override=1)  # the sum of nine
    result = images.clone()
    result[..., 1:-1, 1:-1] = ((around + 4 * middle) / 13).round()
    return result


def recolour(images: torch.Tensor, drawn: Drawn) -> torch.Tensor:
    """Each value through the table of its image and channel, (B, C, 256)."""
    codes = images.long().flatten(2)
    lowest = images.amin((2, 3))[..., None]
    highest = images.amax((2, 3))[..., None]
    values = torch.arange(256.0, device=images.device)
    # "Posterize"; with a step of 1 every value stays.
    step = drawn.amount("Posterize").abs().clamp(min=1)
    table = values - values % step
    is_bright = values >= drawn.amount("Solarize").abs()
    inverts = drawn.chosen("Invert") | (drawn.chosen("Solarize") & is_bright)
    table = torch.where(inverts, 255 - values, table)
    stretches = drawn.chosen("AutoContrast") & (highest > lowest)
    table = torch.where(stretches, stretched(values, lowest, highest), table)
    table = torch.where(drawn.chosen("Equalize"), equalized(codes, highest.long()), table)
    return table.gather(2, codes).view_as(images)


def stretched(values: torch.Tensor, lowest: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    """The table that takes the lowest value to 0 and the highest to 255."""
    step = (highest - lowest).clamp(min=1) / 255
    return ((values - lowest) / step).clamp(0, 255).floor()


def equalized(codes: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    """The table after which each value is about as frequent as any other."""
    counts = torch.zeros(*codes.shape[:2], 256, device=codes.device)
    counts.scatter_add_(2, codes, torch.ones_like(codes, dtype=torch.float))
    pixels = codes.shape[2]
    step = ((pixels - counts.gather(2, highest)) / 255).floor()
    below = counts.cumsum(2) - counts
    table = (below + (step / 2).floor()) / step.clamp(min=1)
    unchanged = torch.arange(256.0, device=codes.device)
    return torch.where(step > 0, table.floor().clamp(max=255), unchanged)
