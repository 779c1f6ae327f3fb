import copy

import pytest
import torch
from torch import fx, nn

from helpers.passes import Passer
from helpers.passes.direct_access import DirectAccess, rewrite


class Deep(nn.Module):
    """Reads its weights by hand, at several depths."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Sequential(nn.Linear(3, 3)), nn.BatchNorm1d(3))
        self.top = nn.Parameter(torch.randn(3))

    def forward(self, x):
        y = torch.nn.functional.linear(x, self.block[0][0].weight, self.block[0][0].bias)
        return self.block[0](y) * self.block[1].running_var + self.top


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('w = getattr(self.features, "0").weight', 'w = self._modules["features"]._modules["0"].weight'),
        (
            'w = getattr(getattr(self.a, "1").conv, "0").bias;  y = None\n',
            'w = self._modules["a"]._modules["1"]._modules["conv"]._modules["0"].bias;  y = None\n',
        ),
        ("w = self.conv.weight", 'w = self._modules["conv"].weight'),
        ("w = self.top", "w = self.top"),
    ],
)
def test_reading_a_weight_becomes_direct(line, expected):
    assert rewrite([line]) == [expected]


@pytest.mark.parametrize(
    "line",
    ['y = getattr(self.features, "0")(x);  x = None', "y = self.conv(x)", "y = f(self.conv.weight)", "return y", "\n"],
)
def test_what_calls_something_stays(line):
    assert rewrite([line]) == [line]


def test_the_network_computes_the_same_also_as_a_copy():
    graph_module, x = fx.symbolic_trace(Deep().eval()), torch.randn(4, 3)
    expected = graph_module(x)
    report = Passer(["direct_access"]).run(graph_module)
    assert [what for _, _, what in report.changed] == ["reads 3 weights directly"]
    assert graph_module.code.count("_modules") == 3 + 3 + 2  # so many steps lead to the three weights
    assert torch.equal(graph_module(x), expected)
    twin = copy.deepcopy(graph_module)
    with torch.no_grad():
        twin.get_parameter("block.0.0.weight").zero_()
    assert not torch.equal(twin(x), expected)
    assert torch.equal(graph_module(x), expected)


def test_a_second_run_changes_nothing():
    graph_module = fx.symbolic_trace(Deep().eval())
    Passer(["direct_access"]).run(graph_module)
    assert Passer(["direct_access"]).run(graph_module).changed == []


def test_a_way_through_something_else_is_declined():
    net = Deep().eval()
    net.__dict__["box"] = type("Box", (), {"value": torch.ones(3)})()
    graph_module = fx.symbolic_trace(net)
    graph_module.__dict__["box"] = net.box
    graph = graph_module.graph
    with graph.inserting_before(graph.output_node()):
        graph.create_node("get_attr", "box.value")
    result = DirectAccess().run(graph_module)
    assert result.changed == []
    assert "not a module" in result.declined[0].reason
