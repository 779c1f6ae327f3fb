"""Each operation on codes: in integers as the reference computes it, simulated and with int8
kernels but for ties.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.quantization import Recipe, kernels, quantize
from helpers.quantization.affine import Affine
from helpers.quantization.integer import Layer, make_step
from helpers.quantization.kernels import conv_sums
from helpers.quantization.plan import INPUT, PlanOp
from helpers.quantization.weights import LayerWeights
from tests.quantization import reference
from tests.quantization.networks import images, small

ONE_BY_ONE = (16, 24, (1, 1), (1, 1), (0, 0), (1, 1), 1)
GEOMETRIES = [  # inputs, outputs, kernel, stride, padding, dilation, groups
    ONE_BY_ONE,
    (3, 5, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (5, 7, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (24, 24, (3, 3), (2, 2), (1, 1), (1, 1), 24),
    (6, 6, (3, 2), (2, 1), (2, 1), (2, 1), 6),
    (4, 8, (3, 3), (1, 1), (1, 1), (1, 1), 4),
    (8, 12, (3, 2), (2, 1), (1, 0), (1, 1), 4),
    (4, 6, (2, 3), (1, 2), (2, 3), (2, 2), 2),
    (1, 1, (1, 1), (3, 3), (0, 0), (1, 1), 1),
]


def test_a_wide_dilation_takes_no_more_memory_than_a_narrow_one():
    x = torch.randint(0, 256, (1, 8, 80, 80), dtype=torch.uint8)
    weight = torch.randint(-9, 9, (8, 8, 3, 3), dtype=torch.int8)
    sums, made = [], []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **kwargs or {})
            made.append(result.numel())
            return result

    for step in (1, 36):
        made.clear()
        with Watched():
            sums.append(conv_sums(x, weight, 3, (1, 1), (step, step), (step, step), 1))
        assert max(made) <= 8 * (80 + 2 * step) ** 2
    exact = F.conv2d(F.pad(x.double(), [36] * 4, value=3), weight.double(), dilation=36)
    assert torch.equal(sums[1].double(), exact)


def affine(scale, zero_point):
    return Affine(torch.tensor(scale), torch.tensor(zero_point, dtype=torch.int32), 8, signed=False)


def assert_right(step, sources, *inputs):
    """Compared with the reference: equal in integers; one code off at a tie, at most, in float and
    by a kernel.
    """
    inputs = [x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x for x in inputs]
    kept, codes = [x.clone() for x in inputs], step.integer(*inputs)
    sources = [(float(source.scale), int(source.zero_point)) for source in sources]
    expected = reference.run_step(step, [x.numpy() for x in inputs], sources)
    assert codes.dtype == torch.uint8 and np.array_equal(codes.numpy(), expected)
    for found in (step.simulated(*inputs), step.kernel(*inputs)):
        gap = (found.int() - codes.int()).abs()
        assert found.dtype == torch.uint8 and gap.max() <= 1 and (gap > 0).float().mean() < 0.01
    assert all(
        torch.equal(x, before) for x, before in zip(inputs, kept, strict=True)
    )  # the residual among them


def layer_of(geometry, zero_point=0, residual=False, size=(7, 9), weight=None):
    """A layer with random codes, or with the same everywhere, whose outputs fill the range."""
    inputs, outputs, kernel, stride, padding, dilation, groups = geometry
    codes = torch.randint(-60, 61, (outputs, inputs // groups, *kernel), dtype=torch.int8)
    codes = codes if weight is None else codes.fill_(weight)
    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    sources = [affine(0.02, zero_point), *[affine(0.04, 90)] * residual]
    weights = LayerWeights(codes, torch.rand(outputs) * 0.01 + 0.001, torch.randn(outputs), 8)
    shape = torch.nn.functional.conv2d(
        torch.zeros(1, inputs, *size), codes.float(), **attributes
    ).shape[1:]
    op = PlanOp(
        "conv",
        "conv",
        ("x", "r")[: 1 + residual],
        clamp=(-2.0, math.inf),
        attributes=attributes,
        shape=shape,
    )
    layer = Layer(op, weights, sources[0], affine(0.05, 128))
    layer.sources = sources
    layer.derive_integers()
    return layer


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("zero_point", [0, 117, 255])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolutions(geometry, zero_point, residual):
    layer = layer_of(geometry, zero_point, residual)
    x = torch.randint(0, 256, (2, geometry[0], 7, 9), dtype=torch.uint8)
    assert_right(
        layer,
        layer.sources,
        x,
        *[torch.randint(0, 256, (2, *layer.op.shape), dtype=torch.uint8)] * residual,
    )


@pytest.mark.parametrize("weight", [127, 64])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_extreme_codes_are_exact_or_go_to_integers(geometry, weight):
    layer, x = (
        layer_of(geometry, weight=weight),
        torch.full((2, geometry[0], 7, 9), 255, dtype=torch.uint8),
    )
    layer.out_scale.copy_(
        layer.sums(x)[0].max() * layer.unit.max() / 100
    )  # so that the output does not saturate
    layer.derive_integers()
    assert_right(layer, layer.sources, x)
    assert layer.integer(x).max() < 255 and torch.equal(layer.kernel(x), layer.integer(x))
    safe = weight == 64 or geometry[0] == geometry[-1] or not kernels.kernels_saturate()
    assert layer.packed.usable == (safe and kernels.available())


@pytest.mark.skipif(not kernels.available(), reason="this build has no oneDNN int8 convolutions")
def test_each_input_shape_has_its_own_packing_and_few_are_kept():
    layer = layer_of(ONE_BY_ONE)
    for size in (3, 4, 5, 6, 7, 7, 3):
        x, layer.op.shape = (
            torch.randint(0, 256, (1, 16, size, size), dtype=torch.uint8),
            (24, size, size),
        )
        assert (layer.kernel(x).int() - layer.integer(x).int()).abs().max() <= 1
    assert layer.packed.arguments_for.cache_info()[:4] == (1, 6, 4, 4)  # hits, misses, most, kept


IMAGE = torch.arange(256, dtype=torch.uint8).reshape(1, 4, 8, 8)
POOL, WHOLE = {"kernel": (2, 2), "stride": (2, 2)}, {"kernel": (8, 8), "stride": (8, 8)}
MAX_POOL = {**POOL, "padding": (1, 1), "dilation": (1, 1), "ceil_mode": False}


@pytest.mark.parametrize(
    ("kind", "options", "sources", "out"),
    [  # powers of two make many ties
        ("add", {"shape": (4, 8, 8)}, [(0.5, 3), (0.25, 200)], (0.5, 120)),
        ("add", {"shape": (4, 8, 8), "clamp": (0.0, 6.0)}, [(0.1, 0), (0.01, 255)], (0.05, 0)),
        ("average_pool", {"attributes": POOL, "shape": (4, 4, 4)}, [(0.5, 7)], (0.25, 255)),
        ("average_pool", {"attributes": WHOLE, "shape": (4,)}, [(1.0, 9)], (2.0, 9)),
        ("clamp", {"clamp": (-3.0, 20.0), "shape": (4, 8, 8)}, [(0.25, 128)], (0.5, 64)),
        ("max_pool", {"attributes": MAX_POOL, "shape": (4, 5, 5)}, [(1.0, 9)], None),
        ("reshape", {"shape": (256,)}, [(1.0, 9)], None),
    ],
)
def test_operations_without_weights(kind, options, sources, out):
    step = make_step(PlanOp("s", kind, ("a", "b")[: len(sources)], **options), out and affine(*out))
    sources = [affine(*source) for source in sources]
    step.sources = sources
    step.derive_integers()
    assert_right(step, sources, *[IMAGE, IMAGE.flip(1)][: len(sources)])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_maximum_of_codes_is_that_of_numbers_on_large_images_too(memory_format):
    codes = torch.randint(0, 256, (2, 8, 20, 18), dtype=torch.uint8).contiguous(
        memory_format=memory_format
    )
    settings = {"kernel": 3, "stride": 2, "padding": 1, "dilation": 1, "ceil_mode": False}
    op = PlanOp("pool", "max_pool", (INPUT,), attributes=settings, shape=(8, 10, 9))
    assert torch.equal(op.run(codes).float(), op.run(codes.float()))


@pytest.mark.parametrize("mode", ["simulated", "integer", "kernel"])
def test_a_dead_channel_with_a_bias_keeps_its_bias(mode):
    model, x = small(), images()
    with torch.no_grad():
        model.fc.weight[1:3], model.fc.bias[1:3] = torch.tensor([[1e-12], [0.0]]), 0.3
    quantized = quantize(model, x, Recipe(observer="minmax"))
    quantized.mode = mode
    assert torch.allclose(quantized(x)[:, 1:3], torch.tensor(0.3))
