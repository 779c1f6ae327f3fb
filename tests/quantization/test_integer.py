import numpy as np
import pytest
import torch

from helpers.quantization.affine import Affine, QuantizationError
from helpers.quantization.integer import LARGEST_SUM, Layer, make_room_for_bias, make_step
from helpers.quantization.kernels import conv_sums
from helpers.quantization.plan import Op
from helpers.quantization.weights import LayerWeights
from tests.quantization import reference

CONVOLUTIONS = [  # inputs, outputs, kernel, stride, padding, dilation, groups
    (3, 5, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (4, 6, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (6, 6, (3, 3), (2, 2), (1, 1), (1, 1), 6),
    (6, 6, (3, 2), (2, 1), (2, 1), (2, 1), 6),
    (4, 8, (3, 3), (1, 1), (1, 1), (1, 1), 4),
    (4, 6, (3, 3), (2, 2), (1, 1), (1, 1), 2),
    (4, 6, (2, 3), (1, 2), (2, 3), (2, 2), 2),
    (1, 1, (1, 1), (3, 3), (0, 0), (1, 1), 1),
]


def make(case, extreme):
    inputs, outputs, kernel, *_, groups = case
    codes = torch.randint(0, 256, (2, inputs, 7, 9), dtype=torch.uint8)
    weight = torch.randint(-127, 128, (outputs, inputs // groups, *kernel), dtype=torch.int8)
    bias = torch.randint(-(2**20), 2**20, (outputs,), dtype=torch.int32)
    return (codes.fill_(255), weight.fill_(127), bias) if extreme else (codes, weight, bias)


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("zero_point", [0, 117, 255])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv_sums(case, zero_point, extreme):
    codes, weight, bias = make(case, extreme)
    geometry = case[3:]
    folded = bias - zero_point * weight.flatten(1).sum(1, dtype=torch.int32)
    sums = conv_sums(codes, weight, zero_point, *geometry) + folded[:, None, None]
    assert sums.dtype == torch.int32
    expected = reference.conv_sums(codes.numpy(), weight.numpy(), bias.numpy(), zero_point, *geometry)
    assert np.array_equal(sums.numpy(), expected)


def affine(scale, zero_point, bits=8):
    return Affine(torch.tensor(scale), torch.tensor(zero_point, dtype=torch.int32), bits, signed=False)


def settled(op, sources, out):
    step = make_step(op, out)
    step.settle([affine(*source) for source in sources])
    return step


IMAGE = torch.arange(256, dtype=torch.uint8).reshape(1, 4, 8, 8)
POOL, WHOLE = {"kernel": (2, 2), "stride": (2, 2)}, {"kernel": (8, 8), "stride": (8, 8)}
MAX_POOL = {**POOL, "padding": (1, 1), "dilation": (1, 1), "ceil_mode": False}
CASES = [  # op, sources, output; powers of two make many ties
    (Op("s", "add", ("a", "b"), shape=(4, 8, 8)), [(0.5, 3), (0.25, 200)], (0.5, 120)),
    (Op("s", "add", ("a", "b"), shape=(4, 8, 8), clamp=(0.0, 6.0)), [(0.1, 0), (0.01, 255)], (0.05, 0)),
    (Op("s", "average_pool", ("a",), attributes=POOL, shape=(4, 4, 4)), [(0.5, 7)], (0.25, 255)),
    (
        Op("s", "average_pool", ("a",), attributes=WHOLE, shape=(4,)),
        [(1.0, 9)],
        (2.0, 9),
    ),
    (Op("s", "clamp", ("a",), clamp=(-3.0, 20.0), shape=(4, 8, 8)), [(0.25, 128)], (0.5, 64)),
    (
        Op("s", "max_pool", ("a",), attributes=MAX_POOL, shape=(4, 5, 5)),
        [(1.0, 9)],
        None,
    ),
    (Op("s", "reshape", ("a",), shape=(256,)), [(1.0, 9)], None),
]


@pytest.mark.parametrize("op,sources,out", CASES)
def test_integer_is_the_reference_and_simulated_agrees(op, sources, out):
    step = settled(op, sources, affine(*out) if out else None)
    inputs = [IMAGE, IMAGE.flip(1)][: len(sources)]
    codes = step.integer(*inputs)
    own = {name: tensor.numpy() for name, tensor in step.named_buffers()}
    expected = reference.run_step(own, step.op, [x.numpy() for x in inputs], sources)
    assert codes.dtype == torch.uint8 and np.array_equal(codes.numpy(), expected)
    gap = (step.simulated(*inputs).int() - codes.int()).abs()
    assert gap.max() <= 1 and (gap > 0).float().mean() < 0.01
    assert torch.equal(step.kernel(*inputs), codes)


SOURCE = Affine(torch.tensor(0.02), torch.tensor(100, dtype=torch.int32), 8, signed=False)


def weights(bias, scale=0.01, bits=8, columns=4):
    rows = len(bias)
    codes = torch.arange(rows * columns, dtype=torch.int8).reshape(rows, columns)
    return LayerWeights(codes, torch.full((rows,), scale), torch.tensor(bias), bits)


def test_bias_is_counted_in_units_of_both_scales():
    layer = Layer(Op("fc", "linear", ("x",), shape=(2,)), weights([1.0, -0.5]), SOURCE, None)
    assert layer.bias.tolist() == [5000, -2500]
    layer.settle([SOURCE])
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
    layer.settle([SOURCE])
    assert layer.bias.abs().max() <= LARGEST_SUM
    assert torch.allclose(layer.integer(torch.full((1, 4), 100, dtype=torch.uint8)), torch.tensor([[3.0, 3.0]]))
    assert make_room_for_bias(weights([3.0]), SOURCE.scale).scale == weights([3.0]).scale


def test_sums_that_int32_cannot_hold_are_refused():
    codes = torch.full((1, 40000), 127, dtype=torch.int8)
    wide = LayerWeights(codes, torch.ones(1), torch.zeros(1), 8)
    with pytest.raises(QuantizationError, match="fc: the sum of 40000 products"):
        Layer(Op("fc", "linear", ("x",), shape=(1,)), wide, SOURCE, None)
