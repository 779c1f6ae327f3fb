import pytest
import torch
from torch import fx, nn

from helpers.passes.passer import Passer
from tests.passes.graphs import graph_of


def norm(groups, channels, seed=0):
    torch.manual_seed(seed)
    layer = nn.GroupNorm(groups, channels).double()
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


def folded(net, *, channels=6, dims=2):
    """Fold a network, and check that its answers stay."""
    graph_module = fx.symbolic_trace(net.double().eval())
    x = torch.randn(3, channels, *(7,) * dims, dtype=torch.float64)
    expected = graph_module(x)
    report = Passer(["group_norm_folding"]).run(graph_module)
    torch.testing.assert_close(graph_module(x), expected, rtol=1e-10, atol=1e-12)
    assert Passer(["group_norm_folding"]).run(graph_module).changed == []
    return graph_module, report


LAYERS = {
    "1x1": (nn.Conv2d(6, 4, 1), 2),
    "no padding, no bias": (nn.Conv2d(6, 4, 3, bias=False), 2),
    "valid padding": (nn.Conv2d(6, 4, 3, padding="valid"), 2),
    "grouped": (nn.Conv2d(6, 4, 3, groups=2), 2),
    "depthwise": (nn.Conv2d(6, 12, 3, groups=6), 2),
    "1d": (nn.Conv1d(6, 4, 2), 1),
    "3d": (nn.Conv3d(6, 4, 2), 3),
    "padding that repeats": (nn.Conv2d(6, 4, 3, padding=1, padding_mode="reflect"), 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gamma_and_beta_go_into_the_next_convolution(name):
    layer, dims = LAYERS[name]
    graph_module, report = folded(nn.Sequential(norm(3, 6), layer), dims=dims)
    assert [what for *_, what in report.changed] == ["gave gamma and beta to _1"]
    assert graph_module.get_submodule("0").weight is None


@pytest.mark.parametrize("padding", [1, "same"])
def test_with_zero_padding_only_gamma_goes(padding):
    net = nn.Sequential(norm(3, 6), nn.Conv2d(6, 4, 3, padding=padding))
    graph_module, report = folded(net)
    assert [what for *_, what in report.changed] == ["gave gamma to _1"]
    assert "pads with zeros" in report.declined[0][2]
    assert torch.equal(graph_module.get_submodule("0").weight, torch.ones(6, dtype=torch.float64))


def test_folding_beta_over_padding_would_be_caught():
    """The wrong fold, done by hand: its error is large, so the comparison above can tell."""
    first, second = norm(3, 6), nn.Conv2d(6, 4, 3, padding=1).double()
    x = torch.randn(3, 6, 7, 7, dtype=torch.float64)
    plain = nn.functional.group_norm(x, 3)
    weight = second.weight * first.weight.view(1, -1, 1, 1)
    shift = (second.weight * first.bias.view(1, -1, 1, 1)).sum((1, 2, 3))
    wrong = nn.functional.conv2d(plain, weight, second.bias + shift, padding=1)
    assert (wrong - second(first(x))).abs().max() > 0.01


def test_a_zero_gamma_over_padding_stays():
    first = norm(3, 6)
    with torch.no_grad():
        first.weight[2] = 0
    _, report = folded(nn.Sequential(first, nn.Conv2d(6, 4, 3, padding=1)))
    assert report.changed == []


def test_a_bias_that_the_mean_takes_away_is_dropped():
    graph_module, report = folded(nn.Sequential(nn.Conv2d(6, 4, 3), norm(4, 4)))
    assert ("group_norm_folding", "_0", "lost its bias, which _1 takes away") in report.changed
    assert graph_module.get_submodule("0").bias is None


def test_a_bias_that_differs_within_a_group_stays():
    graph_module, report = folded(nn.Sequential(nn.Conv2d(6, 4, 3), norm(2, 4)))
    assert report.changed == []
    assert report.declined[0][2].startswith("its bias differs within a group of _1")
    assert graph_module.get_submodule("0").bias is not None


def test_the_statistics_are_declined_with_the_reason():
    _, report = folded(nn.Sequential(nn.Conv2d(6, 4, 3, bias=False), norm(2, 4)))
    reason = "its mean and variance come from the data of each image: only they stay"
    assert (report.changed, report.declined) == ([], [("group_norm_folding", "_1", reason)])


@pytest.mark.parametrize(
    "function",
    [
        lambda net, x: net.conv(torch.relu(net.norm(x))),
        lambda net, x: (net.conv(n := net.norm(x)), n),
        lambda net, x: net.transposed(net.norm(x)),
    ],
)
def test_only_the_very_next_convolution_takes_it(function):
    parts = {"conv": nn.Conv2d(6, 4, 1).double(), "transposed": nn.ConvTranspose2d(6, 4, 1).double()}
    graph_module = graph_of(function, norm=norm(3, 6), **parts)
    assert Passer(["group_norm_folding"]).run(graph_module).changed == []


def test_shared_modules_and_the_callers_tensors_stay():
    first, second = norm(3, 6), nn.Conv2d(6, 6, 1).double()
    weights = first.weight.clone(), second.weight.clone()
    net = nn.Sequential(first, second, first, nn.ReLU(), second)
    folded(net)
    assert torch.equal(first.weight, weights[0])
    assert torch.equal(second.weight, weights[1])


def test_without_a_beta_padding_is_no_obstacle():
    first = norm(3, 6)
    nn.init.zeros_(first.bias)
    graph_module, report = folded(nn.Sequential(first, nn.Conv2d(6, 4, 3, padding=1)))
    assert [what for *_, what in report.changed] == ["gave gamma and beta to _1"]
    assert graph_module.get_submodule("0").weight is None


@pytest.mark.parametrize("hooked", [0, 1])
def test_a_hook_sees_what_would_change(hooked):
    net = nn.Sequential(norm(3, 6), nn.Conv2d(6, 4, 1))
    net[hooked].register_forward_hook(lambda module, args, result: result)
    _, report = folded(net)
    assert report.changed == [] and "it has hooks" in report.declined[0][2]


@pytest.mark.parametrize("path", ["norm.weight", "norm.bias", "conv.weight", "conv.bias"])
def test_parameters_that_the_graph_writes_to_stay(path):
    graph_module = graph_of(lambda net, x: net.conv(net.norm(x)), norm=norm(3, 6), conv=nn.Conv2d(6, 4, 1).double())
    first = next(iter(graph_module.graph.nodes))
    with graph_module.graph.inserting_after(first):
        parameter = graph_module.graph.get_attr(path)
    with graph_module.graph.inserting_after(parameter):
        graph_module.graph.call_method("mul_", (parameter, 2))
    report = Passer(["group_norm_folding"]).run(graph_module)
    assert report.changed == []
    assert ("group_norm_folding", "conv", "the graph writes to its parameters") in report.declined
