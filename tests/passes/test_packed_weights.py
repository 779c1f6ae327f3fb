import gc

import pytest
import torch

from helpers.passes import packed_weights
from helpers.passes.packed_weights import FORMS_PER_WEIGHT, packed


class Packer:
    """Counts how often it packs."""

    def __init__(self, weight):
        self.weight, self.count = weight, 0

    def __call__(self):
        self.count += 1
        return self.weight.detach() * 1


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.randn(4, 3))


def test_packs_once_for_each_key(weight):
    pack = Packer(weight)
    first = packed(weight, "a", pack)
    assert packed(weight, "a", pack) is first
    assert packed(weight, "b", pack) is not first
    assert pack.count == 2


def change_in_place(weight):
    with torch.no_grad():
        weight.mul_(2)


def change_data(weight):
    weight.data = weight.data.clone()


def cast(weight):
    torch.nn.ParameterList([weight]).double()


@pytest.mark.parametrize("change", [change_in_place, change_data, cast])
def test_packs_again_when_the_weight_has_changed(weight, change):
    pack = Packer(weight)
    packed(weight, "a", pack)
    change(weight)
    torch.testing.assert_close(packed(weight, "a", pack), weight.detach())
    assert pack.count == 2


def test_the_form_goes_with_the_weight():
    gc.collect()
    before = len(packed_weights._PACKED)
    weight = torch.randn(3)
    packed(weight, "a", Packer(weight))
    assert len(packed_weights._PACKED) == before + 1
    del weight
    gc.collect()
    assert len(packed_weights._PACKED) == before


def test_only_the_latest_forms_are_kept(weight):
    pack = Packer(weight)
    for key in range(FORMS_PER_WEIGHT + 1):
        packed(weight, key, pack)
    assert packed_weights._PACKED[id(weight)].forms.keys() == set(range(1, FORMS_PER_WEIGHT + 1))


def test_two_weights_do_not_mix(weight):
    other = torch.randn(4, 3)
    packed(weight, "a", Packer(weight))
    torch.testing.assert_close(packed(other, "a", Packer(other)), other)
