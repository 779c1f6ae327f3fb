"""Criteria against references that know the network by heart."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import PruneError
from helpers.pruning.importance import CRITERIA, OF_WEIGHTS, scores
from tests.pruning.zoo import PRUNABLE, Auxiliary, ToyMobile, build, conv

EXAMPLE = torch.zeros(1, 3, 8, 8)
HIDDEN = "blocks.0.expand"
GENERATOR, LABELS = torch.Generator().manual_seed(5), torch.arange(8) % 5
BATCHES = [
    (torch.randn(8, 3, 8, 8, generator=GENERATOR), LABELS) for _ in range(2)
]  # 16 images, the fewest


@pytest.fixture(scope="module")
def model():
    return build(ToyMobile).requires_grad_(False)


def found(model, importance, batches=(), seed=0, name=HIDDEN):
    groups = channel_groups(model, EXAMPLE.to(next(model.parameters()).dtype))
    return scores(model, groups, [groups[name]], importance, batches, seed)[name]


def l1(layer, dim=0):
    return layer.weight.abs().movedim(dim, 0).flatten(1).sum(1)


def l2(*layers):
    return sum(layer.weight.square().flatten(1).sum(1) for layer in layers).sqrt()


def apart(*weights):
    """For each filter the sum of its distances to all others."""
    return sum(
        torch.tensor([sum((one - w).norm() for w in weight) for one in weight])
        for weight in weights
    )


def pair(model):
    """The layers whose filters make the units of HIDDEN."""
    return model.blocks[0].expand, model.blocks[0].depthwise


# criterion: what the filters of a unit are -> (network, group, scores)
SCORES = {
    "l1: of two layers": (ToyMobile, HIDDEN, lambda m: sum(map(l1, pair(m)))),
    "l2: of two layers": (ToyMobile, HIDDEN, lambda m: l2(*pair(m))),
    "l1: every layer that writes to the trunk": (
        ToyMobile,
        "stem",
        lambda m: l1(m.stem) + l1(m.blocks[0].project) + l1(m.blocks[1].project),
    ),
    "l1: several channels": (
        PRUNABLE["whole groups"][0],
        "0",
        lambda m: l1(m[0]).view(6, 2).sum(1) + l1(m[2]).view(6, 4).sum(1),
    ),
    "l1: along the second axis": (PRUNABLE["transposed"][0], "1", lambda m: l1(m[1], 1)),
    "bn_scale: of two layers": (
        ToyMobile,
        HIDDEN,
        lambda m: (b := m.blocks[0]).bn1.weight.abs() + b.bn2.weight.abs(),
    ),
    "bn_scale: the second part of a concatenation": (
        PRUNABLE["concatenation"][0],
        "b",
        lambda m: m.n.weight.abs()[6:],
    ),
    "geometric_median: of two layers": (
        ToyMobile,
        HIDDEN,
        lambda m: apart(*(layer.weight for layer in pair(m))),
    ),
    # The shortcut meets the middle channels of a wider layer; the outer ones meet zeros and stay.
    "geometric_median: filters that fall into two groups": (
        PRUNABLE["zero padded shortcut"][0],
        "a",
        lambda m: apart(m.a.weight, m.b.weight[4:12]),
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_of_weights(name):
    maker, group, expected = SCORES[name]
    model = build(maker).requires_grad_(False)
    np.testing.assert_allclose(
        found(model, name.partition(":")[0], name=group), expected(model), rtol=1e-5
    )


def test_equal_filters_are_equally_far_from_the_others():
    """In float64 a matrix product of this size sets them 6e-8 apart."""
    filters = torch.randn(38, 13, generator=torch.Generator().manual_seed(0))
    filters[37] = filters[35]
    scored = OF_WEIGHTS["geometric_median"](filters)
    assert scored[37] == scored[35] and scored.sub(apart(filters)).abs().max() < 1e-3


def test_taylor_is_the_slope_of_the_loss_when_the_filter_fades():
    """L((1 - t) w) has the slope -w . dL/dw at t = 0; here by a central difference, for each
    channel by itself.
    """
    model = build(ToyMobile).double().requires_grad_(False)
    batches = [(x.double(), y) for x, y in BATCHES]
    step, expected = 1e-6, []
    for c in range(24):
        changes = []
        for x, y in batches:
            losses = []
            for sign in (1, -1):
                faded = copy.deepcopy(model)
                for layer in pair(faded):
                    layer.weight.data[c] *= 1 + sign * step
                losses.append(float(F.cross_entropy(faded(x), y)))
            changes.append(abs(losses[0] - losses[1]) / (2 * step))
        expected.append(sum(changes) / len(changes))
    np.testing.assert_allclose(
        found(model, "taylor", batches=batches), expected, rtol=1e-3, atol=1e-8
    )


def test_a_layer_that_an_evaluation_never_runs_counts_for_nothing():
    model = build(Auxiliary)
    model.neck, model.head, model.aux = (
        conv(8, 8),
        nn.Linear(8, 5),
        nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 5)),
    )
    assert not found(model, "taylor", batches=BATCHES, name="aux.0").any()
    assert found(model, "taylor", batches=BATCHES, name="stem").all()


def test_random_depends_on_the_seed_and_the_group(model):
    assert np.array_equal(found(model, "random", seed=1), found(model, "random", seed=1))
    assert not np.array_equal(found(model, "random", seed=1), found(model, "random", seed=2))
    assert not np.array_equal(
        found(model, "random")[:16], found(model, "random", name="blocks.1.expand")
    )


@pytest.mark.parametrize("importance", CRITERIA)
def test_the_model_is_left_alone(model, importance):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found(model, importance, batches=BATCHES)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None and not p.requires_grad for p in model.parameters())
    assert not any(m._forward_pre_hooks for m in model.modules())


BROKEN = build(ToyMobile)
BROKEN.blocks[0].expand.weight.data[3] = float("nan")
FEWER = [BATCHES[0], (BATCHES[1][0][1:], LABELS[1:])]
SPOILED = [*BATCHES, (torch.full((8, 3, 8, 8), float("nan")), LABELS)]


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (build(ToyMobile), {"importance": "random", "seed": -1}, "seed is -1"),
        (
            build(ToyMobile),
            {"importance": "bn_scale", "name": "head"},
            "group head has no BatchNorm scale",
        ),
        (BROKEN, {"importance": "l1"}, r"group blocks\.0\.expand: importance 'l1' is not finite"),
        (build(ToyMobile), {"importance": "taylor", "batches": FEWER}, "got 15 images"),
        (
            build(ToyMobile),
            {"importance": "taylor", "batches": SPOILED},
            r"check the inputs of batches\[2\] for NaN",
        ),
    ],
)
def test_what_cannot_be_rated_is_named(model, arguments, message):
    with pytest.raises(PruneError, match=message):
        found(model, **arguments)


def test_taylor_takes_gradients_where_they_are_switched_off(model):
    expected = found(model, "taylor", batches=BATCHES)
    with torch.no_grad():
        assert np.array_equal(
            found(model, "taylor", batches=iter(BATCHES)), expected
        )  # which ends, such as a zip
