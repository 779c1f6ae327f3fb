"""How each stage makes its network, and how small its weights become when they are coded."""

import struct

import pytest
import torch

from course.reference import SweepError, entropy, stages
from course.reference.entropy import compress, decompress
from course.reference.jobs import Job
from course.reference.rans import CodingError
from helpers import data, models, pruning
from helpers.quantization import Recipe, quantize
from tests.quantization.networks import small_mobilenet


@pytest.fixture(scope="module")
def cifar():
    """Every eighth image, in small."""
    whole = data.load_cifar10("sample")
    images = torch.nn.functional.interpolate(whole.train_images[::8].float(), size=16).to(torch.uint8)
    return data.Dataset(images, whole.train_labels[::8], images[:8], whole.train_labels[:64:8], "test", True)


def network():
    torch.manual_seed(0)
    return models.mobilenet_v2(width_mult=0.1).eval()


def cut(cifar, **settings):
    return stages.make(Job("cut", "pruned", "dense", None, settings, ship=False), network(), None, cifar, None)


def test_statistics_are_measured_again_unless_told_not_to(cifar):
    wanted = pruning.prune(network(), torch.zeros(1, 3, 16, 16), ratio=0.5)
    made = (cut(cifar, ratio=0.5, reestimate=False), cut(cifar, ratio=0.5), wanted)
    kept, measured, plain = (model.features[0][1].running_var for model in made)
    assert torch.equal(kept, plain) and not torch.allclose(measured, plain, rtol=0.01)


def test_a_block_left_out_adds_nothing_and_stays_out_in_the_file(cifar, tmp_path):
    made, by_hand = cut(cifar, allocation="global", without=["features.3"], reestimate=False), network()
    by_hand.features[3], x = torch.nn.Identity(), cifar.train_images[:9].float()
    small = models.load(models.save(pruning.prune(made, x), tmp_path / "m.safetensors"))
    assert torch.equal(made(x), by_hand(x)) and type(small.features[3]) is torch.nn.Identity
    for name in ("features.99", "features.4", "features.3.conv"):  # the second has no shortcut
        with pytest.raises(SweepError, match=rf"cut: without names '{name}', which is no block"):
            cut(cifar, ratio=0.5, without=[name])


def test_a_trim_takes_its_share_of_every_group_before_one_ranking_goes_on(cifar):
    settings = {"scope": "all", "allocation": "global", "target_params": 30_000, "tolerance": 0.05}
    made = (cut(cifar, **settings), cut(cifar, **settings, trim=0.5), network())
    convs = ((m for m in model.modules() if isinstance(m, torch.nn.Conv2d)) for model in made)
    plain, trimmed, whole = ([conv.out_channels for conv in one] for one in convs)
    assert all(width <= -(-full // 2) for width, full in zip(trimmed, whole, strict=True)) and plain != trimmed


def test_criteria_that_look_at_images_get_training_images_with_their_labels(cifar):
    made, split = cut(cifar, ratio=0.5, importance="taylor", reestimate=False), cifar.split()
    batches = [(data.normalize(split.train_images), split.train_labels)]
    wanted = pruning.prune(network(), torch.zeros(1, 3, 16, 16), ratio=0.5, importance="taylor", batches=batches)
    assert all(torch.equal(mine, made.state_dict()[name]) for name, mine in wanted.state_dict().items())


@pytest.mark.parametrize("multiple", [1, 8])
def test_channels_that_training_switched_off_go_unless_the_width_suffers(multiple, capsys):
    model = network()
    expand, depthwise = model.features[2].conv[:2]
    expand[0].weight.data[0] = depthwise[0].weight.data[0] = 0
    for norm in (expand[1], depthwise[1]):
        norm.running_mean[0], norm.running_var[0], norm.bias.data[0] = 0, 0, -1
    width = expand[0].out_channels
    small = stages.alive(model, multiple)
    assert small.features[2].conv[0][0].out_channels == (width - 1 if multiple == 1 else width)
    assert ("removed" if multiple == 1 else "stay") in capsys.readouterr().out
    stages.alive(network(), multiple)
    assert capsys.readouterr().out == ""


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
    assert models.load(tmp_path / "restored").step("classifier.1").codes.dtype == torch.int8


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
    models.save(small_mobilenet()[0], tmp_path / "float")
    (tmp_path / "junk").write_bytes(struct.pack("<Q", 10**6) + b"{}")
    for name in ("float", "junk"):
        with pytest.raises(CodingError, match="quantized network"):
            compress(tmp_path / name, tmp_path / "coded")
    assert not (tmp_path / "coded").exists()
