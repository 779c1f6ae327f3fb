"""How each stage makes its network."""

import pytest
import torch

from course.reference import SweepError, stages
from course.reference.jobs import Job
from helpers import data, metrics, models, pruning


@pytest.fixture(scope="module")
def cifar():
    """Every eighth image, in small."""
    whole = data.load_cifar10("sample")
    images = torch.nn.functional.interpolate(whole.train_images[::8].float(), size=16).to(
        torch.uint8
    )
    return data.Dataset(
        images, whole.train_labels[::8], images[:8], whole.train_labels[:64:8], "test", True
    )


def network():
    torch.manual_seed(0)
    return models.mobilenet_v2(width_mult=0.1).eval()


def cut(cifar, **settings):
    return stages.make(
        Job("cut", "pruned", "dense", None, settings, ship=False), network(), None, cifar, None
    )


def test_statistics_are_measured_again_unless_told_not_to(cifar):
    wanted = pruning.prune(network(), torch.zeros(1, 3, 16, 16), ratio=0.5)
    made = (cut(cifar, ratio=0.5, reestimate=False), cut(cifar, ratio=0.5), wanted)
    kept, measured, plain = (model.features[0][1].running_var for model in made)
    assert torch.equal(kept, plain) and not torch.allclose(measured, plain, rtol=0.01)


def test_a_block_left_out_adds_nothing_and_stays_out_in_the_file(cifar, tmp_path):
    made, by_hand = (
        cut(cifar, allocation="global", without=["features.3"], reestimate=False),
        network(),
    )
    by_hand.features[3], x = torch.nn.Identity(), cifar.train_images[:9].float()
    small = models.load(models.save(pruning.prune(made, x), tmp_path / "m.safetensors"))
    assert torch.equal(made(x), by_hand(x)) and type(small.features[3]) is torch.nn.Identity
    for name in ("features.99", "features.4", "features.3.conv"):  # the second has no shortcut
        with pytest.raises(SweepError, match=rf"cut: without: '{name}' is not a residual block"):
            cut(cifar, ratio=0.5, without=[name])


def test_a_target_is_met_without_the_blocks_that_are_left_out(cifar):
    whole = metrics.count_parameters(network())
    made = cut(cifar, target_params=0.6, without=["features.3", "features.15"], reestimate=False)
    assert metrics.count_parameters(made) == pytest.approx(0.6 * whole, rel=0.02)
    assert type(made.features[15]) is torch.nn.Identity


def test_criteria_that_look_at_images_get_training_images_with_their_labels(cifar):
    made, split = cut(cifar, ratio=0.5, importance="taylor", reestimate=False), cifar.split()
    batches = [(data.normalize(split.train_images), split.train_labels)]
    wanted = pruning.prune(
        network(), torch.zeros(1, 3, 16, 16), ratio=0.5, importance="taylor", batches=batches
    )
    assert all(
        torch.equal(mine, made.state_dict()[name]) for name, mine in wanted.state_dict().items()
    )


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
