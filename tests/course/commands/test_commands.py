"""The whole way through the shell's door: train, evaluate, fine-tune, on the sample."""

import shutil
from argparse import Namespace
from pathlib import Path

import pandas as pd
import pytest

from course.__main__ import main
from course.commands.train import saving
from helpers import models
from helpers.quantization import kernels

FAST = ["--data", "sample", "--epochs", "1", "--image-sizes", "8", "--batch-size", "300"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "trained.safetensors"
    assert main(["train", *FAST, "--width", "0.1", "--output", str(path)]) == 0
    return path


def test_train_writes_checkpoint_and_log_and_evaluate_finds_what_the_file_states(trained, capsys):
    spec, metadata = models.read_header(trained)
    assert spec.arguments["width_mult"] == 0.1
    assert (metadata["metrics"]["test_images"], metadata["provenance"]["seed"]) == (1000, 0)
    assert len(pd.read_csv(trained.with_suffix(".csv"))) == 1
    assert main(["evaluate", str(trained), "--data", "sample"]) == 0
    stated, out = metadata["metrics"]["test_accuracy"], capsys.readouterr().out
    assert f"test accuracy {stated:.2%}" in out and f"the file states {stated:.2%}" in out


def test_a_quantized_network_is_evaluated_in_integers_and_never_timed_as_a_simulation(trained, tmp_path, capsys):
    quantized = tmp_path / "int8.safetensors"
    assert main(["quantize", str(trained), str(quantized), "--images", "16", "--data", "sample"]) == 0
    assert main(["evaluate", str(quantized), "--data", "sample"]) == 0
    mode, out = "kernel" if kernels.available() else "integer", capsys.readouterr().out
    assert f", computed in mode '{mode}'" in out
    assert f"{sum(p.numel() for p in models.load(trained).parameters()):,} parameters" in out


def test_finetune_goes_on_with_a_teacher(trained, tmp_path):
    output = tmp_path / "finetuned.safetensors"
    assert main(["finetune", "--teacher", str(trained), str(trained), *FAST, "--output", str(output)]) == 0
    assert models.load(output).spec == models.load(trained).spec
    first, then = (models.read_header(path)[1]["provenance"]["command"] for path in (trained, output))
    assert then.startswith(f"{first}; ") and len(then) > len(first) + 2


def test_data_says_what_it_found(capsys):
    assert main(["data", "--source", "sample"]) == 0
    assert "1,000 training + 1,000 test images" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train --width 0", "no number above 0"),
        ("train --width nan", "no number above 0"),
        ("train --batch-size 0", "batch_size must be"),
        ("train --output {folder}", "it is a folder"),
        ("train --output {file}/trained", "cannot be written"),
        ("finetune {tiny} --output {file}/trained", "cannot be written"),
        ("quantize {tiny} {folder}/q --images -5", "no whole number of 1 or more"),
        ("quantize {tiny} {file}/q", "cannot be written"),
        ("prune {tiny} {folder}/p --round-to 1000", "no group has more than 64 units"),
        ("prune {tiny} {folder}/p --input-size 64", "--input-size and --arguments belong to --model"),
        ("prune {int8} {folder}/p", "is quantized already; start from the network that it was made from"),
        ("train --output {folder}/net.state", "would hold the network and the state of its training"),
        ("evaluate {tiny} --batch 0", "no whole number of 1 or more"),
    ],
)
def test_wrong_values_are_refused_before_any_work(words, says, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("helpers.training.train", lambda *_, **__: pytest.fail("it trains"))
    (tmp_path / "file").touch()
    tiny, int8 = (models.CHECKPOINTS / f"{name}.safetensors" for name in ("tiny", "half-int8"))
    words = words.format(folder=tmp_path, file=tmp_path / "file", tiny=tiny, int8=int8)
    try:
        status = main([*words.split(), "--data", "sample"])
    except SystemExit as end:
        status = end.code
    assert status in (1, 2) and says in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_command_writes_over_the_network_that_it_reads(tmp_path, capsys):
    network = Path(shutil.copy(models.CHECKPOINTS / "tiny.safetensors", tmp_path))
    before = network.read_bytes()
    for words in ("prune {net} {net}", "finetune {net} --output {net}", "quantize {net} {net}"):
        assert main([*words.format(net=network).split(), "--data", "sample"]) == 1
        assert "would be overwritten; choose another name" in capsys.readouterr().err
        assert network.read_bytes() == before


def test_a_second_training_on_one_output_is_refused(tmp_path, capsys):
    output = tmp_path / "trained.safetensors"
    with saving(Namespace(state=None, output=output, handover=None)):
        assert main(["train", *FAST, "--width", "0.1", "--output", str(output)]) == 1
    assert "another training writes" in capsys.readouterr().err
    assert not output.exists()
