import pytest
import torch
from torch import nn

from helpers.graphs.tracing import trace
from helpers.passes import fused_ops
from helpers.passes.activations import Activation
from helpers.passes.fused_calls import LayerCall, NotReadable, read
from tests.passes.graphs import network
from tests.passes.zoo import conv, up


def layer_in(model: nn.Module, x: torch.Tensor):
    graph_module = trace(model.eval(), (x,))
    return next(node for node in graph_module.graph.nodes if node.op.startswith("call_")), graph_module


@pytest.mark.parametrize(
    "settings",
    [{}, {"stride": 2, "padding": (1, 0)}, {"padding": "same", "dilation": 2}, {"padding": "valid"}, {"bias": False}],
)
def test_a_layer_that_is_read_and_written_computes_the_same(settings):
    x = torch.randn(2, 3, 7, 7)
    node, graph_module = layer_in(nn.Sequential(conv(**settings)), x)
    call = read(node)
    with graph_module.graph.inserting_before(node.next):
        new = call.insert(graph_module.graph)
    assert read(new) == call and new.target is fused_ops.conv_act
    expected = graph_module(x)
    node.replace_all_uses_with(new)
    graph_module.recompile()
    assert torch.equal(graph_module(x), expected)
    assert call.operands().output_shape() == tuple(expected.shape)


def test_a_linear_layer_with_an_activation():
    x = torch.randn(2, 3)
    node, graph_module = layer_in(nn.Sequential(nn.Linear(3, 4)), x)
    call = read(node)
    assert call == LayerCall(node.args[0], "0.weight", "0.bias", None)
    with graph_module.graph.inserting_before(node.next):
        new = LayerCall(call.x, call.weight, call.bias, None, activation=Activation("relu")).insert(graph_module.graph)
    assert read(new).activation.name == "relu" and new.target is fused_ops.linear_act


NOT_READABLE = {
    "transposed": (lambda: nn.Sequential(up()), "transposed convolution"),
    "reflecting": (lambda: nn.Sequential(conv(padding=1, padding_mode="reflect")), "padding_mode='reflect'"),
    "uneven same": (lambda: nn.Sequential(conv(kernel=4, padding="same")), "another amount left than right"),
    "keyword": (lambda: network(lambda net, x: net.conv(input=x), conv=conv()), "its input alone"),
}


@pytest.mark.parametrize("what", NOT_READABLE)
def test_what_the_operation_cannot_say_is_refused(what):
    build, reason = NOT_READABLE[what]
    node, _ = layer_in(build(), torch.randn(1, 3, 7, 7))
    with pytest.raises(NotReadable, match=reason):
        read(node)


def test_shapes_must_be_known():
    node, _ = layer_in(nn.Sequential(conv()), torch.randn(1, 3, 7, 7))
    del node.args[0].meta["val"]
    with pytest.raises(NotReadable, match=r"the shape of input_1 is not known: trace the network with"):
        read(node).operands()
