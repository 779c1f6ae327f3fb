import copy
import itertools
import math

import pandas as pd
import pytest
import torch
from torch import nn

from helpers import models
from helpers.dataset import Normalization, normalize
from helpers.quantization import QuantizationError, Recipe, make_plan, mixed_recipe, quantize
from helpers.quantization.mixed import BITS, choose_bits, sensitivity_scan
from helpers.quantization.repairs import quantized_op
from helpers.quantization.weights import encode_layer
from tests.quantization.networks import images, small, small_mobilenet


def table(**layers):
    """A scan from each layer's (bits, divergence, bytes)."""
    rows = [(layer, *row) for layer, rows in layers.items() for row in rows]
    return pd.DataFrame(rows, columns=["layer", "bits", "divergence", "bytes"])


def test_greedy_choice_gives_up_the_bits_that_matter_least_and_sees_a_jump_behind_a_step():
    scan = table(
        a=[(8, 0.0, 100), (4, 1.0, 50)],
        b=[(8, 0.0, 100), (4, 0.1, 50)],
        c=[(8, 0.0, 10), (4, 0.3, 5)],
    )
    assert choose_bits(scan, 210) == {"a": 8, "b": 8, "c": 8}
    assert choose_bits(scan, 209) == {"a": 8, "b": 4, "c": 8}
    assert choose_bits(scan, 159) == {"a": 4, "b": 4, "c": 8}  # a loses less per byte than c
    assert choose_bits(scan, 105) == {"a": 4, "b": 4, "c": 4}
    with pytest.raises(
        QuantizationError, match="104 bytes are too few: 4 bits everywhere take 105"
    ):
        choose_bits(scan, 104)
    scan = table(a=[(8, 0.0, 80), (6, 0.5, 60), (4, 0.5, 40)], b=[(8, 0.0, 80), (4, 0.7, 40)])
    assert choose_bits(scan, 120) == {"a": 4, "b": 8}


def test_scan_measures_one_layer_at_a_time():
    model, x = small(), images(70)  # more than one batch
    plan = make_plan(model, (3, 9, 9), Recipe())
    scan = sensitivity_scan(plan, x, Recipe()).set_index(["layer", "bits"])
    assert len(scan) == len(BITS) * len(plan.layers)
    for name in ("stem", "narrow", "fc"):
        other = copy.deepcopy(plan)
        layer = encode_layer(other[name], Recipe(weight_bits=3))
        other.ops[other.ops.index(other[name])] = quantized_op(other[name], layer)
        p, q = (one.run(x).log_softmax(1) for one in (plan, other))
        harm = (p.exp() * (p - q)).sum(1).mean().item()
        assert scan.divergence[name, 3] == pytest.approx(harm, rel=1e-3)
        assert 0 <= scan.divergence[name, 8] < scan.divergence[name, 3]
        assert scan.bytes[name, 3] == -(-plan[name].weight.numel() * 3 // 8)


class Sure(nn.Module):
    """Whose last class is ruled out, or who says yes or no with one score, or with a number."""

    def __init__(self, classes):
        super().__init__()
        self.network, self.classes = small(), classes

    def forward(self, x):
        scores = self.network(x)
        if self.classes < 2:
            return scores[:, 0] if self.classes == 0 else scores[:, :1]
        return torch.cat([scores[:, :-1], scores[:, -1:] - math.inf], 1)


@pytest.mark.parametrize("classes", [0, 1, 5])
def test_one_score_and_a_class_that_is_ruled_out_have_a_harm(classes):
    model, x = Sure(classes).eval(), images(20)
    scan = sensitivity_scan(make_plan(model, (3, 9, 9), Recipe()), x, Recipe())
    harm = scan.pivot_table(index="layer", columns="bits", values="divergence", dropna=False)
    assert harm.notna().all(axis=None) and (harm[2] > harm[8]).all()


def test_bits_are_chosen_with_images_as_the_network_takes_them(monkeypatch):
    model, bytes_ = small(), torch.randint(0, 256, (4, 3, 9, 9), dtype=torch.uint8)
    model.input_normalization = Normalization((0.1,) * 3, (0.2,) * 3)
    seen = []

    def scan(plan, images, *rest, **more):
        seen.append(images)
        return sensitivity_scan(plan, images, *rest, **more)

    monkeypatch.setattr("helpers.quantization.mixed.sensitivity_scan", scan)
    monkeypatch.setattr("helpers.metrics.file_bytes", lambda model: 1)  # it has no builder
    mixed_recipe(model, bytes_, 100_000)
    assert torch.equal(seen[0], normalize(bytes_, normalization=model.input_normalization))


def test_fewest_bits_everywhere_end_the_search_where_no_other_choice_fits(monkeypatch):
    """As with a layer of one weight, of which fewer bits save no byte but those of the header."""
    sizes = itertools.chain([100], itertools.repeat(108, 50))  # of the fewest, and of any other
    monkeypatch.setattr("helpers.metrics.file_bytes", lambda model: next(sizes))
    one = nn.Sequential(nn.Conv2d(3, 1, 1), nn.Conv2d(1, 1, 1), nn.Conv2d(1, 4, 3)).eval()
    found = mixed_recipe(one, torch.randn(8, 3, 8, 8), file_bytes=100)
    assert {*found.layer_bits.values()} == {min(BITS)}


@pytest.mark.slow
@pytest.mark.ci
def test_the_written_file_has_the_wanted_size(tmp_path):
    model, images = small_mobilenet()
    images = images[:4]
    full = (
        models.save(quantize(model, images, Recipe()), tmp_path / "full.safetensors").stat().st_size
    )
    wanted = int(0.8 * full)
    recipe = mixed_recipe(model, images, wanted)
    size = (
        models.save(quantize(model, images, recipe), tmp_path / "mixed.safetensors").stat().st_size
    )
    assert 0.9 * wanted < size <= wanted
    assert len(set(recipe.layer_bits.values())) > 1
    with pytest.raises(
        QuantizationError, match="file_bytes=99, too few: 2 bits everywhere take"
    ) as error:
        mixed_recipe(model, images, 99)
    least = int(str(error.value).split()[-2])
    assert {*mixed_recipe(model, images, least).layer_bits.values()} == {2}
