import struct

import pytest
import torch

from course.reference import entropy
from course.reference.entropy import compress, decompress
from course.reference.rans import CodingError
from helpers import models
from helpers.quantization import Recipe, quantize
from tests.quantization.networks import small_mobilenet


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """One saved network for each number of bits."""
    model, images = small_mobilenet()
    folder = tmp_path_factory.mktemp("saved")
    recipes = {"8": Recipe(), "3": Recipe(weight_bits=3), "mixed": Recipe(layer_bits={"classifier.1": 4})}
    return {
        name: models.save(quantize(model, images, recipe), folder / f"{name}.safetensors")
        for name, recipe in recipes.items()
    }


@pytest.mark.parametrize("name", ["8", "3", "mixed"])
def test_decompressing_gives_the_same_file_byte_for_byte(saved, name, tmp_path):
    size = compress(saved[name], tmp_path / "coded")
    assert size == (tmp_path / "coded").stat().st_size < 0.95 * saved[name].stat().st_size
    restored = decompress(tmp_path / "coded", tmp_path / "restored.safetensors")
    assert restored.read_bytes() == saved[name].read_bytes()


def test_weights_really_go_through_the_coder(saved, tmp_path, monkeypatch):
    with_coder = compress(saved["3"], tmp_path / "coded")
    monkeypatch.setattr(entropy, "_integer_weights", lambda original: [])
    assert with_coder < compress(saved["3"], tmp_path / "lzma alone")
    decompress(tmp_path / "coded", tmp_path / "restored")
    assert models.load(tmp_path / "restored").step("classifier.1").weight.dtype == torch.int8


@pytest.mark.parametrize("damage", [lambda b: b[:-3], lambda b: b[:40], lambda b: b"", lambda b: b[:-1] + b"x"])
def test_a_damaged_file_is_refused_and_nothing_is_written(saved, damage, tmp_path):
    compress(saved["3"], tmp_path / "coded")
    content = (tmp_path / "coded").read_bytes()
    (tmp_path / "coded").write_bytes(damage(content))
    with pytest.raises(CodingError, match="damaged"):
        decompress(tmp_path / "coded", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_every_changed_byte_is_noticed(saved, tmp_path):
    compress(saved["3"], tmp_path / "coded")
    content = bytearray((tmp_path / "coded").read_bytes())
    for position in range(0, len(content), len(content) // 15):
        changed = content.copy()
        changed[position] ^= 16
        (tmp_path / "coded").write_bytes(changed)
        with pytest.raises(CodingError, match="damaged"):
            decompress(tmp_path / "coded", tmp_path / "restored")


def test_only_quantized_networks_can_be_coded(tmp_path):
    model, _ = small_mobilenet()
    path = models.save(model, tmp_path / "float.safetensors")
    with pytest.raises(CodingError, match="quantized network"):
        compress(path, tmp_path / "coded")
    (tmp_path / "junk").write_bytes(struct.pack("<Q", 10**6) + b"{}")
    with pytest.raises(CodingError, match="quantized network"):
        compress(tmp_path / "junk", tmp_path / "coded")
    assert not (tmp_path / "coded").exists()
