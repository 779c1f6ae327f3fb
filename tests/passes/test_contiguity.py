"""The fused kernels leave channels_last memory; whoever counts on contiguous memory must not notice."""

import pytest
import torch
from torch import nn

from helpers import passes
from helpers.graphs.tracing import trace
from tests.passes.equivalence import differences
from tests.passes.zoo import conv, norm, with_conv

X = torch.randn(2, 3, 6, 6)


def written(name, *arguments):
    """A view by this method, written into before the convolution's result is read."""

    def run(m, x):
        y = m.conv(x)
        getattr(y, name)(*arguments).add_(1)
        return m.bn(y)

    return run


def written_view(m, x):
    y = m.conv(x)
    view = y.flatten(1)
    y.add_(2)
    return view + 1


COUNTS_ON_IT = {
    "view": lambda m, x: (y := torch.relu(m.bn(m.conv(x)))).view(y.size(0), -1),
    "view of all": lambda m, x: m.bn(m.conv(x)).view(-1),
    "view of a flattened one": lambda m, x: m.conv(x).flatten(2).view(8, -1),
    "view after an elementwise step": lambda m, x: m.conv(x).flatten(2).relu().view(8, -1),
    "view_as": lambda m, x: m.conv(x).view_as(x.new_empty(2, 64)),
    "as_strided": lambda m, x: m.conv(x).as_strided((2, 3), (5, 1)),
    "flatten, then written": written_view,
    "contiguous, then written": written("contiguous"),
    "reshape, then written": written("reshape", -1),
    "ravel, then written": written("ravel"),
    "stride": lambda m, x: (y := m.conv(x)).abs().sum() * y.stride(1),
    "is_contiguous": lambda m, x: (y := m.conv(x)).abs().sum() * y.is_contiguous(),
}


@pytest.mark.parametrize("what", COUNTS_ON_IT)
def test_the_answers_stay_the_same_and_would_not_without_the_pass(what, monkeypatch):
    model = with_conv(COUNTS_ON_IT[what])().eval()
    for route in ("fx", "export"):
        # Verified, those would be refused whose answers are others in channels_last memory.
        fast, report = passes.optimize(model, X, level="inference", route=route, verify=False)
        assert any(name == "fusion" for name, _, _ in report.changed)
        assert differences(model, fast, X) == []
        assert passes.Passer(["contiguity"]).run(fast).changed == []
    monkeypatch.setitem(passes.PIPELINES, "inference", ["fusion"])
    assert differences(model, passes.optimize(model, X, level="inference", verify=False)[0], X)


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


@torch.no_grad()  # where gradients are wanted, no kernel runs
def strides(model):
    return model(X).stride()


UNNOTICED = {
    "a matrix": lambda m, x: m.fc(m.conv(x).mean((2, 3))).view(2, 2, 2),
    "one pixel": lambda m, x: m.conv(x[:, :, :3, :3]).view(2, 4),
    "in its own order": lambda m, x: m.conv(x).contiguous(memory_format=torch.channels_last).tanh(),
    "never contiguous": lambda m, x: m.conv(x).flatten(2).transpose(1, 2).tanh(),
    "as another dtype": lambda m, x: m.conv(x).view(torch.int32),
}


@pytest.mark.parametrize("what", UNNOTICED)
def test_results_keep_their_order_where_the_network_gives_it(what):
    model = with_conv(UNNOTICED[what], fc=lambda: nn.Linear(4, 4))().eval()
    fast, report = passes.optimize(model, X, level="inference")
    assert any(name == "fusion" for name, _, _ in report.changed)
    if list(UNNOTICED).index(what) < 3:
        assert not any(name == "contiguity" for name, _, _ in report.changed)
    with torch.no_grad():
        assert fast(X).dtype == model(X).dtype and strides(fast) == strides(model)
    assert fast(X).dtype == torch.int32 or differences(model, fast, X) == []


def test_without_a_fused_convolution_there_is_nothing_to_undo():
    graph_module = trace(with_conv(COUNTS_ON_IT["view_as"])().eval(), (X,))
    assert passes.Passer(["contiguity"]).run(graph_module).changed == []
