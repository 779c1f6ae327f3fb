"""`python -m course prune` from a checkpoint to a checkpoint."""

import json

import pytest
import torch

from course.__main__ import main
from helpers import models


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    return models.save(models.mobilenet_v2(width_mult=0.35), tmp_path / "dense.safetensors")


def parameters(path):
    return sum(p.numel() for p in models.load(path).parameters())


def test_writes_a_network_that_loads(checkpoint, tmp_path, capsys):
    assert main(["prune", str(checkpoint), str(tmp_path / "small.safetensors"), "--ratio", "0.5"]) == 0
    left, whole = parameters(tmp_path / "small.safetensors"), parameters(checkpoint)
    assert left < 0.7 * whole
    assert f"parameters {whole:,} -> {left:,}" in capsys.readouterr().out


def test_targets_and_data(checkpoint, tmp_path):
    out = tmp_path / "small.safetensors"
    options = ["--target-params", "0.6", "--importance", "taylor", "--allocation", "global", "--data", "sample"]
    assert main(["prune", str(checkpoint), str(out), "--images", "32", "--scope", "all", *options]) == 0
    assert parameters(out) == pytest.approx(0.6 * parameters(checkpoint), rel=0.01)


def test_how_far_from_a_target_is_too_far(checkpoint, tmp_path, capsys):
    options = ["--target-params", "0.5", "--round-to", "64"]
    out = str(tmp_path / "small.safetensors")
    assert main(["prune", str(checkpoint), out, *options]) == 1
    assert "cannot be met within 1%" in capsys.readouterr().err
    assert main(["prune", str(checkpoint), out, *options, "--tolerance", "0.5"]) == 0


def test_a_ratio_for_each_group_from_a_file(checkpoint, tmp_path):
    (tmp_path / "ratios.json").write_text(json.dumps({"features.17.conv.0.0": 0.5}))
    out = tmp_path / "small.safetensors"
    assert main(["prune", str(checkpoint), str(out), "--allocation", str(tmp_path / "ratios.json")]) == 0
    dense, small = models.load(checkpoint), models.load(out)
    assert small.features[17].conv[0][0].out_channels * 2 == dense.features[17].conv[0][0].out_channels
    assert small.features[16].conv[0][0].out_channels == dense.features[16].conv[0][0].out_channels
