"""The fused kernels leave channels_last memory; whoever counts on contiguous memory must not notice."""

import pytest
import torch
from torch import nn

from helpers import passes
from helpers.graphs.tracing import trace
from tests.passes.equivalence import differences
from tests.passes.zoo import conv, norm, with_conv

X = torch.randn(2, 3, 6, 6)


def written_view(m, x):
    y = m.conv(x)
    view = y.flatten(1)
    y.add_(2)
    return view + 1


def written_through_the_view(m, x):
    y = torch.relu(m.conv(x)) * x.mean()
    y.view(-1).add_(1)
    return y * 2


def written_contiguous(m, x):
    y = m.conv(x)
    y.contiguous().add_(1)
    return m.bn(y)


def written_reshape(name):
    def run(m, x):
        y = m.conv(x)
        getattr(y, name)(*{"reshape": (-1,), "reshape_as": (x.new_empty(2, 64),), "ravel": ()}[name]).add_(1)
        return m.bn(y)

    return run


COUNTS_ON_IT = {
    "view": lambda m, x: (y := torch.relu(m.bn(m.conv(x)))).view(y.size(0), -1),
    "view of all": lambda m, x: m.bn(m.conv(x)).view(-1),
    "view of a flattened one": lambda m, x: m.conv(x).flatten(2).view(8, -1),
    "view after an elementwise step": lambda m, x: m.conv(x).flatten(2).relu().view(8, -1),
    "view_as": lambda m, x: m.conv(x).view_as(x.new_empty(2, 64)),
    "as_strided": lambda m, x: m.conv(x).as_strided((2, 3), (5, 1)),
    "flatten, then written": written_view,
    "written through a view": written_through_the_view,
    "contiguous, then written": written_contiguous,
    "reshape, then written": written_reshape("reshape"),
    "reshape_as, then written": written_reshape("reshape_as"),
    "ravel, then written": written_reshape("ravel"),
    "stride": lambda m, x: (y := m.conv(x)).abs().sum() * y.stride(1),
    "is_contiguous": lambda m, x: (y := m.conv(x)).abs().sum() * y.is_contiguous(),
}


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("what", COUNTS_ON_IT)
def test_the_answers_stay_the_same(what, route):
    model = with_conv(COUNTS_ON_IT[what])().eval()
    fast, report = passes.optimize(model, X, level="inference", route=route)
    assert any(name == "fusion" for name, _, _ in report.changed)
    assert differences(model, fast, X) == []
    assert passes.Passer(["contiguity"]).run(fast).changed == []
    assert all("val" in node.meta for node in fast.graph.find_nodes(op="call_method", target="contiguous"))


def test_without_the_pass_they_would_not(monkeypatch):
    names = [name for name in passes.PIPELINES["inference"] if name != "contiguity"]
    monkeypatch.setitem(passes.PIPELINES, "inference", names)
    broken = []
    for what, run in COUNTS_ON_IT.items():
        model = with_conv(run)().eval()
        if differences(model, passes.optimize(model, X, level="inference", verify=False)[0], X):
            broken.append(what)
    assert broken == list(COUNTS_ON_IT)


@torch.no_grad()
def test_a_result_comes_in_the_memory_format_that_the_network_gave():
    model = nn.Sequential(conv(), norm(4)).eval()
    straight, _ = passes.optimize(model, X, level="inference")
    assert straight(X).is_contiguous() and straight(X).view(2, -1).shape == (2, 64)
    last = X.to(memory_format=torch.channels_last)
    model = model.to(memory_format=torch.channels_last)
    kept, report = passes.optimize(model, last, level="inference")
    assert kept(last).is_contiguous(memory_format=torch.channels_last)
    assert not any(name == "contiguity" for name, _, _ in report.changed)


def matrix(m, x):
    return m.fc(m.conv(x).mean((2, 3))).view(2, 2, 2)


def one_pixel(m, x):
    return m.conv(x[:, :, :3, :3]).view(2, 4)


def in_its_own_order(m, x):
    return m.conv(x).contiguous(memory_format=torch.channels_last).tanh()


@torch.no_grad()  # where gradients are wanted, no kernel runs
def strides(model):
    return model(X).stride()


@pytest.mark.parametrize("run", [matrix, one_pixel, in_its_own_order])
def test_nothing_is_done_where_nobody_notices(run):
    model = with_conv(run, fc=lambda: nn.Linear(4, 4))().eval()
    fast, report = passes.optimize(model, X, level="inference")
    assert any(name == "fusion" for name, _, _ in report.changed)
    assert not any(name == "contiguity" for name, _, _ in report.changed)
    assert differences(model, fast, X) == [] and strides(fast) == strides(model)


def test_a_result_that_never_was_contiguous_stays():
    model = with_conv(lambda m, x: m.conv(x).flatten(2).transpose(1, 2).tanh())().eval()
    fast, _ = passes.optimize(model, X, level="inference")
    assert differences(model, fast, X) == [] and strides(fast) == strides(model)


def test_without_a_fused_convolution_there_is_nothing_to_undo():
    graph_module = trace(with_conv(COUNTS_ON_IT["view_as"])().eval(), (X,))
    assert passes.Passer(["contiguity"]).run(graph_module).changed == []


def test_a_view_as_another_dtype_stays_a_view():
    model = with_conv(lambda m, x: m.conv(x).view(torch.int32))().eval()
    fast, _ = passes.optimize(model, X, level="inference")
    assert fast(X).dtype == torch.int32 and fast(X).shape == model(X).shape
