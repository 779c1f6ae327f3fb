"""Surgery: what is cut is gone, what is kept is the same number in the right place, and nothing else changes."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import GroupError
from helpers.pruning.surgery import PlanError, cut
from tests.pruning.zoo import PRUNABLE, ToyMobile, build, conv

EXAMPLE = torch.zeros(1, 3, 8, 8)
KEPT = [0, 2, 3, 5, 8, 11, 13, 23]


@pytest.fixture
def halves():
    model = build(ToyMobile)
    units = np.setdiff1d(np.arange(24), KEPT)
    return model, cut(model, channel_groups(model, EXAMPLE), {"blocks.0.expand": units})[0]


def test_each_tensor_of_the_chain_is_sliced_once_from_the_original(halves):
    """The usual mistake: the depthwise weight is read again after its layer was overwritten. Shapes do not show it."""
    model, small = (m.blocks[0] for m in halves)
    assert torch.equal(small.expand.weight, model.expand.weight[KEPT])
    assert torch.equal(small.depthwise.weight, model.depthwise.weight[KEPT])
    assert torch.equal(small.project.weight, model.project.weight[:, KEPT])
    for name in ("weight", "bias", "running_mean", "running_var"):
        for norm in ("bn1", "bn2"):
            assert torch.equal(getattr(getattr(small, norm), name), getattr(getattr(model, norm), name)[KEPT])
    assert torch.equal(small.bn3.running_var, model.bn3.running_var)


def test_everything_else_about_a_layer_stays():
    """The usual mistake: a layer that is built anew loses eps, momentum, dilation or its padding mode."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=2, dilation=2, padding_mode="reflect", bias=False),
        nn.BatchNorm2d(8, eps=0.01, momentum=0.3),
        conv(8, 4),
    ).eval()
    model[0].weight.requires_grad_(False)
    small, _ = cut(model, channel_groups(model, EXAMPLE), {"0": [1, 2]})
    assert (small[0].stride, small[0].dilation, small[0].padding_mode) == ((2, 2), (2, 2), "reflect")
    assert (small[1].eps, small[1].momentum) == (0.01, 0.3)
    assert small[0].bias is None
    assert not small[0].weight.requires_grad
    assert small[2].weight.requires_grad


def test_no_memory_is_shared_with_the_original():
    model = build(ToyMobile)
    small, _ = cut(model, channel_groups(model, EXAMPLE), {"blocks.0.expand": [0]})
    mine = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    assert mine.isdisjoint(t.untyped_storage().data_ptr() for t in [*small.parameters(), *small.buffers()])


def test_shared_parameters_stay_shared():
    model = nn.Sequential(
        nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 1), nn.ReLU(), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 4, 1)
    ).eval()
    model[3].weight = model[1].weight
    groups = channel_groups(model, EXAMPLE)
    assert {g.name: g.size for g in groups.prunable()} == {"0": 6}
    small, _ = cut(model, groups, {"0": [4]})
    assert small[3].weight is small[1].weight
    assert small[1].weight.shape == (5, 5, 1, 1)
    small(torch.randn(1, 3, 8, 8))


def test_the_changes_rebuild_the_structure():
    model = build(ToyMobile)
    _, changes = cut(model, channel_groups(model, EXAMPLE), {"stem": [0, 7]})
    assert changes["stem"] == {"out_channels": 6}
    assert changes["blocks.1.project"] == {"out_channels": 6}
    assert changes["head"] == {"in_features": 6}
    assert "blocks.0.depthwise" not in changes


def test_a_unit_that_is_named_twice_goes_once():
    model = build(ToyMobile)
    assert cut(model, channel_groups(model, EXAMPLE), {"stem": [3] * 8})[0].stem.out_channels == 7


def test_the_attributes_count_what_they_are_named_for():
    for name, layer, expected in (
        ("group norm", "1", {"num_groups": 3, "num_channels": 9}),
        ("whole groups", "2", {"groups": 5, "in_channels": 10, "out_channels": 20}),
        ("instance norm", "1", {"num_features": 5}),
        ("instance norm", "2", {"num_parameters": 5}),
    ):
        model = build(PRUNABLE[name][0])
        small, changes = cut(model, channel_groups(model, EXAMPLE), {"0": [1]})
        assert changes[layer] == expected
        assert {attribute: getattr(small.get_submodule(layer), attribute) for attribute in expected} == expected


@pytest.mark.parametrize(
    ("plan", "error", "message"),
    [
        ({"stem": np.arange(8)}, PlanError, "group stem: cutting 8 of 8 units would empty it"),
        ({"stem": [8]}, PlanError, "it has units 0 to 7"),
        ({"stem": [-1]}, PlanError, "it has units 0 to 7"),
        ({"stem": [8, 0]}, PlanError, "it has units 0 to 7"),
        ({"stem": range(8, 16)}, PlanError, "group stem: it has units 0 to 7, asked to cut 8 to 15"),
        (
            {"stem": np.array([False] * 6 + [True] * 2)},
            PlanError,
            "got bool of shape .8,.; for a mask .* np.flatnonzero",
        ),
        (
            {"stem": torch.tensor([False] * 7 + [True])},
            PlanError,
            "group stem: expected a list of unit numbers, got bool",
        ),
        ({"stem": [0.9, 1.7]}, PlanError, "group stem: expected a list of unit numbers, got float64"),
        ({"stem": [float("nan")]}, PlanError, "group stem: expected a list of unit numbers, got float64"),
        ({"stem": ["3"]}, PlanError, "group stem: expected a list of unit numbers, got <U1"),
        ({"stem": [[1, 2]]}, PlanError, r"group stem: expected a list of unit numbers, got int64 of shape \(1, 2\)"),
        ({"stem": [[1, 2], [3]]}, PlanError, "group stem: expected a list of unit numbers, got object"),
        ({"stem": {1, 2}}, PlanError, "group stem: expected a list of unit numbers, got object"),
        ({"head": [0]}, PlanError, "group head cannot be pruned: it is an output"),
        ({"tail": [0]}, GroupError, "no channel group is called 'tail'; the groups are stem"),
    ],
)
def test_impossible_plans_are_refused(plan, error, message):
    model = build(ToyMobile)
    with pytest.raises(error, match=message):
        cut(model, channel_groups(model, EXAMPLE), plan)


@pytest.mark.parametrize("units", [[], np.array([2, 1], dtype=np.uint8), torch.tensor([1, 2]), range(1, 3)])
def test_unit_numbers_come_in_any_row(units):
    model = build(ToyMobile)
    small, _ = cut(model, channel_groups(model, EXAMPLE), {"stem": units})
    kept = [k for k in range(8) if k not in list(units)]
    assert torch.equal(small.stem.weight, model.stem.weight[kept])


def chain(*widths):
    return nn.Sequential(*[conv(before, after) for before, after in itertools.pairwise(widths)]).eval()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (chain(3, 12, 5), r"0\.weight had the shape \(8, 3, 3, 3\) there and has the shape \(12, 3, 3, 3\) here"),
        (chain(3, 8), r"another network: 1\.weight .* is missing here; call channel_groups for this one"),
    ],
)
def test_groups_of_another_network_are_refused(other, message):
    groups = channel_groups(chain(3, 8, 5), EXAMPLE)
    with pytest.raises(PlanError, match=message):
        cut(other, groups, {"0": [1]})


def test_a_pruned_network_can_be_pruned_again():
    model = build(PRUNABLE["whole groups"][0])
    for left in (5, 4, 3):
        groups = channel_groups(model, EXAMPLE)
        model, _ = cut(model, groups, {"0": [1]})
        assert model[2].groups == left
        model(torch.randn(1, 3, 8, 8))
