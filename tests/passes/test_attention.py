import math
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import passes
from helpers.graphs.tracing import trace
from helpers.passes.passer import Passer
from tests.passes.graphs import graph_of, network

Q, K, V = (torch.randn(2, 4, length, 8, dtype=torch.float64) for length in (5, 7, 7))
MASK = torch.full((5, 7), -torch.inf, dtype=torch.float64).triu(3)


class Attention(nn.Module):
    """A whole block, as it is usually written."""

    def __init__(self, heads=2, width=8):
        super().__init__()
        self.heads, self.scale = heads, (width / heads) ** -0.5
        self.qkv, self.out, self.drop = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Dropout(0.1)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        weights = self.drop(F.softmax(q @ k.transpose(-2, -1) * self.scale, dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(n, length, width))


def fused(function, inputs=(Q, K, V), route="fx", **parts):
    net = network(function, **parts)
    graph_module = trace(net, inputs, route=route)
    report = Passer(["attention_fusion", "dead_code"]).run(graph_module)
    names = [getattr(node.target, "__name__", "") for node in graph_module.graph.nodes]
    return net, graph_module, report, names.count("scaled_dot_product_attention")


WAYS = {
    "divided": lambda net, q, k, v: torch.softmax(q @ k.transpose(-2, -1) / 3.0, -1) @ v,
    "multiplied": lambda net, q, k, v: torch.matmul(F.softmax(0.25 * torch.matmul(q, k.transpose(2, 3)), dim=-1), v),
    "not scaled": lambda net, q, k, v: (q @ k.mT).softmax(-1) @ v,
    "by a buffer": lambda net, q, k, v: net.soft(torch.matmul(q, k.transpose(-1, -2)).mul(net.z)) @ v,
    "masked": lambda net, q, k, v: torch.softmax((q @ k.transpose(-2, -1)) / 3 + net.mask, 3) @ v,
    "mask first": lambda net, q, k, v: torch.softmax(net.mask + q @ k.mT, -1) @ v,
    "softmax of the same dtype": lambda net, q, k, v: F.softmax(q @ k.mT, -1, dtype=torch.float64) @ v,
}


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_it_is_fused(way, route):
    parts = {"soft": nn.Softmax(-1), "z": torch.tensor(0.3), "mask": MASK}
    net, graph_module, report, count = fused(WAYS[way], route=route, **parts)
    assert (count, report.declined) == (1, [])
    assert not [node for node in graph_module.graph.nodes if "softmax" in node.name or node.name == "soft"]
    torch.testing.assert_close(graph_module(Q, K, V), net(Q, K, V), rtol=1e-10, atol=1e-12)
    assert Passer(["attention_fusion"]).run(graph_module).changed == []


def test_a_transpose_that_is_there_is_used_and_one_that_is_not_is_made():
    _, graph_module, _, _ = fused(WAYS["divided"])
    assert [node.target for node in graph_module.graph.nodes if node.op == "call_method"] == []
    net, graph_module, _, count = fused(lambda net, q, k, v: torch.softmax(q @ k, -1) @ v, (Q, K.mT.contiguous(), V))
    assert count == 1
    assert [node.target for node in graph_module.graph.nodes if node.op == "call_method"] == ["transpose"]
    torch.testing.assert_close(graph_module(Q, K.mT, V), net(Q, K.mT, V), rtol=1e-10, atol=1e-12)
    inputs = (Q, K.mT.transpose(0, 1), V)  # another transpose than the one that is meant
    net, graph_module, _, count = fused(lambda net, q, k, v: torch.softmax(q @ k.transpose(0, 1), -1) @ v, inputs)
    assert count == 1
    torch.testing.assert_close(graph_module(*inputs), net(*inputs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda net, q, k, v: torch.softmax(q @ k.mT, -2) @ v, "its softmax runs over axis -2, not over the last one"),
        (lambda net, q, k, v: torch.softmax(q @ k.mT, 2) @ v, "its softmax runs over axis 2, not over the last one"),
        (lambda net, q, k, v: F.softmax(q @ k.mT, -1, dtype=torch.float32) @ v.float(), "the dtypes differ"),
        (lambda net, q, k, v: torch.softmax(q.float() @ k.float().mT / net.one, -1) @ v, "the dtypes differ"),
        (lambda net, q, k, v: torch.softmax(3.0 / (q @ k.mT), -1) @ v, None),
        (lambda net, q, k, v: ((s := torch.softmax(q @ k.mT, -1)) @ v, s), "softmax is also returned"),
        (lambda net, q, k, v: torch.softmax(q @ k.mT * net.row, -1) @ v, "scales by 7 numbers"),
        (lambda net, q, k, v: torch.softmax(q @ k.mT + net.hide, -1) @ v, "its mask hides a whole row"),
        (lambda net, q, k, v: torch.softmax(q @ k.mT + q[..., :1], -1) @ v, "getitem is not a constant"),
        (lambda net, q, k, v: torch.softmax(q @ k.mT + net.short, -1) @ v, "the mask is torch.float32"),
        (lambda net, q, k, v: torch.softmax(q @ k.mT + net.tall, -1) @ v, "its mask changes the shape of the scores"),
        (
            lambda net, q, k, v: torch.softmax(q[0, 0] @ k[0, 0].mT, -1) @ v[0, 0],
            "the batch axes differ or are missing",
        ),
    ],
)
def test_what_is_not_quite_attention_stays(function, reason):
    hide = MASK.clone().index_fill_(0, torch.tensor(2), -math.inf)
    parts = {
        "one": torch.tensor([3.0], dtype=torch.float64),
        "row": torch.arange(7.0, dtype=torch.float64),
        "hide": hide,
        "short": MASK.float(),
        "tall": MASK.repeat(3, 1, 1, 1, 1),
    }
    net, graph_module, report, count = fused(function, **parts)
    assert count == 0
    assert [why.startswith(reason) for *_, why in report.declined] == ([True] if reason else [])
    torch.testing.assert_close(graph_module(Q, K, V), net(Q, K, V), equal_nan=True)


def test_without_shapes_nothing_is_fused():
    graph_module = graph_of(WAYS["divided"])
    (reason,) = {reason for *_, reason in Passer(["attention_fusion"]).run(graph_module).declined}
    assert reason == "the shape of q is unknown: run type_inference first"


def test_the_row_that_is_hidden_really_differs():
    mask = torch.full((5, 7), -torch.inf, dtype=torch.float64)
    assert torch.isnan(torch.softmax(Q @ K.mT + mask, -1) @ V).all()
    assert not torch.isnan(F.scaled_dot_product_attention(Q, K, V, mask, scale=1.0)).any()


@pytest.mark.parametrize("route", ["fx", "export"])
def test_a_whole_block_after_the_usual_folds(route):
    net, x = Attention().double().eval(), torch.randn(3, 6, 8, dtype=torch.float64)
    graph_module, _ = passes.optimize(net, x, route=route)
    report = Passer(["attention_fusion", "dead_code"]).run(graph_module)
    assert [name for name, *_ in report.changed].count("attention_fusion") == 1
    torch.testing.assert_close(graph_module(x), net(x), rtol=1e-10, atol=1e-12)


def test_the_multiplication_order_matters():
    _, _, _, count = fused(lambda net, q, k, v: operator.matmul(v.mT, torch.softmax(q @ k.mT, -1).mT))
    assert count == 0
