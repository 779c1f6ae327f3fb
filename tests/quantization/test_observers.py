import math

import pytest
import torch

from helpers.quantization.affine import Affine, QuantizationError, choose
from helpers.quantization.observers import RULES, CalibrationError, Observer, calibrate, check_images
from helpers.quantization.plan import INPUT, Recipe
from helpers.quantization.reader import make_plan
from tests.quantization.networks import images, small


def outliers(count=20000):
    """A normal distribution with ten values far away."""
    x = torch.randn(count)
    x[:10] = 60.0
    return x


def rounded(x, low, high, bits=8):
    affine = Affine(*choose(torch.tensor(low), torch.tensor(high), bits), bits, signed=False)
    return affine.dequantize(affine.quantize(x))


def range_of(rule, *seen, bits=8):
    observer = Observer(rule, bits)
    for batch in seen:
        observer.observe(batch)
    return observer.range()


@pytest.mark.parametrize("rule", RULES)
def test_range_lies_within_what_was_seen_and_holds_a_constant(rule):
    batches = [torch.randn(500) * scale for scale in (1, 5, 0.1, 9)]
    low, high = range_of(rule, *batches)
    everything = torch.cat(batches)
    assert everything.min() <= low < 0 < high <= everything.max()
    for value in (0.0, 2.5, -3.0):
        x = torch.full((50,), value)
        assert rounded(x, *range_of(rule, x, x))[0].item() == pytest.approx(value, rel=0.01)


@pytest.mark.parametrize("rule", RULES)
def test_refuses_what_has_no_range(rule):
    observer = Observer(rule)
    for bad in (torch.empty(0), torch.tensor([math.nan]), torch.tensor([math.inf, 1.0])):
        with pytest.raises(QuantizationError, match="NaN or infinity"):
            observer.observe(bad)
    with pytest.raises(QuantizationError, match="no values yet"):
        observer.range()  # a refused batch leaves no trace


def test_minmax_by_hand():
    assert range_of("minmax", torch.tensor([-1.0, 2.0]), torch.tensor([-3.0, 1.0])) == (-3.0, 2.0)


def test_percentile_leaves_out_the_share_it_says():
    x = torch.rand(100000)
    low, high = range_of("percentile", x)
    for outside in (x < low, x > high):
        assert outside.float().mean() == pytest.approx(1e-4, abs=6e-4)


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_mse_beats_every_other_range_on_its_grid(bits):
    def error(low, high):
        return (rounded(x, low, high, bits) - x).square().sum()

    x = outliers()
    ours, low, high = error(*range_of("mse", x, bits=bits)), x.min().item(), x.max().item()
    assert all(ours <= error(low, high * share) * 1.01 for share in torch.linspace(0.3, 1, 15).tolist())


@pytest.mark.parametrize("order", [1, -1])
def test_no_value_is_lost_when_a_histogram_grows(order):
    observer = Observer("mse")
    batches = [torch.randn(1000) * scale + shift for scale, shift in ((0.01, 0), (1, 50), (9, -300), (0.1, 2))][::order]
    for batch in batches:
        observer.observe(batch)
    x, bins = torch.cat(batches), len(observer.counts)
    assert observer.counts.sum() == len(x)
    assert observer.start <= x.min() <= x.max() <= (observer.start + observer.width * bins) * (1 + 1e-6)
    mean = (observer.counts @ observer.centres / len(x)).item()
    assert mean == pytest.approx(x.double().mean().item(), abs=observer.width)


RECIPE = Recipe(observer="minmax")


@pytest.fixture
def plan():
    return make_plan(small(), (3, 9, 9), RECIPE)


def test_ranges_are_those_of_the_float_network(plan):
    x, seen = images(70), {}
    x[69] *= 100  # more images than one batch
    edges = calibrate(plan, x, RECIPE)
    plan.run(x, lambda name, value: seen.__setitem__(name, value))
    for name in set(edges) - {"max_pool", "flatten"}:
        low, high = min(seen[name].min().item(), 0), max(seen[name].max().item(), 0)
        assert edges[name].scale.item() == pytest.approx((high - low) / 255, rel=1e-5), name
    assert edges["max_pool"] is edges["grouped"] and edges["flatten"] is edges["pool"]
    assert INPUT in edges and "fc" not in edges


@pytest.mark.parametrize(
    "bad,message",
    [
        (torch.zeros(0, 3, 9, 9), "there are none"),
        (torch.zeros(2, 3, 9, 9, dtype=torch.int64), "uint8 or float32"),
        ([1, 2], "list"),
        (torch.full((2, 3, 9, 9), math.nan), "2 of 2 hold NaN"),
        (torch.full((1, 3, 9, 9), math.inf), "1 of 1 hold NaN"),
    ],
)
def test_bad_images(bad, message):
    with pytest.raises(CalibrationError, match=message):
        check_images(bad)


def test_a_layer_that_overflows_is_named(plan):
    plan["widen"].weight *= 1e38
    plan["widen"].clamp = None
    with pytest.raises(CalibrationError, match="'widen'"):
        calibrate(plan, images(2) * 1e3, RECIPE)
