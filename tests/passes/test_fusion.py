import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.graphs.tracing import trace
from helpers.passes import PIPELINES, Passer, optimize
from helpers.passes.fused_layer import FusedLayer
from tests.passes.graphs import network

IMAGES = (2, 4, 8, 8)


def conv(outside=4, kernel=3, **settings):
    """Keeps the shape of IMAGES."""
    return nn.Conv2d(4, outside, kernel, padding=settings.pop("padding", kernel // 2), **settings)


def fused(graph_module):
    """The endings of the fused nodes: what is added, and the activation."""
    modules = dict(graph_module.named_modules())
    calls = [node for node in graph_module.graph.nodes if isinstance(modules.get(node.target), FusedLayer)]
    found = [("other" if len(node.args) == 2 else "", modules[node.target].activation) for node in calls]
    return [(other, "none" if activation is None else activation.function.__name__) for other, activation in found]


def check(net, x, route="fx"):
    """Fuse, compare in float64 (composition) and float32 (kernel), and give back the graph and the reasons."""
    graph_module, report = optimize(copy.deepcopy(net), x.clone(), level="inference", route=route)
    with torch.no_grad():
        exact = copy.deepcopy(net).double()(x.double())
        own = (net(x.clone()) - exact).abs().max() / exact.abs().max()
        error = (graph_module(x.clone()) - exact).abs().max() / exact.abs().max()
        assert error <= max(1e-5, 4 * own)
        result = copy.deepcopy(graph_module).double()(x.double())
        torch.testing.assert_close(result, exact, rtol=1e-10, atol=1e-10 * exact.abs().max().item())
    reasons = [reason for name, _, reason in report.declined if name == "fusion"]
    return graph_module, reasons


MUST_FUSE = {
    "relu": (lambda net, x: F.relu(net.conv(x)), "relu"),
    "relu in place": (lambda net, x: F.relu(net.conv(x), inplace=True), "relu"),
    "relu_ method": (lambda net, x: net.conv(x).relu_(), "relu"),
    "relu6": (lambda net, x: F.relu6(net.conv(x)), "hardtanh"),
    "relu6 module in place": (lambda net, x: net.relu6(net.conv(x)), "hardtanh"),
    "clamp 0 6": (lambda net, x: torch.clamp(net.conv(x), 0, 6), "hardtanh"),
    "clamp_ by name": (lambda net, x: net.conv(x).clamp_(min=0, max=6), "hardtanh"),
    "hardtanh with other limits": (lambda net, x: F.hardtanh(net.conv(x), -0.5, 0.25), "hardtanh"),
    "leaky relu": (lambda net, x: F.leaky_relu(net.conv(x), 0.3), "leaky_relu"),
    "hardswish": (lambda net, x: F.hardswish(net.conv(x)), "hardswish"),
    "silu": (lambda net, x: F.silu(net.conv(x)), "silu"),
    "sigmoid": (lambda net, x: torch.sigmoid(net.conv(x)), "sigmoid"),
    "tanh": (lambda net, x: torch.tanh(net.conv(x)), "tanh"),
    "gelu": (lambda net, x: F.gelu(net.conv(x)), "gelu"),
    "clamp from below": (lambda net, x: net.conv(x).clamp(min=0), "relu"),
    "clamp with other limits": (lambda net, x: net.conv(x).clamp(min=-1.5, max=0.5), "hardtanh"),
}


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("case", MUST_FUSE)
def test_an_activation_becomes_part_of_the_convolution(case, route):
    forward, name = MUST_FUSE[case]
    graph_module, reasons = check(
        network(forward, conv=conv(), relu6=nn.ReLU6(inplace=True)), torch.randn(IMAGES), route
    )
    assert fused(graph_module) == [("", name)]
    assert reasons == []


@pytest.mark.parametrize("settings", [{"padding": "same", "dilation": 2}, {"padding": "valid"}])
def test_padding_by_name(settings):
    graph_module, _ = check(network(lambda net, x: F.relu6(net.conv(x)), conv=conv(**settings)), torch.randn(IMAGES))
    assert fused(graph_module) == [("", "hardtanh")]


def branch_write(net, x):
    y = net.conv(x)
    x.mul_(2)
    return F.relu(y) + x


MUST_DECLINE = {
    "used twice": (lambda net, x: (lambda y: F.relu(y) * y)(net.conv(x)), {}, "is also used by mul"),
    "used twice, one in place": (
        lambda net, x: (lambda y: torch.cat([F.relu_(y), y]))(net.conv(x)),
        {},
        "is also used by cat",
    ),
    "one limit": (lambda net, x: net.conv(x).clamp(max=6), {}, "one limit"),
    "a limit that is computed": (lambda net, x: F.hardtanh(net.conv(x), 0, x.shape[0]), {}, "known beforehand"),
    "tanh gelu": (lambda net, x: F.gelu(net.conv(x), approximate="tanh"), {}, "approximate='tanh'"),
    "reflect": (lambda net, x: F.relu(net.conv(x)), {"conv": conv(padding_mode="reflect")}, "padding_mode='reflect'"),
    "transposed": (lambda net, x: F.relu(net.conv(x)), {"conv": nn.ConvTranspose2d(4, 4, 3)}, "transposed"),
    "one dimension": (lambda net, x: F.relu(net.conv(x[0])), {"conv": nn.Conv1d(8, 4, 3)}, "no fused form of Conv1d"),
    "no batch": (lambda net, x: net.conv(x[0]), {}, "4 dimensions"),
    "uneven same": (
        lambda net, x: F.relu(net.conv(x)),
        {"conv": conv(kernel=2, padding="same")},
        "another amount left than right",
    ),
    "input written in between": (branch_write, {}, "mul_, which stands in between, may write"),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("case", MUST_DECLINE)
def test_what_must_stay_is_declined_with_the_reason(case):
    forward, parts, expected = MUST_DECLINE[case]
    graph_module, reasons = check(network(forward, **({"conv": conv()} | parts)), torch.randn(IMAGES))
    assert all(ending[1] == "none" for ending in fused(graph_module))
    assert any(expected in reason for reason in reasons), reasons


def test_a_hook_is_not_lost():
    seen = []
    net = network(lambda net, x: F.relu(net.conv(x)), conv=conv())
    net.conv.register_forward_hook(lambda *_: seen.append(1))
    graph_module, report = optimize(net, torch.randn(IMAGES), level="inference")
    assert fused(graph_module) == []
    assert any("hook" in reason for _, _, reason in report.declined)


ADDITIONS = {
    "x + conv": (lambda net, x: (lambda x: x + net.two(x))(net.one(x).exp()), [("other", "none")]),
    "conv + x": (lambda net, x: (lambda x: net.two(x) + x)(net.one(x).exp()), [("other", "none")]),
    "with its own input": (lambda net, x: x + net.two(x), [("other", "none")]),
    "input needed later": (lambda net, x: (x + net.two(x)) * x.exp() - x, [("other", "none")]),
    "in place": (lambda net, x: (lambda y: y.add_(x))(net.two(x)), [("other", "none")]),
    "two convolutions": (lambda net, x: net.one(x) + net.two(x), [("other", "none")]),
    "then relu": (lambda net, x: F.relu(x + net.two(x)), [("other", "relu")]),
    "then relu6": (lambda net, x: F.relu6(x + net.two(x)), [("other", "none")]),
    "relu, then added": (lambda net, x: x + F.relu(net.two(x)), [("", "relu")]),
    "both": (lambda net, x: x + net.two(F.relu6(net.one(x))), [("", "hardtanh"), ("other", "none")]),
}


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("case", ADDITIONS)
def test_a_residual_becomes_part_of_the_convolution(case, route):
    forward, expected = ADDITIONS[case]
    x = torch.randn(IMAGES)
    before = x.clone()
    graph_module, _ = check(network(forward, one=conv(), two=conv(kernel=1)), x, route)
    with torch.no_grad():
        graph_module(x)
    assert torch.equal(x, before)
    endings = [ending for ending in fused(graph_module) if ending != ("", "none")]
    assert endings == expected


KEEP_ADDING = {
    "itself": (lambda net, x: (lambda y: y + y)(net.conv(x)), "is added to itself"),
    "broadcast": (lambda net, x: net.conv(x) + x[:, :, :1, :1], "only equal ones add"),
    "broadcast of the batch": (lambda net, x: net.conv(x) + x[:1], "only equal ones add"),
    "another dtype": (lambda net, x: net.conv(x) + x.double(), "only equal ones add"),
    "alpha": (lambda net, x: torch.add(net.conv(x), x, alpha=2), "alpha"),
    "used twice": (lambda net, x: (lambda y: (x + y) * y)(net.conv(x)), "is also used by mul"),
    "other written in place": (lambda net, x: (z := x.exp()).view_as(z) * z.add_(net.conv(x)), "writes into exp"),
}


@pytest.mark.parametrize("case", KEEP_ADDING)
def test_an_addition_that_must_stay_is_declined_with_the_reason(case):
    forward, expected = KEEP_ADDING[case]
    graph_module, reasons = check(network(forward, conv=conv()), torch.randn(IMAGES))
    assert all(ending[0] == "" for ending in fused(graph_module))
    assert any(expected in reason for reason in reasons), reasons


def test_a_batch_of_one_may_grow_later():
    """Traced with one image the shapes agree; with three, what is added is broadcast."""
    net = network(lambda net, x: net.conv(x) + net.table, conv=conv(), table=torch.randn(1, 4, 8, 8))
    graph_module, _ = optimize(net, torch.randn(1, 4, 8, 8), level="inference")
    x = torch.randn(3, 4, 8, 8)
    torch.testing.assert_close(graph_module(x), net(x), rtol=1e-4, atol=1e-5)


def test_one_convolution_called_twice():
    graph_module, _ = check(
        network(lambda net, x: F.relu(net.conv(F.relu6(net.conv(x)))), conv=conv()), torch.randn(IMAGES)
    )
    assert fused(graph_module) == [("", "hardtanh"), ("", "relu")]


def test_a_second_run_changes_nothing():
    graph_module = trace(network(lambda net, x: F.relu(x + net.conv(x)), conv=conv()), (torch.randn(IMAGES),))
    passes = ["canonicalize", *PIPELINES["inference"]]
    first, second = Passer(passes).run(graph_module), Passer(passes).run(graph_module)
    assert len(first.changed) >= 3
    assert second.changed == []


LAYERS = st.lists(
    st.tuples(
        st.sampled_from([(1, 1), (3, 1), (3, 4), (5, 2)]),  # kernel, groups
        st.sampled_from(["none", "relu", "relu6", "silu", "leaky"]),
        st.booleans(),  # add the input
    ),
    min_size=1,
    max_size=4,
)
FUNCTIONS = {"none": lambda y: y, "relu": F.relu, "relu6": F.relu6, "silu": F.silu, "leaky": F.leaky_relu}


@settings(max_examples=15, deadline=None, derandomize=True)
@given(LAYERS, st.integers(1, 3), st.integers(3, 9))
def test_random_chains(layers, batch, size):
    torch.manual_seed(0)

    def forward(net, x):
        for number, (_, activation, residual) in enumerate(layers):
            y = getattr(net, f"conv{number}")(x)
            x = FUNCTIONS[activation](x + y if residual else y)
        return x

    parts = {f"conv{i}": conv(kernel=kernel, groups=groups) for i, ((kernel, groups), *_) in enumerate(layers)}
    graph_module, _ = check(network(forward, **parts), torch.randn(batch, 4, size, size))
    assert len(fused(graph_module)) == len(layers)
