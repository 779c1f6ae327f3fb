"""Criteria against references that loop over channels one at a time and know the network by heart."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import PruneError
from helpers.pruning.importance import CRITERIA, scores
from tests.pruning.zoo import PRUNABLE, Auxiliary, ToyMobile, build, conv

EXAMPLE = torch.zeros(1, 3, 8, 8)
HIDDEN = "blocks.0.expand"


@pytest.fixture(scope="module")
def model():
    return build(ToyMobile).requires_grad_(False)


@pytest.fixture(scope="module")
def batches():
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(8, 3, 8, 8, generator=generator), torch.arange(8) % 5) for _ in range(3)]


def found(model, importance, batches=(), seed=0, name=HIDDEN):
    groups = channel_groups(model, EXAMPLE.to(next(model.parameters()).dtype))
    return scores(model, groups, [groups[name]], importance, batches, seed)[name]


NORMS = {"l1": lambda values: sum(map(abs, values)), "l2": lambda values: math.sqrt(sum(v * v for v in values))}


@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_the_filters_of_a_unit(model, norm):
    weights = [layer.weight.detach() for layer in (model.blocks[0].expand, model.blocks[0].depthwise)]
    expected = [NORMS[norm]([float(v) for weight in weights for v in weight[c].flatten()]) for c in range(24)]
    np.testing.assert_allclose(found(model, norm), expected, rtol=1e-6)


def test_bn_scale(model):
    expected = model.blocks[0].bn1.weight.detach().abs() + model.blocks[0].bn2.weight.detach().abs()
    np.testing.assert_allclose(found(model, "bn_scale"), expected, rtol=1e-6)


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


def test_a_layer_that_an_evaluation_never_runs_counts_for_nothing(batches):
    model = build(Auxiliary)
    model.neck, model.head, model.aux = conv(8, 8), nn.Linear(8, 5), nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 5))
    assert not found(model, "taylor", batches=batches, name="aux.0").any()
    assert found(model, "taylor", batches=batches, name="stem").all()


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


def test_too_few_images_are_refused(model):
    with pytest.raises(PruneError, match="got 15 images"):
        found(model, "taylor", batches=[(torch.randn(5, 3, 8, 8), torch.arange(5))] * 3)
    assert found(model, "taylor", batches=[(torch.randn(8, 3, 8, 8), torch.arange(8) % 5)] * 2).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"importance": "random", "seed": -1}, "seed is -1"),
        ({"importance": "bn_scale", "name": "head"}, "group head has no BatchNorm scale"),
    ],
)
def test_what_cannot_be_asked_for_is_named(arguments, message):
    with pytest.raises(PruneError, match=message):
        found(build(ToyMobile), **arguments)


def test_weights_that_are_not_finite_are_refused():
    model = build(ToyMobile)
    model.blocks[0].expand.weight.data[3] = float("nan")
    with pytest.raises(PruneError, match=r"group blocks\.0\.expand: importance 'l1' is not finite"):
        found(model, "l1")


def test_images_that_are_not_finite_are_refused(model, batches):
    bad = torch.full((8, 3, 8, 8), float("nan"))
    with pytest.raises(PruneError, match=r"check the inputs of batches\[3\] for NaN"):
        found(model, "taylor", batches=[*batches, (bad, torch.zeros(8, dtype=torch.long))])


def test_taylor_takes_gradients_where_they_are_switched_off(model, batches):
    expected = found(model, "taylor", batches=batches)
    with torch.no_grad():
        assert np.array_equal(found(model, "taylor", batches=batches), expected)
