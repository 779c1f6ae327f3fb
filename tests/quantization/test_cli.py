import pytest

from course.__main__ import main
from helpers import models
from tests.quantization.networks import small_mobilenet


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    model, _ = small_mobilenet()
    return models.save(model, tmp_path_factory.mktemp("float") / "float.safetensors")


def test_quantize_writes_the_network_and_its_other_forms(checkpoint, tmp_path, capsys):
    files = {name: tmp_path / name for name in ("q.safetensors", "q.onnx", "q.rans")}
    words = ["quantize", str(checkpoint), str(files["q.safetensors"]), "--weight-bits", "4", "--images", "32"]
    words += ["--bias-correction", "empirical", "--equalize", "--per-tensor", "--data", "sample"]
    words += ["--onnx", str(files["q.onnx"]), "--entropy", str(files["q.rans"])]
    assert main(words) == 0
    assert all(file.exists() for file in files.values())
    recipe = models.load(files["q.safetensors"]).recipe
    assert (recipe.weight_bits, recipe.per_channel, recipe.equalize) == (4, False, True)
    printed = capsys.readouterr().out
    assert f"-> {files['q.safetensors'].stat().st_size:,} bytes" in printed
    assert "validation accuracy" in printed
    assert "100 images" in printed
    stated = models.read_header(files["q.safetensors"])[1]["metrics"]
    assert f"validation accuracy {stated['validation_accuracy']:.2%}" in printed


def test_wrong_bits_are_refused_before_anything_is_written(checkpoint, tmp_path, capsys):
    target = tmp_path / "q.safetensors"
    assert main(["quantize", str(checkpoint), str(target), "--weight-bits", "9", "--data", "sample"]) == 1
    assert "from 2 to 8" in capsys.readouterr().err
    assert not target.exists()


def test_options_that_contradict_each_other_are_refused(checkpoint, tmp_path, capsys):
    words = ["quantize", str(checkpoint), str(tmp_path / "q"), "--qat-epochs", "1", "--rounding", "learned"]
    assert main([*words, "--data", "sample"]) == 1
    assert "leave --rounding" in capsys.readouterr().err
