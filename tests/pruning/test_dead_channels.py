"""Channels that training has switched off are found; without them the answers are the same."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import deform_conv2d

from helpers import data, models, pruning
from helpers.metrics import randomize_batchnorm
from tests.marks import IN_CI
from tests.pruning.zoo import PRUNABLE, Net, ToyMobile, build, net

EXAMPLE = torch.zeros(1, 3, 8, 8)


def answers(model, x):
    with torch.no_grad():
        return model.double()(x.double())


def switched_off(channels, layer, norm, beta, lag=0.0):
    """What training leaves behind: filters of zeros, a mean that is their bias or lags behind it, a
    variance of 0.
    """
    with torch.no_grad():
        layer.weight[channels] = 0.0
        norm.running_mean[channels] = (0.0 if layer.bias is None else layer.bias[channels]) - lag
        norm.running_var[channels], norm.bias[channels] = 0.0, beta


@pytest.mark.parametrize(("beta", "removed"), [(-1.0, {"blocks.0.expand": [2, 5]}), (1.0, {})])
def test_a_constant_goes_unless_a_border_would_show_it(beta, removed):
    """In front of a depthwise layer with zero padding only the constant 0 is a constant behind it,
    too.
    """
    model = build(ToyMobile, seed=1)  # in which ReLU6 lets something of either channel through
    block = model.blocks[0]
    switched_off([2, 5], block.expand, block.bn1, beta)
    switched_off([2, 5], block.depthwise, block.bn2, 0.7) if beta < 0 else None
    small, found = pruning.remove_dead_channels(model, EXAMPLE)
    assert found == removed
    x = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(answers(small, x), answers(model, x), rtol=1e-6, atol=1e-6)


def test_a_linear_layer_takes_the_constant_into_its_bias():
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4)).eval()
    switched_off([1], *model[:2], 2.5)
    model[1].weight.data[4] = 0.0  # of this one beta is left, whatever its filter
    small, found = pruning.remove_dead_channels(model, torch.zeros(1, 3))
    assert found == {"0": [1, 4]}
    assert small[0].out_features == 4
    gated = Net(lambda s, x: s.layers((x > 0).float()), layers=model).eval()
    assert pruning.remove_dead_channels(gated, torch.zeros(1, 3))[1] == {
        "layers.0": [1, 4]
    }  # the BatchNorm knows
    x = torch.randn(9, 3)
    torch.testing.assert_close(answers(small, x), answers(model, x))


def test_inputs_by_name_and_without_a_batch_are_looked_at():
    def forward(s, x):
        means = s.norm(x.mean((-1, -2))[None])  # so that there is something to look for
        return s.c(s.b(s.a(input=x), output_size=[6, 6]).mean((-1, -2))) + means.sum()

    layers = {"a": nn.Conv2d(3, 8, 3), "b": nn.ConvTranspose2d(8, 4, 1), "c": nn.Linear(4, 2)}
    model = build(net(forward, **layers, norm=nn.BatchNorm1d(3)))
    model.norm.running_var[1] = 0
    assert pruning.remove_dead_channels(model, EXAMPLE[0])[1] == {}


def test_what_takes_whole_numbers_keeps_its_channels():
    """What is computed of them, the same in every run, would look constant."""
    layers = [nn.Embedding(9, 4), nn.Flatten(), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)]
    model = nn.Sequential(*layers).eval()
    switched_off([1], model[2], model[3], 2.5)
    with pytest.warns(UserWarning, match="Sequential fails on random images: .* for 'Long'"):
        small, found = pruning.remove_dead_channels(model, torch.zeros(1, 1).long())
    assert found == {} and small[2].out_features == 4


PADDED = [
    nn.Conv2d(8, 8, 3, 1, 1, groups=8),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 4),
]
# what the first layer does, how far its norm's mean lags behind, the layers after these, and what
# goes
CONSTANT = {
    "everywhere": (nn.Conv2d(3, 8, 1), 0.0, [nn.Conv2d(8, 4, 1)], {"0": [0, 1]}),
    "but not beta": (nn.Conv2d(3, 8, 1), 0.002, [nn.Conv2d(8, 4, 1)], {}),
    "but the last": (nn.Conv2d(3, 2, 1), 0.0, [nn.Conv2d(2, 4, 1)], {"0": [1]}),
    # Inside two groups, channels 0 and 4 can only go together, as can 1 and 5; only the first of
    # each never changes.
    "in one group": (
        nn.Conv2d(3, 8, 1),
        0.0,
        [nn.Conv2d(8, 4, 1, groups=2), nn.Conv2d(4, 5, 1)],
        {},
    ),
    # The map varies at its padded border, and the mean over it is the same for all images of one
    # size alone.
    "for one size": (nn.Conv2d(3, 8, 1), 0.0, [nn.ReLU(), *PADDED], {}),
    "for one size, of one pixel": (nn.Conv2d(3, 8, 4, 4), 0.0, [nn.ReLU(), *PADDED], {}),
}


@pytest.mark.parametrize("how", CONSTANT)
def test_what_is_constant(how):
    layer, lag, after, removed = CONSTANT[how]
    model = nn.Sequential(layer, nn.BatchNorm2d(layer.out_channels), *after).eval()
    switched_off([0, 1], *model[:2], 2.5, lag)
    assert pruning.remove_dead_channels(model, EXAMPLE)[1] == removed


def test_a_norm_without_a_bias_gives_nothing_for_a_channel_that_is_off():
    norm = nn.BatchNorm2d(8, bias=False)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), norm, nn.ReLU(), nn.Conv2d(8, 5, 3, 1, 1)).eval()
    with torch.no_grad():
        model[0].weight[1] = norm.running_var[1] = 0
        norm.running_mean[1] = model[0].bias[1]
    assert pruning.remove_dead_channels(model, EXAMPLE)[1] == {"0": [1]}


def test_a_network_may_refuse_larger_images_and_take_a_number():
    class Fixed(nn.Sequential):
        def forward(self, x, k):
            assert x.shape[2:] == (8, 8)
            return super().forward(x) * k

    model = Fixed(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 5, 1)).eval()
    switched_off([1], model[0], model[1], 2.5)
    assert pruning.remove_dead_channels(model, (EXAMPLE, torch.tensor(1.0)))[1] == {"0": [1]}


def test_a_network_with_a_layer_that_only_training_calls_is_looked_at():
    def forward(s, x):
        x = s.mid(s.norm(s.stem(x))).mean((2, 3))
        return (s.head(x), s.aux(x)) if s.training else s.head(x)

    parts = {"stem": nn.Conv2d(3, 8, 1), "norm": nn.BatchNorm2d(8), "mid": nn.Conv2d(8, 6, 1)}
    model = Net(forward, **parts, head=nn.Linear(6, 5), aux=nn.Linear(6, 5)).eval()
    switched_off([1], model.stem, model.norm, 2.5)
    assert pruning.remove_dead_channels(model, EXAMPLE)[1] == {"stem": [1]}


def test_every_layer_that_reads_a_weight_counts():
    """Two layers share a weight; in front of one of them channel 1 never changes."""
    parts = {f"norm{i}": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for i in (0, 1)}
    model = Net(
        lambda s, x: s.a(s.norm0(x)) + s.b(s.norm1(x)),
        **parts,
        a=nn.Linear(4, 2),
        b=nn.Linear(4, 2),
    ).eval()
    model.b.weight = model.a.weight
    switched_off([1], *model.norm0, 2.5)
    assert pruning.remove_dead_channels(model, torch.zeros(1, 3))[1] == {}


POOLED = [lambda y: y.mean((2, 3), True).sign(), lambda y: (y.mean((2, 3), True) > 0).float()]


@pytest.mark.parametrize(
    "act", [lambda y: torch.where(y > 0, y, 0.0), lambda y: (y > 0).float(), torch.tanh, *POOLED]
)
def test_a_comparison_and_a_small_variance_do_not_hide_that_a_channel_varies(act):
    layers = {
        "a": nn.Conv2d(3, 8, 1),
        "norm": nn.BatchNorm2d(8, eps=1e-14),
        "b": nn.Conv2d(8, 8, 1),
    }
    model = Net(
        lambda s, x: s.c(torch.relu(s.b(act(s.norm(s.a(x)))))), **layers, c=nn.Conv2d(8, 4, 1)
    ).eval()
    model.norm.running_var.fill_(1e-12)
    switched_off([7], model.a, model.norm, 2.5)  # so that there is something to look for
    found = pruning.remove_dead_channels(model, EXAMPLE)[1]
    assert found in ({}, {"a": [7]})


@pytest.mark.parametrize("shared", ["norm", "bias", "read"])
def test_a_norm_or_a_bias_that_another_layer_has_too_takes_no_constant(shared):
    parts = {name: nn.Conv2d(3, 4, 1, bias=shared == "bias") for name in "abc"} | {
        "norm": nn.BatchNorm2d(4)
    }
    parts |= {"n": nn.BatchNorm2d(4), "a": nn.Conv2d(4, 4, 1, bias=shared == "bias")}
    read = {
        "norm": lambda s, y: s.norm(y),
        "bias": lambda s, y: y,
        "read": lambda s, y: y + s.norm.running_mean[0],
    }
    model = Net(
        lambda s, x: torch.cat([s.norm(s.a(s.n(s.c(x)))), read[shared](s, s.b(x))]), **parts
    )
    model.a.bias = model.b.bias
    switched_off([1], model.c, model.n, 2.5)
    assert pruning.remove_dead_channels(model.eval(), EXAMPLE)[1] == {}


def dying(**layers):
    """A stem of which channel 1 is switched off, a layer that reads it, and others."""
    stem = {"a": nn.Conv2d(3, 4, 1), "n": nn.BatchNorm2d(4), "b": nn.Conv2d(4, 4, 1)}
    return stem | layers


DEFORMED = dying(offset=nn.Conv2d(4, 18, 3, 1, 1), c=nn.Conv2d(4, 4, 3, 1, 1))
TABLE = {"table": nn.Parameter(torch.randn(5, 4))}


def deformed(s, x):
    x = s.b(s.n(s.a(x)).relu())
    return deform_conv2d(x, s.offset(x), s.c.weight, padding=1)


def looked_up(s, x):
    return s.b(s.n(s.a(x)).relu()).mean((2, 3)) + s.table[(99 * x.mean((1, 2, 3)) + 2).long()]


def test_a_deformable_convolution_survives():
    """NaN and huge numbers as its offsets end the process."""
    model = Net(deformed, **DEFORMED).eval()
    switched_off([1], model.a, model.n, 2.5)
    small, found = pruning.remove_dead_channels(model, EXAMPLE)
    assert found == {"a": [1]}
    x = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(answers(small, x), answers(model, x))


def test_a_network_that_fails_on_random_images_keeps_its_channels_and_says_why():
    model = Net(looked_up, **dying(**TABLE)).eval()
    switched_off([1], model.a, model.n, 2.5)
    with pytest.warns(UserWarning, match="Net fails on random images: index .* out of"):
        small, found = pruning.remove_dead_channels(model, EXAMPLE)
    assert found == {}
    assert small.a.out_channels == 4


def test_a_constant_that_something_else_may_have_changed_stays():
    """What is added to channel 1 is 0 for random images, whose mean is below 9, and not for all."""

    def forward(s, x, change):
        y = s.n(s.a(x))
        change(y, torch.relu(x.mean() - 9))
        return s.b(y.tanh())

    changes = [
        lambda y, more: y.add_(more),
        lambda y, more: y.view(-1).add_(more),
        lambda y, more: y[0].add_(more),
    ]
    for change in changes:
        model = Net(lambda s, x, change=change: forward(s, x, change), **dying()).eval()
        switched_off([1], model.a, model.n, 2.5)
        assert pruning.remove_dead_channels(model, EXAMPLE)[1] == {}
    model = Net(lambda s, x: s.b((s.n(s.a(x)) + torch.relu(x.mean() - 9)).tanh()), **dying())
    switched_off([1], model.a, model.n, 2.5)
    assert pruning.remove_dead_channels(model.eval(), EXAMPLE)[1] == {}


def test_channels_that_are_tied_die_together_or_not_at_all():
    """Four channels that lie one after the other are a unit; only the first never changes."""
    moved = lambda y: y.unflatten(1, (-1, 4)).transpose(1, 2).flatten(1, 2)  # noqa: E731
    parts = {"a": nn.Conv2d(3, 12, 1), "n": nn.BatchNorm2d(12), "b": nn.Conv2d(12, 5, 1)}
    model = Net(lambda s, x: s.b(moved(s.n(s.a(x)))), **parts).eval()
    switched_off([0, 4, 8], model.a, model.n, 2.5)
    assert pruning.remove_dead_channels(model, EXAMPLE)[1] == {}
    switched_off([5, 6, 7], model.a, model.n, 2.5)
    small, found = pruning.remove_dead_channels(model, EXAMPLE)
    assert found == {"a": [1]}
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(answers(small, x), answers(model, x))


@pytest.mark.parametrize("name", [name for name in PRUNABLE if name != "functional"])
def test_wherever_channels_die_the_answers_stay(name):
    """Half of the channels of the first layer are switched off, whatever comes after it."""
    model = build(PRUNABLE[name][0])
    path = next(path for path in ("a", "0", "stem") if hasattr(model, path))
    layer = model.get_submodule(path)
    if not isinstance(layer, nn.Conv2d):
        pytest.skip("the channels are on the last axis")
    norm = randomize_batchnorm(nn.BatchNorm2d(layer.out_channels))
    for channel in range(0, layer.out_channels, 2):
        switched_off([channel], layer, norm, channel / 8 - 0.5)
    model.set_submodule(path, nn.Sequential(layer, norm, nn.ReLU()).eval())
    small, _ = pruning.remove_dead_channels(model, EXAMPLE)
    for x in (torch.randn(1, 3, 8, 8), 9 * torch.rand(1, 3, 8, 8)):
        expected = answers(copy.deepcopy(model), x)
        torch.testing.assert_close(
            answers(small, x), expected, rtol=1e-5, atol=1e-5, equal_nan=True
        )


@pytest.mark.parametrize("name", ["output", "x"])
def test_a_norm_may_have_the_name_of_an_input_or_of_the_output(name):
    """These are names of nodes in every graph."""
    parts = {"a": nn.Conv2d(3, 6, 1), name: nn.BatchNorm2d(6), "b": nn.Conv2d(6, 5, 1)}
    model = Net(lambda s, x: s.b(getattr(s, name)(s.a(x))), **parts).eval()
    switched_off([1], model.a, getattr(model, name), 2.5)
    assert pruning.remove_dead_channels(model, EXAMPLE)[1] == {"a": [1]}


def test_a_norm_of_another_axis_switches_no_channels_off():
    """The channels of the layers are on the last axis, and the norm counts the three before."""
    model = Net(
        lambda s, x: s.b(s.n(s.a(x))), a=nn.Linear(8, 9), n=nn.BatchNorm2d(3), b=nn.Linear(9, 5)
    )
    model.n.running_var[1] = 0.0
    assert pruning.remove_dead_channels(model.eval(), EXAMPLE)[1] == {}


def test_constants_pass_through_operations_that_are_known():
    """In place, side by side, and averaged."""

    def forward(s, x):
        x = s.n(s.a(x)).relu_()
        y = torch.cat([x, s.m(s.b(x)).relu_()], 1)
        return s.head(F.max_pool2d(y, 2).mean((2, 3)))

    model = Net(forward, **dying(m=nn.BatchNorm2d(4), head=nn.Linear(8, 5))).eval()
    switched_off([1], model.a, model.n, 2.5)
    switched_off([3], model.b, model.m, 1.5)
    small, found = pruning.remove_dead_channels(model, EXAMPLE)
    assert found == {"a": [1], "b": [3]}
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(answers(small, x), answers(model, x))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("dense", 8, marks=IN_CI),
        pytest.param("half", 1, marks=IN_CI),
        pytest.param("fifth", 0, marks=IN_CI),
        ("tenth", 0),
    ],
)
def test_the_shipped_networks_have_so_many_and_answer_the_same(name, count):
    model = models.pretrained(name).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small, found = pruning.remove_dead_channels(model, torch.zeros(1, 3, 32, 32))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert sum(map(len, found.values())) == count
    assert pruning.remove_dead_channels(small, torch.zeros(1, 3, 32, 32))[1] == {}
    x = data.normalize(data.load_cifar10(source="sample").test_images[:64])
    torch.testing.assert_close(answers(small, x), answers(model, x), rtol=1e-5, atol=1e-6)
