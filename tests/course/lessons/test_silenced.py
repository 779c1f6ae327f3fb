"""Layers that a learner builds in 09 and 09b survive a silenced filter: its weights are all 0."""

from types import SimpleNamespace

import nbformat
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from course.publish import runner
from helpers import checks
from helpers.checks.lessons import Lessons

BIAS = 0.7


@pytest.fixture
def cells(monkeypatch):
    """What cells of a lesson define, its exercises solved as the course does."""
    course = Lessons(runner.NOTEBOOKS / "exercises")
    monkeypatch.setattr(checks, "_lessons", [course])

    def run(lesson, *ids):
        names = {"torch": torch, "nn": nn, "parametrize": parametrize}
        names["checks"] = SimpleNamespace(yours=lambda name: course.define(name, {}))
        for name in ("fixed_point", "fake_quantize"):
            names[name] = course.define(name, {})
        exec("from copy import deepcopy", names)
        for cell in nbformat.read(runner.lessons([lesson])[0], as_version=4).cells:
            if cell.id in ids:
                exec(cell.source, names)
        return SimpleNamespace(**names)

    return run


def silenced():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3, padding=1)
    conv.weight.data[2] = 0
    conv.bias.data[2] = BIAS
    return conv.requires_grad_(False)


def test_an_integer_layer_gives_its_bias(cells):
    conv, x = silenced(), torch.randn(2, 3, 6, 6)
    made = cells("09", "swap-layer").QuantizedConv2d(conv, x, conv(x))
    assert (made(x) - conv(x)).abs().max() < 3 * made.s_y
    assert (made(x)[:, 2] - BIAS).abs().max() <= 0.51 * made.s_y


def test_rounded_weights_stay_0(cells):
    network = nn.Sequential(silenced())
    student = cells("09b", "qat-rounded", "qat-own").with_rounded_weights(network, bits=3)
    weight = student[0].weight
    assert weight.isfinite().all() and not weight[2].any() and weight[1].any()
