import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from helpers.graphs.layers import opaque


class Odd(nn.Conv2d):
    """May do anything."""


def hooked(method):
    layer = nn.ReLU()
    getattr(layer, method)(lambda *args: None)
    return layer


def replaced():
    layer = nn.ReLU()
    layer.forward = torch.tanh
    return layer


def test_ordinary_modules_are_what_they_say():
    for module in (
        nn.Conv2d(3, 4, 1),
        nn.Linear(3, 4),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Sequential(hooked("register_forward_hook")),
    ):
        assert opaque(module) is None


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (parametrizations.weight_norm(nn.Linear(3, 4)), "parametrised"),
        (Odd(3, 4, 1), "Odd is a subclass"),
        (hooked("register_forward_hook"), "it has hooks"),
        (hooked("register_forward_pre_hook"), "it has hooks"),
        (hooked("register_full_backward_hook"), "it has hooks"),
        (hooked("register_full_backward_pre_hook"), "it has hooks"),
        (replaced(), "its forward was replaced"),
    ],
)
def test_others_say_why_they_may_be_something_else(module, reason):
    assert reason in opaque(module)
