import pytest
import torch
from torch import nn

from helpers.graphs.module_tree import buffers, modules_by_path, parameters, submodule, tensor_tables, tensors


def network() -> nn.Module:
    """A module and a tensor that hang at two places, a buffer, and places where nothing hangs."""
    block = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    net = nn.Sequential(block, nn.Sequential(block, nn.Linear(3, 3, bias=False)))
    net[1][1].weight = block[0].weight
    net.register_module("nothing", None)
    return net


def test_modules_are_those_that_torch_finds():
    net = network()
    found = modules_by_path(net)
    assert list(found.items()) == list(net.named_modules(remove_duplicate=False))
    assert list(modules_by_path(net, each_once=True).items()) == list(net.named_modules())
    assert all(submodule(net, path) is net.get_submodule(path) for path in found if path)
    with pytest.raises(KeyError):
        submodule(net, "1.2")


def test_tensors_are_those_that_torch_finds_each_once():
    net = network()
    assert list(map(id, parameters(net))) == list(map(id, net.parameters()))
    assert list(map(id, buffers(net))) == list(map(id, net.buffers()))
    assert {*map(id, tensors(net))} == {*map(id, net.parameters()), *map(id, net.buffers())}
    assert len(tensors(net)) == 2 + 2 + 3


def test_modules_in_a_circle_are_found_each_once():
    net = network()
    net[0].friend = net
    assert list(modules_by_path(net, each_once=True).items()) == list(net.named_modules())


def test_a_table_can_be_written_to():
    net = network()
    for table in tensor_tables(net, ("_buffers",)):
        table.update({name: torch.ones(1) for name in table})
    assert [buffer.item() for buffer in net[0][1].buffers()] == [1, 1, 1]
    assert len(tensor_tables(net)) == 2 * len(list(net.modules()))
