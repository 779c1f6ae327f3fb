import pytest
import torch
from torch import nn

from helpers.graphs.tracing import trace
from helpers.passes import Passer
from tests.passes.equivalence import differences
from tests.passes.zoo import conv


@pytest.mark.parametrize(
    "pool", [nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d((2, 3), (1, 2))], ids=["plain", "padded", "oblong"]
)
@pytest.mark.parametrize("settings", [{}, {"stride": 2}, {"groups": 3, "out": 6}], ids=["1x1", "strided", "grouped"])
def test_pooling_and_a_1x1_convolution_become_one(pool, settings):
    model = nn.Sequential(pool, conv(kernel=1, **settings)).double().eval()
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    graph_module = trace(model, (x,))
    report = Passer(["canonicalize", "pool_folding"]).run(graph_module)
    assert ("pool_folding", "_0", "folded into _1") in report.changed
    assert differences(model, graph_module, x) == [] and len(graph_module.graph.nodes) == 3


@pytest.mark.parametrize(
    ("pool", "layer", "reason"),
    [
        (nn.AvgPool2d(3, 2, 1, count_include_pad=False), {"kernel": 1}, "count_include_pad"),
        (nn.AvgPool2d(2, ceil_mode=True), {"kernel": 1}, "ceil_mode"),
        (nn.AvgPool2d(2), {"kernel": 3}, "not a 1x1 convolution"),
        (nn.AvgPool2d(2), {"kernel": 1, "padding": 1}, "not a 1x1 convolution"),
    ],
)
def test_pooling_that_is_not_the_same_everywhere_stays(pool, layer, reason):
    model = nn.Sequential(pool, conv(**layer)).double().eval()
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    graph_module = trace(model, (x,))
    report = Passer(["canonicalize", "pool_folding"]).run(graph_module)
    assert reason in report.declined[0][2] and differences(model, graph_module, x) == []
