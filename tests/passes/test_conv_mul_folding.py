import operator

import pytest
import torch

from tests.passes.folding import calls, fold, reasons
from tests.passes.zoo import conv, up, with_conv, z

X = torch.randn(2, 4, 6, 5)
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
    graph_module, _ = fold("conv_mul_folding", model, X)
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
    graph_module, report = fold("conv_mul_folding", model, X)
    assert {operator.mul, operator.truediv} & set(calls(graph_module)) and reason in reasons(report)[0]
