import gc

import pytest
import torch

from helpers.passes import prepared as module
from helpers.passes.prepared import CALLS_PER_WEIGHT, prepared


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
    first = prepared(weight, "a", pack)
    assert prepared(weight, "a", pack) is first
    assert prepared(weight, "b", pack) is not first
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
    prepared(weight, "a", pack)
    change(weight)
    torch.testing.assert_close(prepared(weight, "a", pack), weight.detach())
    assert pack.count == 2


def test_what_was_prepared_goes_with_the_weight():
    gc.collect()
    before = len(module._ENTRIES)
    weight = torch.randn(3)
    prepared(weight, "a", Packer(weight))
    assert len(module._ENTRIES) == before + 1
    del weight
    gc.collect()
    assert len(module._ENTRIES) == before


def test_only_the_latest_are_kept(weight):
    pack = Packer(weight)
    for key in range(CALLS_PER_WEIGHT + 1):
        prepared(weight, key, pack)
    assert module._ENTRIES[id(weight)].calls.keys() == set(range(1, CALLS_PER_WEIGHT + 1))


def test_two_weights_do_not_mix(weight):
    other = torch.randn(4, 3)
    prepared(weight, "a", Packer(weight))
    torch.testing.assert_close(prepared(other, "a", Packer(other)), other)
