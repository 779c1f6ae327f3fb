import pytest
import torch
from torch import nn

from helpers.passes.conv_add_folding import per_channel
from helpers.passes.conv_bn_folding import folded, output_channels
from helpers.passes.rewriter import MustStay
from tests.passes.graphs import graph_of
from tests.passes.zoo import conv, up

LAYERS = {
    "conv": lambda: (conv(4, 6, groups=2), (2, 4, 5, 6)),
    "conv 1-D": lambda: (conv(3, 5, dimensions=1, bias=False), (2, 3, 7)),
    "transposed": lambda: (up(4, 4, stride=2), (2, 4, 3, 3)),
    "transposed, grouped": lambda: (up(6, 4, groups=2), (1, 6, 3, 4)),
    "linear": lambda: (nn.Linear(5, 3), (2, 4, 5)),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LAYERS)
def test_the_folded_layer_is_the_layer_and_then_the_map(name, seed):
    torch.manual_seed(seed)
    layer, shape = LAYERS[name]()
    layer, x = layer.double(), torch.randn(shape, dtype=torch.float64)
    factor, summand = torch.randn(2, output_channels(layer), dtype=torch.float64)
    y = layer(x)
    column = (-1,) if isinstance(layer, nn.Linear) else (-1, *[1] * (y.dim() - 2))
    state = {key: value.clone() for key, value in layer.state_dict().items()}
    new = folded(layer, factor, summand)
    torch.testing.assert_close(new(x), factor.reshape(column) * y + summand.reshape(column), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(folded(layer, 2.0, 0.0)(x), 2 * y, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(state[key], value) for key, value in layer.state_dict().items())


def test_a_bias_appears_only_when_one_is_needed():
    layer = conv(bias=False)
    assert folded(layer, 2.0, 0.0).bias is None
    assert folded(layer, 2.0, torch.zeros(4)).bias is not None  # for any weights of this shape


def test_what_is_not_finite_or_not_there_is_refused():
    with pytest.raises(MustStay, match=r"not finite in torch\.float16"):
        folded(conv().half(), 1e6, 0.0)
    with pytest.raises(MustStay, match="no data"):
        folded(conv().to("meta"), 2.0, 0.0)


def call_of(layer: nn.Module, *shape: int):
    graph_module = graph_of(lambda net, x: net.layer(x), layer=layer)
    node = next(node for node in graph_module.graph.nodes if node.op == "call_module")
    node.meta["val"] = torch.empty(shape, device="meta")
    return node


@pytest.mark.parametrize("shape", [(2, 4, 5, 5), (4, 5, 5)], ids=["a batch of images", "one image"])
def test_one_number_per_channel(shape):
    layer, z = conv(), torch.randn(4, 1, 1)
    assert torch.equal(per_channel(z, call_of(layer, *shape), layer), z.flatten())
    assert per_channel(3, call_of(layer, *shape), layer) == 3


@pytest.mark.parametrize("shape", [(4,), (4, 5, 1), (2, 4, 1, 1), (1, 5)])
def test_a_constant_along_another_axis_is_refused(shape):
    layer = conv()
    with pytest.raises(MustStay, match="another axis"):
        per_channel(torch.ones(shape), call_of(layer, 2, 4, 5, 5), layer)
