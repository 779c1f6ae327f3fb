"""Reshapes: the axes of before and after are matched by their elements alone."""

import numpy as np
import pytest

from helpers.pruning.rules_shape import blocks


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
