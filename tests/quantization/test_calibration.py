import math

import pytest
import torch

from helpers.quantization.calibration import CalibrationError, calibrate, check_images, quantized_edges
from helpers.quantization.plan import INPUT, Op, Plan
from helpers.quantization.quantizer import make_plan
from helpers.quantization.recipe import Recipe
from tests.quantization.networks import images, small

RECIPE = Recipe(observer="minmax")


def small_plan():
    return make_plan(small(), (3, 9, 9), RECIPE)


def test_ranges_are_those_of_the_float_network():
    plan, x, seen = small_plan(), images(8), {}
    edges = calibrate(plan, x, RECIPE)
    plan.run(x, lambda name, value: seen.__setitem__(name, value))
    for name in set(edges) - {"max_pool", "flatten"}:
        low, high = min(seen[name].min().item(), 0), max(seen[name].max().item(), 0)
        assert edges[name].scale.item() == pytest.approx((high - low) / 255, rel=1e-5), name
    assert edges["max_pool"] is edges["grouped"] and edges["flatten"] is edges["pool"]
    assert "fc" not in edges


def test_more_images_than_one_batch_count():
    plan, x = small_plan(), images(70)
    x[69] *= 100
    assert calibrate(plan, x, RECIPE)[INPUT].scale > 10 * calibrate(plan, x[:69], RECIPE)[INPUT].scale


def test_which_edges_carry_codes():
    def op(name, kind, *inputs):
        return Op(name, kind, inputs, shape=(4,), weight=torch.ones(4, 4) if kind == "linear" else None)

    plan = Plan(
        [
            op("a", "linear", INPUT),
            op("f", "float", "a"),
            op("g", "float", "f"),
            op("r", "reshape", "g"),
            op("b", "linear", "r"),
            op("h", "float", "b"),
            op("c", "linear", "h"),
        ],
        (4,),
    )
    assert quantized_edges(plan) == [INPUT, "a", "g", "r", "b", "h"]  # f goes from float to float, c ends in sums
    plan.ops[-1].clamp = (0.0, None)
    assert quantized_edges(plan)[-1] == "c"


@pytest.mark.parametrize(
    "bad,message",
    [
        (torch.zeros(2, 3, 9, 8), "shape"),
        (torch.zeros(3, 9, 9), "shape"),
        (torch.zeros(0, 3, 9, 9), "N >= 1"),
        (torch.zeros(2, 3, 9, 9, dtype=torch.int64), "uint8 or float32"),
        ([1, 2], "list"),
        (torch.full((2, 3, 9, 9), math.nan), "2 of 2 hold NaN"),
        (torch.full((1, 3, 9, 9), math.inf), "1 of 1 hold NaN"),
    ],
)
def test_bad_images(bad, message):
    with pytest.raises(CalibrationError, match=message):
        check_images(bad, (3, 9, 9))
    with pytest.raises(CalibrationError, match=message):
        calibrate(small_plan(), bad, RECIPE)


def test_a_layer_that_overflows_is_named():
    plan = small_plan()
    plan["widen"].weight *= 1e38
    plan["widen"].clamp = None
    with pytest.raises(CalibrationError, match="'widen'"):
        calibrate(plan, images(2) * 1e3, RECIPE)
