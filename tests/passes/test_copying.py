import copy

import torch
import torchvision
from torch import nn

from helpers.passes import copying
from helpers.passes.copying import independent_copy


def test_equals_deepcopy_and_shares_nothing():
    model = torchvision.models.mobilenet_v2(width_mult=0.25).eval()
    made, expected = independent_copy(model), copy.deepcopy(model)
    assert repr(made) == repr(expected) and made.training is False
    for (name, one), (other, two) in zip(made.state_dict().items(), expected.state_dict().items(), strict=True):
        assert name == other and torch.equal(one, two)
        assert one.data_ptr() != model.state_dict()[name].data_ptr()


def test_what_is_shared_inside_stays_shared():
    layer = nn.Linear(3, 3)
    tied = nn.Linear(3, 3)
    tied.weight = layer.weight
    made = independent_copy(nn.Sequential(layer, layer, tied))
    assert made[0] is made[1] and made[2].weight is made[0].weight and made[0].weight is not layer.weight


def test_hooks_and_odd_attributes_are_copied_deeply():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1))
    model[0].register_forward_hook(lambda module, args, result: result + 1)
    model[1].friend = model
    model[1].notes = [1]
    made = independent_copy(model)
    assert made[1].friend is made and made[1].notes is not model[1].notes and len(made[0]._forward_hooks) == 1
    made[0]._forward_hooks.clear()
    made[1]._forward_hooks[7] = print
    assert len(model[0]._forward_hooks) == 1 and len(model[1]._forward_hooks) == 0


def test_settings_of_the_copy_can_change():
    model = nn.Sequential(nn.Conv2d(3, 4, 1, padding=1))
    made = independent_copy(model)
    made[0].padding = (2, 2)
    made[0]._parameters["bias"] = None
    assert model[0].padding == (1, 1) and model[0].bias is not None


def test_the_short_cut_is_taken(monkeypatch):
    """Otherwise all of this would only be a slow way to call deepcopy."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU6())
    taken = []
    monkeypatch.setattr(copying, "_copy_ordinary", lambda module, memo: taken.append(module) or copy.deepcopy(module))
    independent_copy(model)
    assert taken == list(model)
