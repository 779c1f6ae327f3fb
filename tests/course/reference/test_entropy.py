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
    (model, images), folder = small_mobilenet(), tmp_path_factory.mktemp("saved")
    recipes = {"8": Recipe(), "3": Recipe(weight_bits=3), "mixed": Recipe(layer_bits={"classifier.1": 4})}
    return {name: models.save(quantize(model, images, recipe), folder / name) for name, recipe in recipes.items()}


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


def test_a_damaged_file_is_refused_wherever_the_damage_is_and_nothing_is_written(saved, tmp_path):
    compress(saved["3"], tmp_path / "coded")
    content = (tmp_path / "coded").read_bytes()
    places = range(0, len(content), len(content) // 15)
    changed = [content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :] for place in places]
    for damaged in (content[:-3], content[:40], b"", content[:-1] + b"x", *changed):
        (tmp_path / "coded").write_bytes(damaged)
        with pytest.raises(CodingError, match="damaged"):
            decompress(tmp_path / "coded", tmp_path / "restored")
        assert not (tmp_path / "restored").exists()


def test_only_quantized_networks_can_be_coded(tmp_path):
    model, _ = small_mobilenet()
    path = models.save(model, tmp_path / "float.safetensors")
    with pytest.raises(CodingError, match="quantized network"):
        compress(path, tmp_path / "coded")
    (tmp_path / "junk").write_bytes(struct.pack("<Q", 10**6) + b"{}")
    with pytest.raises(CodingError, match="quantized network"):
        compress(tmp_path / "junk", tmp_path / "coded")
    assert not (tmp_path / "coded").exists()
