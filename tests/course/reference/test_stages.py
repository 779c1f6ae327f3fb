import pytest
import torch

from course.reference import stages
from course.reference.jobs import Job
from helpers import data, models, pruning


@pytest.fixture(scope="module")
def cifar():
    """Every eighth image, in small."""
    whole = data.load_cifar10("sample")
    images = torch.nn.functional.interpolate(whole.train_images[::8].float(), size=16).to(torch.uint8)
    return data.Dataset(images, whole.train_labels[::8], images[:8], whole.train_labels[:64:8], "test", True)


def job(**settings):
    return Job("cut", "pruned", "baseline", None, settings, ship=False)


def network():
    torch.manual_seed(0)
    return models.mobilenet_v2(width_mult=0.1).eval()


def test_statistics_are_measured_again_unless_told_not_to(cifar):
    cut = {again: stages.make(job(ratio=0.5, reestimate=again), network(), None, cifar, None) for again in (0, 1)}
    wanted = pruning.prune(network(), torch.zeros(1, 3, 16, 16), ratio=0.5)
    kept, measured, plain = (m.features[0][1].running_var for m in (cut[0], cut[1], wanted))
    assert torch.equal(kept, plain)
    assert not torch.allclose(measured, plain, rtol=0.01)
    default = stages.make(job(ratio=0.5), network(), None, cifar, None)
    assert torch.equal(default.features[0][1].running_var, measured)


def test_criteria_that_look_at_images_get_training_images_with_their_labels(cifar):
    cut = stages.make(job(ratio=0.5, importance="taylor", reestimate=False), network(), None, cifar, None)
    split = cifar.split()
    batches = [(data.normalize(split.train_images), split.train_labels)]
    wanted = pruning.prune(network(), torch.zeros(1, 3, 16, 16), ratio=0.5, importance="taylor", batches=batches)
    assert all(torch.equal(mine, cut.state_dict()[name]) for name, mine in wanted.state_dict().items())
