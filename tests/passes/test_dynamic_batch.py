import pytest
import torch
from torch import nn

from helpers import passes
from helpers.graphs.tracing import trace
from helpers.passes.errors import CheckFailed, UnsupportedCase
from helpers.passes.passer import Passer
from tests.passes.graphs import network

X = torch.randn(4, 3, 6, 6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(64, 5)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))
        x = x.view(x.shape[0], 4, 16).transpose(1, 2)
        return self.head(x.reshape(x.size(0), -1))


def test_an_exported_graph_takes_any_batch_size():
    net = Net().eval()
    graph_module, _ = passes.optimize(net, X, route="export")
    with pytest.raises(RuntimeError):
        graph_module(X[:3])
    report = Passer(["dynamic_batch"]).run(graph_module)
    assert len(report.changed) == 2
    for batch in (1, 3, 4, 9):
        x = torch.randn(batch, 3, 6, 6)
        torch.testing.assert_close(graph_module(x), net(x), rtol=1e-5, atol=1e-6)
    assert Passer(["dynamic_batch"]).run(graph_module).changed == []


@pytest.mark.parametrize("size", [1, 2, 7])
def test_the_folds_keep_a_graph_that_was_recorded_with_a_dynamic_batch(size):
    net = Net().eval()
    for parameter in net.bn.parameters():
        nn.init.uniform_(parameter)
    batch = torch.export.Dim("batch", min=1, max=64)
    graph_module = torch.export.export(net, (X,), dynamic_shapes=({0: batch},)).module(check_guards=False)
    Passer(["canonicalize", "conv_bn_folding"]).run(graph_module)
    assert not [node for node in graph_module.graph.nodes if "batch_norm" in node.name]
    x = torch.randn(size, 3, 6, 6)
    torch.testing.assert_close(graph_module(x), net(x), rtol=1e-4, atol=1e-5)


def test_the_number_of_channels_is_not_taken_for_the_batch():
    net = network(lambda net, x: x.transpose(0, 1).reshape(4, 8, 2) + 1)
    graph_module = trace(net, (torch.randn(4, 4, 4),), route="export")
    code = graph_module.code
    with pytest.raises(CheckFailed, match="reshape"):
        Passer(["dynamic_batch"]).run(graph_module)
    assert graph_module.code == code


def test_a_size_that_is_not_in_front_of_the_operand_is_declined():
    net = network(lambda net, x: x.sum() + net.z.view(4, 2))
    net.z = nn.Parameter(torch.randn(8))
    report = Passer(["dynamic_batch"]).run(trace(net, (X,), route="export"))
    assert report.changed == []
    assert report.declined[0][2] == "has 4 in front of its sizes, but its operand has 8"


def test_a_batch_of_one_cannot_be_told_apart():
    with pytest.raises(UnsupportedCase, match="recorded with a batch of 1"):
        Passer(["dynamic_batch"]).run(trace(Net().eval(), (X[:1],), route="export"))


def test_a_graph_that_mixes_its_images_is_refused():
    net = network(lambda net, x: x.flatten(1) @ net.w)
    net.w = nn.Parameter(torch.randn(108, 4))
    assert Passer(["dynamic_batch"]).run(trace(net, (X,), route="export")).changed == []
    net = network(lambda net, x: net.w @ x.flatten(1))
    net.w = nn.Parameter(torch.randn(5, 4))
    with pytest.raises(CheckFailed, match="does not take another batch size"):
        Passer(["dynamic_batch"]).run(trace(net, (X,), route="export"))
