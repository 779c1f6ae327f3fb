"""Zeros by magnitude: which, how many, and what they are worth on disk."""

import pytest
import torch

from helpers.pruning.allocation import AllocationError
from helpers.pruning.unstructured import WEIGHTED, file_sizes, zero_small_weights
from tests.pruning.zoo import ToyMobile, build


def weights(model):
    return [float(v) for m in model.modules() if isinstance(m, WEIGHTED) for v in m.weight.detach().flatten()]


@pytest.mark.parametrize("sparsity", [0, 0.3, 0.9])
def test_the_smallest_of_the_whole_network_become_zero(sparsity):
    model = build(ToyMobile)
    before, after = weights(model), weights(zero_small_weights(model, sparsity))
    order = sorted(range(len(before)), key=lambda i: (abs(before[i]), i))
    gone = set(order[: int(len(before) * sparsity)])
    assert after == [0.0 if i in gone else v for i, v in enumerate(before)]
    assert weights(model) == before


def test_zeros_do_not_make_the_file_smaller_but_coding_does():
    model = build(ToyMobile)
    plain, coded = file_sizes(model)
    sparse_plain, sparse_coded = file_sizes(zero_small_weights(model, 0.9))
    assert sparse_plain == plain
    assert sparse_coded < 0.8 * coded


def test_impossible_sparsities_are_refused():
    for sparsity in (1, -0.1, float("nan")):
        with pytest.raises(AllocationError, match="sparsity is"):
            zero_small_weights(torch.nn.Linear(2, 2), sparsity)
