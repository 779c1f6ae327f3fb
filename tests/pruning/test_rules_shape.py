"""Reshapes: axes are matched by their elements alone. Padding and indexing: what is understood, and what is not."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.discovery import channel_groups
from helpers.pruning.rules_shape import blocks
from tests.pruning.zeroing import cut_and_zeroed
from tests.pruning.zoo import Net, build, conv


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((2, 6, 4, 4), (2, 96), [([0], [0]), ([1, 2, 3], [1])]),
        ((2, 6, 4, 5), (2, 2, 3, 20), [([0], [0]), ([1], [1, 2]), ([2, 3], [3])]),
        ((1, 6, 1, 1), (1, 6), [([1], [1])]),
        ((4, 6), (6, 4), [([0, 1], [0, 1])]),
        ((2, 3, 4), (24,), [([0, 1, 2], [0])]),
        ((1, 1), (1,), []),
    ],
)
def test_blocks(before, after, expected):
    assert list(blocks(before, after)) == expected


def test_blocks_always_cover_the_same_elements():
    random = np.random.default_rng(0)
    for _ in range(200):
        primes = random.choice([1, 2, 3, 5], size=6)
        before = [int(np.prod(p)) for p in np.split(primes, np.sort(random.choice(range(1, 6), 2, replace=False)))]
        after = [int(np.prod(p)) for p in np.split(primes, np.sort(random.choice(range(1, 6), 3, replace=False)))]
        found = list(blocks(tuple(before), tuple(after)))
        for left, right in found:
            assert np.prod([before[d] for d in left]) == np.prod([after[d] for d in right])
        assert np.prod([before[d] for left, _ in found for d in left]) == np.prod(before)


def padded(*amounts, **options):
    """A network that pads its eight channels, the last axis, by these amounts."""
    layers = {"a": nn.Linear(8, 8), "b": nn.Linear(8 + sum(amounts), 5)}
    return build(lambda: Net(lambda s, x: s.b(F.pad(s.a(x), amounts, **options)), **layers))


EXAMPLE = torch.zeros(1, 3, 8, 8)


def test_channels_that_are_padded_on_may_have_any_fixed_value():
    model = padded(2, 1, value=3.0)
    assert [g.size for g in channel_groups(model, EXAMPLE).prunable()] == [8]
    torch.testing.assert_close(*cut_and_zeroed(model, EXAMPLE))


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_channels_that_are_padded_on_as_copies_of_others_are_refused(mode):
    model = build(
        lambda: Net(lambda s, x: s.b(F.pad(s.a(x[0]), (1, 1), mode=mode)), a=nn.Linear(8, 8), b=nn.Linear(10, 5))
    )
    assert "more than a fixed number of constant channels" in channel_groups(model, EXAMPLE)["a"].reason


def test_padding_may_not_cut_channels_off():
    assert "more than a fixed number of constant channels" in channel_groups(padded(-1, -1), EXAMPLE)["a"].reason


def test_padding_by_a_number_of_channels_pins_both():
    """The shortcut of a PyramidNet: as many zeros as the wider layer has more."""

    def forward(net, x):
        narrow = net.a(x)
        wide = net.b(narrow)
        return net.c(wide + F.pad(narrow, (0, 0, 0, 0, 0, wide.shape[1] - narrow.shape[1])))

    groups = channel_groups(build(lambda: Net(forward, a=conv(3, 8), b=conv(8, 12), c=conv(12, 5))), EXAMPLE)
    assert all("more than a fixed number of constant channels" in groups[name].reason for name in "ab")


@pytest.mark.parametrize("index", [(slice(None), [1, 2]), (True, 0), (slice(None), slice(0, 8), torch.zeros(1).long())])
def test_an_index_that_is_no_slice_and_no_number_is_refused(index):
    model = build(lambda: Net(lambda s, x: s.b(s.a(x)[index].mean()[None]), a=conv(3, 8), b=nn.Linear(1, 5)))
    assert "only slices and fixed numbers are understood as an index" in channel_groups(model, EXAMPLE)["a"].reason
