"""Criteria against references that loop over channels one at a time and know the network by heart."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.discovery import channel_groups
from helpers.pruning.importance import CRITERIA, CalibrationError, ImportanceError, Setting, scores
from tests.pruning.zoo import PRUNABLE, Auxiliary, Net, ToyMobile, build, conv

EXAMPLE = torch.zeros(1, 3, 8, 8)
HIDDEN = "blocks.0.expand"


@pytest.fixture(scope="module")
def model():
    return build(ToyMobile).requires_grad_(False)


@pytest.fixture(scope="module")
def batches():
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(8, 3, 8, 8, generator=generator), torch.arange(8) % 5) for _ in range(3)]


def found(model, importance, aggregate="group", batches=(), seed=0, name=HIDDEN):
    groups = channel_groups(model, EXAMPLE.to(next(model.parameters()).dtype))
    return scores(Setting(model, groups, aggregate, batches, seed), [groups[name]], importance)[name]


NORMS = {"l1": lambda values: sum(map(abs, values)), "l2": lambda values: math.sqrt(sum(v * v for v in values))}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("aggregate", "layers"), [("group", ("expand", "depthwise")), ("layer", ("expand",))])
def test_norms_of_the_filters_of_a_unit(model, norm, aggregate, layers):
    weights = [getattr(model.blocks[0], name).weight.detach() for name in layers]
    expected = [NORMS[norm]([float(v) for weight in weights for v in weight[c].flatten()]) for c in range(24)]
    np.testing.assert_allclose(found(model, norm, aggregate), expected, rtol=1e-6)


@pytest.mark.parametrize(("aggregate", "norms"), [("group", ("bn1", "bn2")), ("layer", ("bn1",))])
def test_bn_scale(model, aggregate, norms):
    expected = sum(getattr(model.blocks[0], norm).weight.detach().abs() for norm in norms)
    np.testing.assert_allclose(found(model, "bn_scale", aggregate), expected, rtol=1e-6)


def test_geometric_median(model):
    block, expected = model.blocks[0], []
    for c in range(24):
        total = 0.0
        for layer in (block.expand, block.depthwise):
            for other in range(24):
                total += float((layer.weight[c].double() - layer.weight[other].double()).norm())
        expected.append(total)
    np.testing.assert_allclose(found(model, "geometric_median"), expected, rtol=1e-6)


def test_the_trunk_adds_up_every_layer_that_writes_to_it(model):
    layers = [model.stem, model.blocks[0].project, model.blocks[1].project]
    expected = [sum(float(layer.weight[c].abs().sum()) for layer in layers) for c in range(8)]
    np.testing.assert_allclose(found(model, "l1", name="stem"), expected, rtol=1e-6)


def test_a_unit_of_several_channels_adds_them_up():
    model = build(PRUNABLE["whole groups"][0]).requires_grad_(False)
    first, second = model[0].weight.abs().sum((1, 2, 3)), model[2].weight.abs().sum((1, 2, 3))
    expected = [float(first[2 * g : 2 * g + 2].sum() + second[4 * g : 4 * g + 4].sum()) for g in range(6)]
    np.testing.assert_allclose(found(model, "l1", name="0"), expected, rtol=1e-6)


def test_taylor_is_the_slope_of_the_loss_when_the_filter_fades(model, batches):
    """L((1 - t) w) has the slope -w . dL/dw at t = 0; here by a central difference, for each channel by itself."""
    model = build(ToyMobile).double().requires_grad_(False)
    batches = [(x.double(), y) for x, y in batches]
    block, step, expected = model.blocks[0], 1e-6, []
    for c in range(24):
        changes = []
        for x, y in batches:
            losses = []
            for sign in (1, -1):
                saved = [w[c].clone() for w in (block.expand.weight.data, block.depthwise.weight.data)]
                block.expand.weight.data[c] *= 1 + sign * step
                block.depthwise.weight.data[c] *= 1 + sign * step
                losses.append(float(F.cross_entropy(model(x), y)))
                block.expand.weight.data[c], block.depthwise.weight.data[c] = saved
            changes.append(abs(losses[0] - losses[1]) / (2 * step))
        expected.append(sum(changes) / len(changes))
    np.testing.assert_allclose(found(model, "taylor", batches=batches), expected, rtol=1e-3, atol=1e-8)


READERS = {
    "at every place": conv(8, 6),
    "in steps": nn.Conv2d(8, 6, 3, stride=2, dilation=2),
    "in a circle": conv(8, 6, padding_mode="circular"),
    "reflected": conv(8, 6, padding_mode="reflect"),
    "linear": nn.Linear(8, 6),
    "inside two groups": conv(8, 6, groups=2),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("by_name", [False, True])
def test_reconstruction_leaves_one_channel_out_at_a_time(batches, name, by_name):
    reader, last = READERS[name], name == "linear"
    model = build(lambda: Net(lambda s, x: s.b(input=s.a(x).relu()) if by_name else s.b(s.a(x).relu()),
                              a=nn.Linear(8, 8) if last else conv(3, 8), b=reader)).requires_grad_(False)  # fmt: skip
    x = torch.cat([x for x, _ in batches])
    inner, expected, axis = model.a(x).relu(), [], -1 if last else 1
    for c in range(4 if "groups" in name else 8):  # inside two groups a unit is one input channel of each of them
        less = inner.index_fill(axis, torch.tensor([c, c + 4] if "groups" in name else c), 0)
        expected.append(float((reader(inner) - reader(less)).square().sum(axis).mean()))
    result = found(model, "reconstruction", batches=[(x, torch.zeros(len(x), dtype=torch.long))], name="a")
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_reconstruction_of_what_nothing_reads_is_free(batches):
    def forward(net, x):
        net.a(x)
        return net.b(x)

    model = build(lambda: Net(forward, a=conv(3, 8), b=conv(3, 5)))
    assert found(model, "reconstruction", batches=batches, name="a").tolist() == [0] * 8


def test_filters_lie_along_the_second_axis_of_a_transposed_convolution():
    model = build(PRUNABLE["transposed"][0])
    expected = model[1].weight.detach().abs().sum((0, 2, 3))
    np.testing.assert_allclose(found(model, "l1", name="1"), expected, rtol=1e-6)
    model = build(lambda: nn.Sequential(*model[:2], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)))
    x, y = torch.randn(16, 3, 8, 8), torch.arange(16) % 5
    weight = model[1].weight
    (slope,) = torch.autograd.grad(F.cross_entropy(model(x), y), [weight])
    expected = (weight * slope).sum((0, 2, 3)).abs().detach()
    np.testing.assert_allclose(found(model, "taylor", batches=[(x, y)], name="1"), expected, rtol=1e-4, atol=1e-7)


def test_scales_of_the_second_part_of_a_concatenation():
    model = build(PRUNABLE["concatenation"][0])
    np.testing.assert_allclose(found(model, "bn_scale", name="b"), model.n.weight.detach().abs()[6:], rtol=1e-6)


def test_distances_of_filters_that_fall_into_two_groups():
    """The shortcut meets the middle channels of a wider layer; the outer ones meet zeros and stay."""
    model = build(PRUNABLE["zero padded shortcut"][0]).requires_grad_(False)
    first, second = model.a.weight.double().flatten(1), model.b.weight.double().flatten(1)[4:12]
    expected = [sum(float((w[i] - w[j]).norm()) for w in (first, second) for j in range(8)) for i in range(8)]
    np.testing.assert_allclose(found(model, "geometric_median", name="a"), expected, rtol=1e-6)


@pytest.mark.parametrize("importance", ["taylor", "reconstruction"])
def test_a_layer_that_an_evaluation_never_runs_counts_for_nothing(batches, importance):
    model = build(Auxiliary)
    model.neck, model.head, model.aux = conv(8, 8), nn.Linear(8, 5), nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 5))
    assert not found(model, importance, batches=batches, name="aux.0").any()
    assert found(model, importance, batches=batches, name="stem").all()


@pytest.mark.parametrize(
    ("name", "group", "message"),
    [
        ("conv1d", "a", "is written for Conv2d and Linear, not Conv1d; use 'taylor'"),
        ("transposed", "0", "is written for Conv2d and Linear, not ConvTranspose2d; use 'taylor'"),
        ("functional", "a", "looks at layers, and b.weight goes to a function; use 'taylor'"),
    ],
)
def test_reconstruction_says_what_it_cannot_look_at(batches, name, group, message):
    with pytest.raises(ImportanceError, match=message):
        found(build(PRUNABLE[name][0]), "reconstruction", batches=batches, name=group)


def test_random_depends_on_the_seed_and_the_group(model):
    assert np.array_equal(found(model, "random", seed=1), found(model, "random", seed=1))
    assert not np.array_equal(found(model, "random", seed=1), found(model, "random", seed=2))
    assert not np.array_equal(found(model, "random")[:16], found(model, "random", name="blocks.1.expand"))


@pytest.mark.parametrize("importance", CRITERIA)
def test_the_model_is_left_alone(model, batches, importance):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found(model, importance, batches=batches)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("importance", ["taylor", "reconstruction"])
def test_too_few_images_are_refused(model, importance):
    with pytest.raises(CalibrationError, match="got 0 images"):
        found(model, importance)
    with pytest.raises(CalibrationError, match="got 15 images"):
        found(model, importance, batches=[(torch.randn(5, 3, 8, 8), torch.arange(5))] * 3)
    assert found(model, importance, batches=[(torch.randn(8, 3, 8, 8), torch.arange(8) % 5)] * 2).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"importance": "random", "seed": -1}, "seed is -1"),
        ({"importance": "bn_scale", "name": "head"}, "group head has no BatchNorm scale"),
    ],
)
def test_what_cannot_be_asked_for_is_named(arguments, message):
    with pytest.raises(ImportanceError, match=message):
        found(build(ToyMobile), **arguments)


def test_weights_that_are_not_finite_are_refused():
    model = build(ToyMobile)
    model.blocks[0].expand.weight.data[3] = float("nan")
    with pytest.raises(ImportanceError, match=r"group blocks\.0\.expand: importance 'l1' is not finite"):
        found(model, "l1")


@pytest.mark.parametrize("importance", ["taylor", "reconstruction"])
def test_images_that_are_not_finite_are_refused(model, batches, importance):
    bad = torch.full((8, 3, 8, 8), float("nan"))
    with pytest.raises(ImportanceError, match=r"check the inputs of batches\[3\] for NaN"):
        found(model, importance, batches=[*batches, (bad, torch.zeros(8, dtype=torch.long))])


def test_taylor_takes_gradients_where_they_are_switched_off(model, batches):
    expected = found(model, "taylor", batches=batches)
    with torch.no_grad():
        assert np.array_equal(found(model, "taylor", batches=batches), expected)
