import operator

import pytest
import torch

from tests.passes.folding import calls, fold, reasons
from tests.passes.zoo import conv, up, with_conv, z

X, WIDE = torch.randn(2, 3, 6, 5), torch.randn(2, 4, 6, 5)
SUMS = {
    "y + z": lambda y, z: y + z,
    "z + y": lambda y, z: z + y,
    "y - z": lambda y, z: y - z,
    "z - y": lambda y, z: z - y,
}


@pytest.mark.parametrize("make", [conv, up])
@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (1,), ()])
@pytest.mark.parametrize("what", SUMS)
def test_a_constant_per_channel_goes_into_the_bias(what, shape, make):
    model = with_conv(lambda m, x: SUMS[what](m.conv(x), m.z), z=lambda: torch.randn(shape), conv=make)()
    graph_module, _ = fold("conv_add_folding", model, X)
    assert calls(graph_module) == [type(model.conv)]


def test_a_number_too_and_a_bias_appears():
    model = with_conv(lambda m, x: 2 - (m.conv(x) + 3), conv=lambda: conv(bias=False))()
    graph_module, _ = fold("conv_add_folding", model, X)
    assert calls(graph_module) == [type(model.conv)]
    assert torch.allclose(graph_module.conv.bias, torch.tensor(-1.0).double())
    assert model.conv.bias is None


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((4, 1, 3), "another axis"), ((2, 4, 1, 1), "another axis"), ((3,), "another axis"), ((1, 1, 4, 1, 1), "shape")],
)
def test_other_constants_stay(shape, reason):
    model = with_conv(lambda m, x: m.conv(x) + m.z, z=z(*shape))()
    graph_module, report = fold("conv_add_folding", model, X)
    assert operator.add in calls(graph_module) and reason in reasons(report)[0]


def test_two_layers_are_no_constant():
    model = with_conv(lambda m, x: m.conv(x) + m.other(x), other=conv)()
    graph_module, report = fold("conv_add_folding", model, X)
    assert operator.add in calls(graph_module) and report.changed == []


PRODUCTS = {"y * z": lambda y, z: y * z, "z * y": lambda y, z: z * y, "y / z": lambda y, z: y / z}
LAYERS = {
    "grouped": lambda: conv(4, 6, groups=2),
    "square transposed": lambda: up(4, 4),
    "grouped transposed": lambda: up(4, 6, groups=2),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("what", PRODUCTS)
def test_a_factor_per_channel_goes_into_the_weight(what, layer):
    torch.manual_seed(0)
    made = LAYERS[layer]()
    model = with_conv(lambda m, x: PRODUCTS[what](m.conv(x), m.z), z=z(made.out_channels, 1, 1), conv=lambda: made)()
    graph_module, _ = fold("conv_mul_folding", model, WIDE)
    assert calls(graph_module) == [type(made)]


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda m, x: m.z / m.conv(x), "not an affine map"),
        (lambda m, x: m.conv(x) / 0, "not finite"),
        (lambda m, x: m.conv(x) * m.wide, "another axis"),
        (lambda m, x: m.conv(x) * x.mean(), "is not a constant"),
    ],
)
def test_what_is_no_factor_per_channel_stays(run, reason):
    model = with_conv(run, conv=lambda: conv(4, 4), z=z(4, 1, 1), wide=z(3))()
    graph_module, report = fold("conv_mul_folding", model, WIDE)
    assert {operator.mul, operator.truediv} & set(calls(graph_module)) and reason in reasons(report)[0]
