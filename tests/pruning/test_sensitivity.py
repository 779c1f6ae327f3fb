"""The scan and the ratios that follow from it."""

import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from helpers import pruning
from helpers.pruning import sensitivity
from helpers.pruning.allocation import AllocationError
from helpers.pruning.criteria import scores
from helpers.pruning.discovery import channel_groups
from helpers.pruning.importance import Setting
from tests.pruning.zoo import ToyMobile, build

matplotlib.use("Agg")
EXAMPLE = torch.zeros(1, 3, 8, 8)


def width(model):
    """A quality that only the first block's width decides."""
    return float(model.blocks[0].expand.out_channels)


@pytest.fixture(scope="module")
def scanned():
    model = build(ToyMobile)
    groups = channel_groups(model, EXAMPLE)
    chosen = groups.prunable()
    found = scores(Setting(model, groups), chosen, "l1")
    return chosen, sensitivity.scan(model, groups, chosen, found, width, (0.25, 0.5, 1.0))


def test_the_scan_prunes_one_group_at_a_time(scanned):
    _, table = scanned
    assert table["group"].unique().tolist() == ["stem", "blocks.0.expand", "blocks.1.expand"]
    assert table[table["group"] == "blocks.0.expand"]["quality"].tolist() == [18.0, 12.0, 1.0]
    assert (table[table["group"] != "blocks.0.expand"]["drop"] == 0).all()


def test_insensitive_groups_go_first(scanned):
    chosen, table = scanned
    ratios = sensitivity.ratios(table, chosen, 0.4)
    assert ratios["blocks.0.expand"] == 0
    total = sum(g.size * ratios[g.name] for g in chosen)
    assert total == pytest.approx(0.4 * sum(g.size for g in chosen))


def test_equal_drops_and_the_total_that_was_asked_for():
    units = [type("G", (), {"name": n, "size": s}) for n, s in (("a", 10), ("b", 30), ("c", 20))]
    slopes = {"a": 1.0, "b": 2.0, "c": 4.0}
    table = pd.DataFrame(
        [(n, r, 0, k * r) for n, k in slopes.items() for r in (0.5, 1.0)], columns=["group", "ratio", "quality", "drop"]
    )
    for ratio in (0.1, 0.3, 0.45):
        found = sensitivity.ratios(table, units, ratio)
        assert sum(u.size * found[u.name] for u in units) == pytest.approx(60 * ratio)
        drops = [slopes[n] * found[n] for n in slopes if found[n] < 1]
        np.testing.assert_allclose(drops, drops[0], rtol=1e-6)


def test_prune_uses_it():
    small = pruning.prune(build(ToyMobile), EXAMPLE, ratio=0.3, allocation="sensitivity", evaluate=width)
    assert small.blocks[0].expand.out_channels == 24
    assert small.blocks[1].expand.out_channels == 4


def two_groups():
    """Two hidden groups of 16 channels."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 1), nn.ReLU(), nn.Conv2d(16, 16, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).eval()


@pytest.mark.parametrize(
    ("costs", "ratio", "left"), [((0.5, 1), 0.75, [1, 7]), ((0, 1), 0.5, [1, 15]), ((0, 1), 0.95, [1, 1])]
)
def test_a_group_may_be_cut_to_its_last_unit(costs, ratio, left):
    def quality(model):
        return 1 - sum(c * (1 - model[i].out_channels / 16) for c, i in zip(costs, (0, 2), strict=True))

    options = {"scope": "all", "allocation": "sensitivity", "evaluate": quality}
    small = pruning.prune(two_groups(), EXAMPLE, ratio=ratio, **options)
    assert [small[0].out_channels, small[2].out_channels] == left


@pytest.mark.parametrize("bad_width", [16, 8])
def test_a_quality_that_is_no_number_is_named(bad_width):
    def quality(model):
        return float("nan") if model[2].out_channels == bad_width else 1.0

    where = "the whole network nan" if bad_width == 16 else "share 0.5 of group '2' removed nan"
    with pytest.raises(AllocationError, match=where):
        pruning.prune(two_groups(), EXAMPLE, allocation="sensitivity", scope="all", evaluate=quality)


def test_the_plot_has_a_line_for_each_group(scanned):
    axes = sensitivity.plot(scanned[1], matplotlib.pyplot.figure().subplots())
    assert [line.get_label() for line in axes.lines] == ["stem", "blocks.0.expand", "blocks.1.expand"]
    matplotlib.pyplot.close("all")


def test_more_pruning_never_costs_less():
    rows = [("a", 0.25, 0, -0.1), ("a", 0.5, 0, 0.3), ("a", 0.75, 0, 0.2)]
    drops, reached = sensitivity.curves(pd.DataFrame(rows, columns=["group", "ratio", "quality", "drop"]))["a"]
    assert drops.tolist() == [0, 0, 0.3, 0.3]
    assert reached.tolist() == [0, 0.25, 0.5, 0.75]
