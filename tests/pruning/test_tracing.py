"""Tracing: the errors name the place, and nothing large is copied."""

import pytest
import torch
from torch import nn

from helpers.pruning.tracing import TraceError, on_meta, trace
from tests.pruning.zoo import PRUNABLE, ToyMobile, build


def test_the_meta_copy_shares_what_the_original_shares():
    model = build(PRUNABLE["chain"][0])
    model[4].weight = nn.Parameter(torch.zeros(4, 6, 3, 3))
    model.twin = model[4]
    copied = on_meta(model)
    assert copied.twin is copied[4]
    assert {t.device.type for t in [*copied.parameters(), *copied.buffers()]} == {"meta"}
    assert {t.device.type for t in [*model.parameters(), *model.buffers()]} == {"cpu"}


def test_parameters_stay_parameters():
    copied = on_meta(build(ToyMobile).requires_grad_(False))
    assert all(type(p) is nn.Parameter and not p.requires_grad for p in copied.parameters())
    assert all(type(b) is torch.Tensor for b in copied.buffers())


def test_the_error_knows_the_node():
    with pytest.raises(TraceError, match="at node stem") as caught:
        trace(on_meta(build(ToyMobile)), torch.zeros(1, 5, 8, 8))
    assert caught.value.position == 1
    assert "\n" not in caught.value.cause


def test_inputs_have_to_be_tensors():
    with pytest.raises(TraceError, match="example_inputs: expected one tensor"):
        trace(on_meta(build(ToyMobile)), ())
