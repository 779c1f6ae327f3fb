"""Zeros by magnitude: which, how many, and what they are worth on disk."""

import pandas as pd
import pytest
import torch
from torch import nn

from course.benchmarks import pruning_unstructured
from course.benchmarks.pruning_unstructured import file_sizes, share_of_zeros
from course.lessons.zeros import weights_of, zero_small_weights
from helpers import metrics, models
from tests.pruning.zoo import ToyMobile, build


def values(model):
    return torch.cat([weight.detach().flatten() for weight in weights_of(model)]).tolist()


@pytest.mark.parametrize("share", [0, 0.29, 0.9])
def test_the_smallest_of_the_whole_network_become_zero(share):
    model = build(ToyMobile)
    before, sparse = values(model), zero_small_weights(model, share)
    order = sorted(range(len(before)), key=lambda i: (abs(before[i]), i))
    gone = set(order[: int(len(before) * share)])
    assert values(sparse) == [0.0 if i in gone else v for i, v in enumerate(before)]
    assert values(model) == before
    assert share_of_zeros(sparse) == pytest.approx(len(gone) / len(before))


def test_zeros_do_not_make_the_file_smaller_but_coding_does():
    model = models.mobilenet_v2(width_mult=0.25)
    plain, coded = file_sizes(model)
    sparse_plain, sparse_coded = file_sizes(zero_small_weights(model, 0.9))
    assert sparse_plain == plain == metrics.file_bytes(model)
    assert sparse_coded < 0.5 * coded


def test_a_weight_that_two_layers_share_counts_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    nn.init.zeros_(model[2].weight)
    assert share_of_zeros(model) == 0.5


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
