import pytest

from course.__main__ import main
from helpers import models
from tests.quantization.networks import small_mobilenet


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    model, _ = small_mobilenet()
    return models.save(model, tmp_path_factory.mktemp("float") / "float.safetensors")


def test_quantize_writes_the_network_and_its_other_forms(checkpoint, tmp_path, capsys):
    files = {name: tmp_path / name for name in ("q.safetensors", "q.onnx")}
    words = ["quantize", str(checkpoint), str(files["q.safetensors"]), "--weight-bits", "4", "--images", "32"]
    words += ["--bias-correction", "empirical", "--equalize", "--per-tensor", "--data", "sample"]
    words += ["--onnx", str(files["q.onnx"])]
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
