import copy

import torch
import torchvision
from torch import nn

from helpers.graphs import copying
from helpers.graphs.copying import independent_copy, own_tensors, structural_copy


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


def test_a_weight_tied_between_a_plain_layer_and_an_odd_one_stays_tied():
    for order in (0, 1):
        layers = [nn.Linear(3, 3), nn.Linear(3, 3)]
        layers[0].weight = layers[1].weight
        layers[order].register_forward_hook(lambda module, args, result: result)
        made = independent_copy(nn.Sequential(*layers))
        assert made[0].weight is made[1].weight and made[0].weight is not layers[0].weight


def test_a_structural_copy_owns_its_tensors_once_it_is_told_to():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    made = structural_copy(model)
    assert made[0] is not model[0] and made[0].weight is model[0].weight
    made[1] = nn.Identity()
    own_tensors(made, model)
    assert made[0].weight is not model[0].weight and torch.equal(made[0].weight, model[0].weight)
    assert isinstance(made[0].weight, nn.Parameter)


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


def test_tensors_can_take_the_place_of_the_models():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1))
    model.again = model[0]
    weight = nn.Parameter(torch.zeros(2, 3, 1, 1))
    made = structural_copy(model, {id(model[0].weight): weight})
    assert made.again is made[0] and made[0].weight is weight
    assert made[1].weight is model[1].weight


def test_memory_that_two_buffers_share_stays_shared():
    model = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4))
    model[1].running_mean = model[0].running_mean.detach()
    model.register_buffer("part", model[0].running_var[1:3])
    made = independent_copy(model)
    made[0].running_mean.fill_(5.0)
    made[0].running_var.fill_(7.0)
    assert made[1].running_mean.eq(5).all() and made.part.eq(7).all()
    assert model[0].running_mean.eq(0).all() and model.part.eq(1).all()


def test_one_buffer_at_two_places_stays_one():
    model = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4))
    model[1].running_mean = model[0].running_mean
    made = independent_copy(model)
    assert made[1].running_mean is made[0].running_mean is not model[0].running_mean


def test_tensors_stay_what_they_are():
    model = nn.Linear(3, 3).requires_grad_(False)
    model.register_buffer("grows", torch.ones(3, requires_grad=True))
    model.register_buffer("noted", torch.ones(3))
    model.noted.note = "a note"
    model.register_buffer("wide", torch.ones(1).expand(5))
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("empty", torch.ones(3, device="meta"))
    made = independent_copy(model)
    assert isinstance(made.weight, nn.Parameter) and not made.weight.requires_grad
    assert made.grows.is_leaf and made.grows.requires_grad and made.noted.note == "a note"
    assert made.wide.stride() == (0,) and made.sparse.is_sparse and made.empty.is_meta
    assert all(tensor is not model.state_dict()[name] for name, tensor in made.state_dict().items())


def test_tables_inside_tables_are_copied():
    model = nn.Sequential(nn.ReLU())
    model.plan = {"a": [1, 2]}
    made = independent_copy(model)
    made.plan["a"].append(3)
    assert model.plan == {"a": [1, 2]}


def test_a_tuple_of_lists_is_copied_and_an_empty_place_stays_empty():
    model = nn.Sequential(nn.ReLU())
    model.register_module("nothing", None)
    model[0].pair = ([1], 2)
    made = independent_copy(model)
    made[0].pair[0].append(3)
    assert made.nothing is None and model[0].pair == ([1], 2)


def test_a_class_that_copies_itself_in_its_own_way_is_asked():
    class Counted(nn.ReLU):
        def __deepcopy__(self, memo):
            made = Counted()
            made.copied = True
            return made

    class Reduced(nn.ReLU):
        def __getstate__(self):
            return {**super().__getstate__(), "copied": True}

    made = independent_copy(nn.Sequential(Counted(), Reduced()))
    assert made[0].copied and made[1].copied


def test_the_short_cut_is_taken(monkeypatch):
    """Otherwise all of this would only be a slow way to call deepcopy."""
    left = []
    deepcopy = copy.deepcopy
    monkeypatch.setattr(copying.copy, "deepcopy", lambda value, memo=None: left.append(value) or deepcopy(value, memo))
    independent_copy(torchvision.models.mobilenet_v2(width_mult=0.25))
    assert left and all(value is None or isinstance(value, nn.Parameter) for value in left)
