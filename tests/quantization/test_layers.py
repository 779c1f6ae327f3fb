import pytest
import torch

from helpers.quantization.affine import Affine, QuantizationError
from helpers.quantization.layers import LARGEST_SUM, Layer, make_room_for_bias
from helpers.quantization.plan import Op
from helpers.quantization.steps import Edge
from helpers.quantization.weights import LayerWeights

SOURCE = Affine(torch.tensor(0.02), torch.tensor(100, dtype=torch.int32), 8, signed=False)


def weights(bias, scale=0.01, bits=8, columns=4):
    rows = len(bias)
    codes = torch.arange(rows * columns, dtype=torch.int8).reshape(rows, columns)
    return LayerWeights(codes, torch.full((rows,), scale), torch.tensor(bias), bits)


def test_bias_is_counted_in_units_of_both_scales():
    layer = Layer(Op("fc", "linear", ("x",), shape=(2,)), weights([1.0, -0.5]), SOURCE, None)
    assert layer.bias.tolist() == [5000, -2500]
    layer.settle([Edge(SOURCE.scale, SOURCE.zero_point)])
    assert layer.folded_bias.tolist() == [5000 - 100 * 6, -2500 - 100 * 22]
    logits = layer.integer(torch.full((1, 4), 100, dtype=torch.uint8))  # the code of real 0
    assert torch.allclose(logits, torch.tensor([[1.0, -0.5]]))


def test_a_dead_channel_with_a_bias_keeps_its_bias():
    dead = weights([3.0, 3.0])
    dead.scale[1] = 1e-12
    roomy = make_room_for_bias(dead, SOURCE.scale)
    assert torch.equal(roomy.codes[0], dead.codes[0]) and roomy.scale[0] == dead.scale[0]
    assert not roomy.codes[1].any()
    layer = Layer(Op("fc", "linear", ("x",), shape=(2,)), dead, SOURCE, None)
    layer.settle([Edge(SOURCE.scale, SOURCE.zero_point)])
    assert layer.bias.abs().max() <= LARGEST_SUM
    assert torch.allclose(layer.integer(torch.full((1, 4), 100, dtype=torch.uint8)), torch.tensor([[3.0, 3.0]]))
    assert make_room_for_bias(weights([3.0]), SOURCE.scale).scale == weights([3.0]).scale


def test_sums_that_int32_cannot_hold_are_refused():
    codes = torch.full((1, 40000), 127, dtype=torch.int8)
    wide = LayerWeights(codes, torch.ones(1), torch.zeros(1), 8)
    with pytest.raises(QuantizationError, match="fc: the sum of 40000 products"):
        Layer(Op("fc", "linear", ("x",), shape=(1,)), wide, SOURCE, None)
