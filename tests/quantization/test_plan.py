import json

import pytest
import torch

from helpers.quantization.affine import QuantizationError
from helpers.quantization.plan import INPUT, Op, Recipe, RecipeError


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_maximum_of_codes_is_that_of_numbers_on_large_images_too(memory_format):
    codes = torch.randint(0, 256, (2, 8, 20, 18), dtype=torch.uint8).contiguous(memory_format=memory_format)
    settings = {"kernel": 3, "stride": 2, "padding": 1, "dilation": 1, "ceil_mode": False}
    op = Op("pool", "max_pool", (INPUT,), attributes=settings, shape=(8, 10, 9))
    assert torch.equal(op.run(codes).float(), op.run(codes.float()))


def test_json_round_trip():
    recipe = Recipe(weight_bits=4, layer_bits={"fc": 8}, residual="separate", equalize=True)
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    assert recipe.bits_of("fc") == 8 and recipe.bits_of("other") == 4


@pytest.mark.parametrize("wrong", [{"weight_bits": 1}, {"activation_bits": 9}, {"layer_bits": {"fc": 0}}])
def test_bits_out_of_range(wrong):
    with pytest.raises(QuantizationError, match="from 2 to 8"):
        Recipe(**wrong)


@pytest.mark.parametrize("field", ["observer", "weight_observer", "residual", "rounding"])
def test_unknown_choice_names_the_field(field):
    with pytest.raises(RecipeError, match=field):
        Recipe(**{field: "nonsense"})
