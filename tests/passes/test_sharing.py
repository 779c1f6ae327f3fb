"""What an optimised network has in common with the one that it was made of: sharing, what trains,
and its inputs.
"""

import itertools
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import metrics, models
from helpers.equivalence import randomize_batchnorm
from helpers.graphs.errors import WrongAnswer
from helpers.graphs.tracing import trace
from helpers.passes import Passer, conv_bn_folding, optimize
from tests.passes.zoo import Net

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@dataclass
class Scores:
    """A network's answer with names."""

    scores: torch.Tensor
    mean: torch.Tensor


def blurred():
    """One kernel, a buffer, at two strides."""
    net = Net(
        lambda m, x: F.conv2d(
            F.conv2d(x, m.k, padding=1, groups=3), m.k, stride=2, padding=1, groups=3
        )
    )
    net.register_buffer("k", torch.ones(3, 1, 3, 3) / 9)
    return net


def test_a_layer_that_is_called_three_times_is_folded_once():
    """One head for several images, as in a detector."""

    def run(m, x):
        return [F.relu(m.norm(m.conv(part)) * 2) for part in (x, 2 * x, 3 * x)]

    model = randomize_batchnorm(Net(run, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4))).eval()
    folded, _ = optimize(model, X)
    assert metrics.count_parameters(folded) == metrics.count_parameters(model.conv)
    assert len({n.target for n in folded.graph.nodes if n.op == "call_module"}) == 1


def test_two_names_of_one_layer_are_no_reason_to_share_what_they_became():
    conv, first, second = (
        nn.Conv2d(3, 3, 1),
        *(randomize_batchnorm(nn.BatchNorm2d(3), seed) for seed in (1, 2)),
    )
    model = Net(
        lambda m, x: m.n2(m.n1(m.a(x))) + m.n1(m.b(x)), a=conv, b=conv, n1=first, n2=second
    ).eval()
    graph_module = trace(model, (X,))
    graph_module.b = graph_module.a  # a tracer would use the first name twice
    for name, node in zip(
        "ab", (n for n in graph_module.graph.nodes if n.target in ("a", "b")), strict=True
    ):
        node.target = name
    graph_module.recompile()
    before = graph_module(X)
    Passer(["conv_bn_folding"]).run(graph_module)
    torch.testing.assert_close(graph_module(X), before)


def test_one_tensor_in_two_layers_is_saved_once(tmp_path):
    models.save(optimize(models.build(blurred).eval(), X)[0], tmp_path / "m.safetensors")
    again = models.load(tmp_path / "m.safetensors", factory=blurred)
    torch.testing.assert_close(again(X), blurred()(X))


class Scaled(nn.Module):
    """With a buffer that is in no file."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("scale", torch.full((4, 1, 1), 2.0), persistent=False)

    def forward(self, x):
        return self.conv(x) * self.scale


def test_a_buffer_that_is_in_no_file_may_be_folded(tmp_path):
    folded, _ = optimize(models.build(Scaled).eval(), X)
    again = models.load(models.save(folded, tmp_path / "m.safetensors"), factory=Scaled)
    assert torch.equal(again(X), folded(X))


@torch.no_grad()
def cut_by_hand(*layers):
    """Four channels of eight stay, and the layers' own numbers are as they were."""
    for layer in layers:
        for name, tensor in (*layer.named_parameters(), *layer.named_buffers()):
            if tensor.dim():
                setattr(layer, name, type(tensor)(tensor[:4]))
    return layers


def test_a_layer_that_was_cut_by_hand_is_folded_as_its_weight_says():
    conv, norm = cut_by_hand(nn.Conv2d(3, 8, 3), randomize_batchnorm(nn.BatchNorm2d(8)))
    parts = {"conv": conv, "norm": norm, "head": nn.Conv2d(4, 2, 1)}
    model = Net(lambda m, x: m.head(m.norm(m.conv(x)) * 2), **parts).eval()
    folded, report = optimize(model, X, route="fx")
    assert not report.declined and len(folded.graph.nodes) == 4
    torch.testing.assert_close(folded(X), model(X))


def test_complex_weights_train_after_they_were_folded():
    parts = {"conv": nn.Conv2d(3, 4, 3, dtype=torch.complex64)}
    parts["w"] = nn.Parameter(torch.randn(4, 1, 1, 2))
    net = Net(lambda m, x: m.conv(x) * torch.view_as_complex(m.w), **parts).eval()
    folded, _ = optimize(net, X.to(torch.complex64))
    assert [p.requires_grad for p in folded.parameters()] == [True, True]


def test_a_table_that_is_added_with_a_factor_still_trains():
    model = Net(lambda m, x: torch.add(x, m.w, alpha=0.5), w=nn.Parameter(torch.randn(1, 4)))
    folded, _ = optimize(model.eval(), torch.randn(5, 4))
    assert [p.requires_grad for p in folded.parameters()] == [True]


def test_what_was_frozen_stays_frozen_and_what_trained_trains():
    model = Net(
        lambda m, x: F.linear(x @ m.w, m.v * 0.5),
        w=nn.Parameter(torch.randn(3, 4)),
        v=nn.Parameter(torch.randn(2, 4)),
    )
    model.w.requires_grad_(False)
    folded, _ = optimize(model.eval(), torch.randn(5, 3))
    assert [p.requires_grad for p in folded.parameters()] == [False, True]
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    layers[0].weight.requires_grad_(False)
    folded, _ = optimize(layers, X)
    assert {name: p.requires_grad for name, p in folded.named_parameters()} == {
        "0.weight": False,
        "0.bias": True,
    }
    added = Net(
        lambda m, x: torch.addmm(m.bias, x, m.w),
        bias=nn.Parameter(torch.ones(4)),
        w=torch.randn(3, 4),
    ).eval()
    assert [p.requires_grad for p in optimize(added, torch.randn(5, 3))[0].parameters()] == [
        False,
        True,
    ]


def test_answers_may_be_a_dataclass_and_inputs_a_table_that_the_network_writes_into():
    def forward(m, table):
        y = table["x"].add_(1)
        return Scores(m.norm(m.conv(y)), y.mean())

    given, norm = {"x": X.clone()}, randomize_batchnorm(nn.BatchNorm2d(4))
    optimize(Net(forward, conv=nn.Conv2d(3, 4, 3), norm=norm).eval(), (given,))
    assert torch.equal(given["x"], X)


def test_a_method_of_an_object_that_the_network_gets_may_do_anything():
    class Store:
        def remember(self, y):
            self.last = y

        @property
        def shape(self):
            return (5,)

    def forward(m, x, store):
        y = m.conv(x)
        store.remember(y)
        return y + store.shape[0]

    def network():
        return Net(forward, conv=nn.Conv2d(3, 4, 3))

    store = Store()
    optimized, _ = optimize(models.build(network).eval(), (X, store))  # no file can note a store
    store.last = None
    assert torch.equal(optimized(X, store), store.last + 5)


def test_a_tensor_that_forward_makes_is_new_in_each_call():
    made = [lambda m, x: (m.conv(x), torch.zeros(())), lambda m, x: (x, torch.zeros(()).to(x))]
    for route, forward in itertools.product(("fx", "export"), made):
        network = Net(forward, conv=nn.Conv2d(3, 4, 3)).eval()
        optimized, _ = optimize(network, X, route=route)
        optimized(X)[1].add_(5)
        assert optimized(X)[1] == 0


def test_verification_compares_networks_that_draw_and_says_if_the_network_itself_fails(monkeypatch):
    with pytest.raises(RuntimeError, match="running_mean should contain 8 elements"):
        optimize(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(4)).eval(), X)
    noisy = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    noisy = Net(
        lambda m, x: (y := m.net(x)) + 1e-3 * torch.rand_like(y), net=randomize_batchnorm(noisy)
    ).eval()
    optimize(noisy, X)
    for drop in (lambda m, x: F.dropout(m.net(x), 0.5, True), lambda m, x: m.drop(m.net(x))):
        dropping = Net(drop, net=noisy.net, drop=nn.Dropout()).eval()
        dropping.drop.train()
        optimize(dropping, X, level="inference")
    exact = conv_bn_folding.norm_as_affine
    monkeypatch.setattr(
        conv_bn_folding, "norm_as_affine", lambda norm: tuple(1.05 * part for part in exact(norm))
    )
    with pytest.raises(WrongAnswer, match="conv_bn_folding"):
        optimize(noisy, X)
