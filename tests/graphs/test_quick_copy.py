"""Quick copies of networks are whole ones."""

import copy

import torch
from torch import nn

from helpers.graphs.editing import quick_copy

TABLES = ("_forward_hooks", "_backward_hooks", "_parameters", "_buffers", "_modules")
TABLES += ("_non_persistent_buffers_set", "_state_dict_hooks")


def test_a_quick_copy_shares_no_table_with_the_network_nor_its_layers_with_each_other():
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
    calls = []
    network[2].register_forward_hook(lambda *_: calls.append("hook"))
    copied = copy.deepcopy(network, quick_copy(network))
    for name in TABLES:
        layers = [*network.modules(), *copied.modules()]
        assert len({id(vars(layer)[name]) for layer in layers}) == len(layers), name
        for layer, twin in zip(network.modules(), copied.modules(), strict=True):
            assert type(vars(layer)[name]) is type(vars(twin)[name])
            assert len(vars(layer)[name]) == len(vars(twin)[name])
    copied[0].register_forward_hook(lambda *_: calls.append("of the copy"))
    image = torch.zeros(1, 3, 2, 2)
    network(image)
    assert calls == ["hook"]
    copied(image)
    assert calls == ["hook", "of the copy", "hook"]
    assert torch.equal(network.eval()(image), copied.eval()(image))
