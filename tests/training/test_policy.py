"""AutoAugment on batches against torchvision's, operation by operation."""

import pytest
import torch
from torchvision.transforms import v2

from helpers.data import load_cifar10
from helpers.training import policy

THEIRS = v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10)


def photos(count=8):
    return load_cifar10("sample").train_images[:count]


def operations():
    """Each half of each pair, as (index, name, level), with the place and strength that we have."""
    ours = policy.pairs(torch.device("cpu")).permute(2, 1, 0).flatten(0, 1).tolist()
    theirs = [half for pair in THEIRS._policies for half in pair]
    return [(tuple(half), name) for half, name in zip(ours, theirs, strict=True)]


def by_torchvision(image, name, level, sign):
    """One image through one operation of torchvision's transform."""
    levels, signed = THEIRS._AUGMENTATION_SPACE[name]
    values = levels(10, *image.shape[1:])
    strength = 0.0 if values is None else float(values[level])
    return THEIRS._apply_image_or_video_transform(
        image,
        name,
        sign * strength if signed else strength,
        interpolation=THEIRS.interpolation,
        fill=THEIRS._fill,
    )


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 20, 28), (1, 32, 32)])
def test_each_operation_does_what_torchvisions_does(shape, sign):
    channels, height, width = shape
    batch = photos()[:, :channels, :height, :width].contiguous()
    for (place, chance, strength), (name, their_chance, level) in set(operations()):
        assert policy.NAMES[int(place)] == name
        assert chance == pytest.approx(their_chance)
        expected = torch.stack([by_torchvision(image, name, level, sign) for image in batch])
        operation = torch.full((len(batch),), int(place))
        found = policy.operate(batch.float(), operation, torch.full((len(batch),), sign * strength))
        rounded = name in ("Brightness", "Color", "Contrast", "Sharpness", "AutoContrast")
        assert (found - expected).abs().max() <= int(rounded), name


def test_a_batch_of_many_operations_is_what_each_image_alone_gives():
    batch = photos(48).float()
    operation = torch.arange(48) % len(policy.NAMES)
    strength = torch.linspace(-0.9, 0.9, 48)
    together = policy.operate(batch, operation, strength)
    for i in range(48):
        alone = policy.operate(batch[i : i + 1], operation[i : i + 1], strength[i : i + 1])
        assert torch.equal(together[i], alone[0])


def test_half_of_the_images_take_the_opposite_sign(monkeypatch):
    drawn = []

    def operate(images, operation, strength):
        drawn.append(strength)
        return images

    monkeypatch.setattr(policy, "operate", operate)
    policy.autoaugment(photos(8).repeat(60, 1, 1, 1), torch.Generator().manual_seed(0))
    strength = torch.cat(drawn)
    assert 0.4 < (strength[strength != 0] < 0).float().mean() < 0.6


def test_each_image_draws_for_itself_and_equal_seeds_draw_equally():
    batch = photos(8).repeat(60, 1, 1, 1)
    found = policy.autoaugment(batch, torch.Generator().manual_seed(0))
    assert found.dtype == torch.uint8
    assert len(found[::8].unique(dim=0)) > 20  # the same image, 60 times
    unchanged = (found == batch).flatten(1).all(1).float().mean()
    assert 0.05 < unchanged < 0.3  # of the pairs that do not happen
    assert torch.equal(found, policy.autoaugment(batch, torch.Generator().manual_seed(0)))
