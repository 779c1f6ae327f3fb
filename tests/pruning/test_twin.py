"""The quick copy is what deepcopy gives, with the tensors that were asked for."""

import copy

import torch
from torch import nn

from helpers.pruning.twin import twin
from tests.pruning.zoo import ToyMobile, build


def test_it_is_a_deep_copy():
    model = build(ToyMobile)
    model.notes = {"list": [1, 2]}
    copied = twin(model, {})
    assert [type(m) for m in copied.modules()] == [type(m) for m in model.modules()]
    assert {id(m) for m in copied.modules()}.isdisjoint(id(m) for m in model.modules())
    assert [vars(m).keys() for m in copied.modules()] == [vars(m).keys() for m in model.modules()]
    copied.notes["list"].append(3)
    copied.blocks[0].bn1.register_forward_hook(lambda *args: None)
    assert model.notes == {"list": [1, 2]}
    assert not model.blocks[0].bn1._forward_hooks
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(copied(x), copy.deepcopy(model)(x))


def test_shared_modules_and_new_tensors():
    model = build(ToyMobile)
    model.again = model.stem
    weight = nn.Parameter(torch.zeros(8, 3, 3, 3))
    copied = twin(model, {id(model.stem.weight): weight})
    assert copied.again is copied.stem
    assert copied.stem.weight is weight
