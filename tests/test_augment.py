import torch

from helpers.augment import alternating_flip, cut_out, random_crop, training_batch
from helpers.data import normalize


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count=16):
    return torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator(1))


def test_each_crop_is_a_window_of_its_own_padded_image():
    batch = images()
    crops = random_crop(batch, 4, generator())
    padded = torch.nn.functional.pad(batch, [4] * 4, mode="reflect")
    for crop, source in zip(crops, padded, strict=True):
        windows = source.unfold(1, 32, 1).unfold(2, 32, 1)  # (3, 9, 9, 32, 32)
        same = (windows == crop[:, None, None]).all(-1).all(-1).all(0)
        assert same.any()


def test_crops_reach_every_place_and_no_padding_changes_nothing():
    rows, columns = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    ramp = torch.stack([rows, columns, columns]).to(torch.uint8).repeat(2000, 1, 1, 1)
    middles = random_crop(ramp, 4, generator())[:, :2, 16, 16].unique(dim=0)
    assert len(middles) == 9 * 9 and (middles.min(), middles.max()) == (12, 20)
    batch = images()
    assert torch.equal(random_crop(batch, 0, generator()), batch)


def test_every_image_is_seen_once_each_way_in_two_epochs():
    batch, indices = images(200), torch.arange(200)
    first, second = (alternating_flip(batch, indices, epoch) for epoch in (0, 1))
    straight = [(out == batch).flatten(1).all(1) for out in (first, second)]
    assert torch.equal(straight[0], ~straight[1])
    assert 60 < int(straight[0].sum()) < 140
    mirrored = torch.where(straight[0][:, None, None, None], second, first)
    assert torch.equal(mirrored, batch.flip(-1))


def test_cut_out_blanks_one_square_per_image():
    out = cut_out(torch.ones(300, 3, 32, 32), 8, generator())
    blanked = (out == 0).all(1).flatten(1).sum(1)
    assert int(blanked.max()) == 64
    assert int(blanked.min()) >= 16
    assert torch.equal((out == 0).all(1), (out == 0).any(1))


def test_a_batch_is_normalised_and_channels_last(monkeypatch):
    monkeypatch.setattr("helpers.augment.PADDING", 0)
    batch = training_batch(images(), torch.arange(8), 0, generator())
    assert batch.shape == (8, 3, 32, 32)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    expected = normalize(alternating_flip(images()[:8], torch.arange(8), 0))
    torch.testing.assert_close(batch, expected.contiguous(memory_format=torch.channels_last))
    unmirrored = training_batch(images(), torch.arange(8), 0, generator(), mirror=False)
    torch.testing.assert_close(unmirrored.contiguous(), normalize(images()[:8]))
