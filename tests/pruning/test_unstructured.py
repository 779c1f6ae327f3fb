"""Zeros by magnitude: which, how many, and what they are worth on disk."""

import pandas as pd
import pytest
import torch
from torch import nn

from course.benchmarks import pruning_unstructured
from course.benchmarks.pruning_unstructured import file_sizes, share_of_zeros
from helpers import metrics, models
from helpers.pruning.groups import PruneError
from helpers.pruning.pruner import stored_weights, zero_small_weights
from tests.pruning.zoo import ToyMobile, build


def weights(model):
    return torch.cat([weight.detach().flatten() for weight in stored_weights(model)]).tolist()


@pytest.mark.parametrize("sparsity", [0, 0.29, 0.9])
def test_the_smallest_of_the_whole_network_become_zero(sparsity):
    model = build(ToyMobile)
    before, after = weights(model), weights(zero_small_weights(model, sparsity))
    order = sorted(range(len(before)), key=lambda i: (abs(before[i]), i))
    gone = set(order[: int(len(before) * sparsity)])
    assert after == [0.0 if i in gone else v for i, v in enumerate(before)]
    assert weights(model) == before


def test_zeros_do_not_make_the_file_smaller_but_coding_does():
    model = models.mobilenet_v2(width_mult=0.25)
    plain, coded = file_sizes(model)
    sparse_plain, sparse_coded = file_sizes(zero_small_weights(model, 0.9))
    assert sparse_plain == plain == metrics.file_bytes(model)
    assert sparse_coded < 0.5 * coded


def test_impossible_sparsities_are_refused():
    for sparsity in (1, -0.1, float("nan")):
        with pytest.raises(PruneError, match="sparsity is"):
            zero_small_weights(torch.nn.Linear(2, 2), sparsity)


def test_the_share_of_zeros_is_counted():
    model = build(ToyMobile)
    assert share_of_zeros(model) == 0
    values = weights(zero_small_weights(model, 0.3))
    assert share_of_zeros(zero_small_weights(model, 0.3)) == pytest.approx(values.count(0.0) / len(values))


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_weights_that_are_computed_are_refused(norm):
    model = nn.Sequential(nn.Linear(4, 4), norm(nn.Linear(4, 4)))
    with pytest.raises(PruneError, match="layer '1' is computed from others"):
        zero_small_weights(model, 0.5)


def test_a_weight_that_two_layers_share_counts_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.ConvTranspose2d(4, 4, 1))
    model[1].weight = model[0].weight
    nn.init.zeros_(model[2].weight)
    assert share_of_zeros(model) == 0.5


@pytest.mark.parametrize("asked", [share_of_zeros, lambda model: zero_small_weights(model, 0.5)])
def test_a_network_without_weights_is_named(asked):
    with pytest.raises(PruneError, match="ReLU has no convolution"):
        asked(nn.ReLU())


def test_the_command_writes_a_row_for_each_sparsity(tmp_path, capsys):
    checkpoint = models.save(models.mobilenet_v2(width_mult=0.25), tmp_path / "dense.safetensors")
    out = tmp_path / "table.csv"
    pruning_unstructured.main([str(checkpoint), "--data", "sample", "--runs", "3", "--output", str(out)])
    table = pd.read_csv(out)
    assert table.sparsity.tolist() == list(pruning_unstructured.SPARSITIES)
    assert table.zeros.tolist() == pytest.approx(table.sparsity.tolist(), abs=1e-4)
    assert set(table.file_bytes) == {table.file_bytes[0]}
    assert table.coded_bytes.is_monotonic_decreasing
    assert (table.low <= table.validation).all()
    assert (table.latency_ms > 0).all()
    assert "sparsity" in capsys.readouterr().out
