import random

import pytest
import torch
from torch import nn

from helpers.graphs.errors import MustStay
from helpers.passes.conv_bn_folding import folded, norm_as_affine
from tests.passes.folding import calls, fold
from tests.passes.zoo import conv, norm, up


def random_pair(seed: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(seed)
    chance = random.Random(seed)
    dimensions, groups, out = chance.randint(1, 3), chance.randint(1, 2), 2 * chance.randint(1, 3)
    settings = {"groups": groups, "stride": chance.randint(1, 2), "padding": 1, "bias": chance.random() < 0.5}
    make = chance.choice([conv, up])
    layer = make(2 * groups, out, chance.randint(2, 3), dimensions, **settings)
    x = torch.randn(chance.randint(1, 3), 2 * groups, *[chance.randint(4, 6) for _ in range(dimensions)])
    return nn.Sequential(layer, norm(out, dimensions, affine=chance.random() < 0.7, eps=chance.random())), x


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("seed", range(6))
def test_random_layers(seed, route):
    model, x = random_pair(seed)
    graph_module, report = fold("conv_bn_folding", model, x, route)
    assert calls(graph_module) == [type(model[0])] and len(report.changed) == 1


def test_the_formula_by_hand():
    made = norm(3)
    a, shift = norm_as_affine(made)
    y = torch.randn(2, 3, 4, 4)
    expected = torch.stack([a[c] * y[:, c] + shift[c] for c in range(3)], 1)
    torch.testing.assert_close(expected.float(), made.eval()(y))


def test_a_bias_appears_only_when_one_is_needed():
    layer = conv(bias=False)
    assert folded(layer, 2.0, 0.0).bias is None
    assert folded(layer, 2.0, torch.zeros(4)).bias is not None  # for any weights of this shape


def test_weights_without_data_are_refused():
    with pytest.raises(MustStay, match="no data"):
        folded(conv().to("meta"), 2.0, 0.0)
