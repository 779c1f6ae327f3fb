import torch

from helpers.quantization import Recipe
from helpers.quantization.calibration import calibrate
from helpers.quantization.model import QuantizedModel
from helpers.quantization.quantizer import make_plan
from helpers.quantization.report import layer_errors
from helpers.quantization.weights import encode_weights
from tests.quantization.networks import images, small


def table(**choices):
    recipe = Recipe(observer="minmax", **choices)
    plan = make_plan(small(), (3, 9, 9), recipe)
    model = QuantizedModel(plan, calibrate(plan, images(), recipe), encode_weights(plan, recipe), recipe)
    return plan, layer_errors(plan, model, images()).set_index("name")


def test_one_row_per_operation_and_good_at_eight_bits():
    plan, errors = table()
    assert list(errors.index) == [op.name for op in plan.ops]
    assert (errors.sqnr > 25).all() and (errors.own_sqnr > 30).all()


def test_the_layer_with_few_bits_stands_out():
    _, before = table()
    _, errors = table(layer_bits={"widen": 2})
    assert errors.own_sqnr.idxmin() == "widen" and errors.bits["widen"] == 2
    others = errors.index != "widen"
    assert torch.allclose(torch.tensor(errors.own_sqnr[others].values), torch.tensor(before.own_sqnr[others].values))
    assert errors.sqnr["depthwise"] < before.sqnr["depthwise"] - 6  # what follows suffers
    assert errors.sqnr["stem"] == before.sqnr["stem"]  # what comes before does not
