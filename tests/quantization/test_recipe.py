import json

import pytest

from helpers.quantization.affine import QuantizationError
from helpers.quantization.recipe import Recipe, RecipeError


def test_json_round_trip():
    recipe = Recipe(weight_bits=4, layer_bits={"fc": 8}, residual="separate", equalize=True)
    assert Recipe(**json.loads(json.dumps(recipe.to_json()))) == recipe
    assert recipe.bits_of("fc") == 8 and recipe.bits_of("other") == 4


@pytest.mark.parametrize("wrong", [{"weight_bits": 1}, {"activation_bits": 9}, {"layer_bits": {"fc": 0}}])
def test_bits_out_of_range(wrong):
    with pytest.raises(QuantizationError, match="from 2 to 8"):
        Recipe(**wrong)


@pytest.mark.parametrize(
    "field", ["observer", "weight_observer", "weight_range", "residual", "unsupported", "rounding"]
)
def test_unknown_choice_names_the_field(field):
    with pytest.raises(RecipeError, match=field):
        Recipe(**{field: "nonsense"})
