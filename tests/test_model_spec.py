import json
from dataclasses import asdict

import pytest
from torch import nn

from helpers import models
from helpers.model_spec import REPLAY, ModelError, Spec, record, replay


def test_a_record_adds_one_step_and_is_plain_json():
    source = models.build("squeezenet1_1")
    new = record(nn.Identity(), source, "optimize", level="fold", shapes=((1, 3),))
    assert new.spec.steps == ({"step": "optimize", "level": "fold", "shapes": [[1, 3]]},)
    assert source.spec.steps == ()
    assert json.loads(json.dumps(asdict(new.spec)))["builder"] == "squeezenet1_1"


def test_without_a_specification_none_is_made():
    assert not hasattr(record(nn.Identity(), nn.Identity(), "optimize"), "spec")


def test_values_that_are_not_json_are_refused():
    with pytest.raises(TypeError):
        record(nn.Identity(), models.build("squeezenet1_1"), "optimize", level=nn.Identity())


@pytest.mark.parametrize("name", REPLAY)
def test_every_known_step_leads_to_a_function(name):
    import importlib

    module, function = REPLAY[name]
    assert callable(getattr(importlib.import_module(module), function))


def test_an_unknown_step_names_the_file():
    with pytest.raises(ModelError, match=r"some\.file: unknown step 'exec'"):
        replay(nn.Identity(), Spec("x", {}, ({"step": "exec"},)), "some.file")
