"""Tracing: shapes without computing, and nothing left behind in the network."""

import pytest
import torch
from torch import nn

from helpers.pruning import tracing
from helpers.pruning.tracing import TraceError, on_meta, trace
from tests.pruning.zoo import PRUNABLE, ToyMobile, build


def test_every_value_has_the_shape_that_a_real_run_gives():
    model = build(ToyMobile)
    found = trace(model, torch.zeros(2, 3, 8, 8))
    x = torch.randn(2, 3, 8, 8)
    for node in found.nodes:
        if node.op == "call_module":
            assert node.meta["value"].shape == torch.fx.GraphModule(model, up_to(found.graph, node))(x).shape


def up_to(graph, node):
    """The graph with another node as its output."""
    part, copied = torch.fx.Graph(), {}
    for n in graph.nodes:
        copied[n] = part.node_copy(n, copied.__getitem__)
        if n is node:
            part.output(copied[n])
            return part
    return part


@pytest.mark.parametrize("kind", sorted(tracing.SAME_SHAPE, key=lambda k: k.__name__))
def test_layers_that_are_not_run_do_keep_the_shape(kind):
    arguments = {nn.LayerNorm: (6,), nn.BatchNorm1d: (4,), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (4,)}.get(kind, ())
    shape = {nn.BatchNorm1d: (2, 4, 6), nn.BatchNorm3d: (2, 4, 3, 3, 6)}.get(kind, (2, 4, 3, 6))
    x = torch.randn(shape)
    assert kind(*arguments).eval()(x).shape == x.shape


def test_the_meta_copy_shares_what_the_original_shares():
    model = build(PRUNABLE["chain"][0])
    model[4].weight = nn.Parameter(torch.zeros(4, 6, 3, 3))
    model.twin = model[4]
    copied = on_meta(model)
    assert copied.twin is copied[4]
    assert {t.device.type for t in [*copied.parameters(), *copied.buffers()]} == {"meta"}
    assert {t.device.type for t in [*model.parameters(), *model.buffers()]} == {"cpu"}


def test_the_error_knows_the_node():
    with pytest.raises(TraceError) as caught:
        trace(build(ToyMobile), torch.zeros(1, 5, 8, 8))
    assert caught.value.position == 1
    assert "\n" not in caught.value.cause


def test_inputs_have_to_be_tensors():
    with pytest.raises(TraceError, match="example_inputs: expected one tensor"):
        trace(build(ToyMobile), ())
