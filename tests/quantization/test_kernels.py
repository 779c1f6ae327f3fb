import math

import pytest
import torch

from helpers.quantization import kernels
from helpers.quantization.affine import Affine
from helpers.quantization.integer import Layer
from helpers.quantization.plan import Op
from helpers.quantization.weights import LayerWeights

pytestmark = pytest.mark.skipif(not kernels.available(), reason="this build has no oneDNN int8 convolutions")

GEOMETRIES = [  # inputs, outputs, kernel, stride, padding, dilation, groups
    (3, 16, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (16, 24, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (5, 7, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (24, 24, (3, 3), (2, 2), (1, 1), (1, 1), 24),
    (8, 12, (3, 2), (2, 1), (1, 0), (1, 1), 4),
    (8, 12, (3, 3), (1, 1), (2, 2), (2, 2), 1),
]


def layer_of(geometry, largest, zero_point, residual, bits=8):
    inputs, outputs, kernel, stride, padding, dilation, groups = geometry
    codes = torch.randint(-largest, largest + 1, (outputs, inputs // groups, *kernel), dtype=torch.int8)
    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    source = Affine(torch.tensor(0.02), torch.tensor(zero_point, dtype=torch.int32), bits, signed=False)
    sources = [source, *[Affine(torch.tensor(0.04), torch.tensor(90, dtype=torch.int32), 8, signed=False)] * residual]
    out = Affine(torch.tensor(0.05), torch.tensor(2 ** (bits - 1), dtype=torch.int32), bits, signed=False)
    weights = LayerWeights(codes, torch.rand(outputs) * 0.01 + 0.001, torch.randn(outputs), 8)
    op = Op(
        "conv", "conv", ("x", "r")[: 1 + residual], clamp=(-2.0, math.inf), attributes=attributes, shape=(outputs, 1, 1)
    )
    layer = Layer(op, weights, source, out)
    layer.settle(sources)
    return layer


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("zero_point", [0, 117])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_kernel_is_integer_but_for_ties(geometry, zero_point, residual):
    layer = layer_of(geometry, 60, zero_point, residual)
    x = torch.randint(0, 256, (8, geometry[0], 15, 14), dtype=torch.uint8)
    shape = layer.sums(x)[0].shape if not residual else layer.sums(x, x)[0].shape
    inputs = [x, torch.randint(0, 256, shape, dtype=torch.uint8)][: 1 + residual]
    inputs = [value.contiguous(memory_format=torch.channels_last) for value in inputs]  # nothing to copy for the kernel
    kept = [value.clone() for value in inputs]
    codes, exact = layer.kernel(*inputs), layer.integer(*inputs)
    assert codes.dtype == torch.uint8
    gap = (codes.int() - exact.int()).abs()
    assert gap.max() <= 1 and (gap > 0).float().mean() <= 1e-3
    assert all(torch.equal(a, b) for a, b in zip(inputs, kept, strict=True))  # the residual is not overwritten


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_extreme_codes_are_exact_or_go_to_integers(geometry):
    layer = layer_of(geometry, 127, 0, False)
    layer.weight.fill_(127)
    layer.settle(layer.sources)
    x = torch.full((2, geometry[0], 9, 9), 255, dtype=torch.uint8)
    layer.out_scale.copy_(layer.sums(x)[0].max() * layer.unit.max() / 100)  # so that the output does not saturate
    layer.settle(layer.sources)
    assert layer.integer(x).max() < 255
    assert torch.equal(layer.kernel(x), layer.integer(x))
    depthwise = geometry[-1] == geometry[0]
    assert layer.packed.usable == (depthwise or not kernels.kernels_saturate())


def test_the_largest_safe_pair_is_exact():
    layer = layer_of(GEOMETRIES[1], 127, 0, False)
    layer.weight.fill_(64)
    layer.bias.zero_()
    layer.out_scale.fill_(16 * 255 * 64 * 0.02 * 0.011 / 120)
    layer.settle(layer.sources)
    x = torch.full((2, 16, 5, 5), 255, dtype=torch.uint8)
    assert torch.equal(layer.kernel(x), layer.integer(x)) and layer.integer(x).max() < 255
    assert layer.packed.usable


def test_each_input_shape_has_its_own_packing_and_few_are_kept():
    layer = layer_of((16, 24, (1, 1), (1, 1), (0, 0), (1, 1), 1), 60, 0, False)
    for size in (3, 4, 5, 6, 7, 7, 3):
        x = torch.randint(0, 256, (1, 16, size, size), dtype=torch.uint8)
        gap = (layer.kernel(x).int() - layer.integer(x).int()).abs()
        assert gap.max() <= 1 and (gap > 0).float().mean() <= 0.01
    assert layer.packed.in_order.cache_info()[:4] == (1, 6, 4, 4)  # hits, misses, most, kept
