import copy

import pytest
import torch

from helpers import models
from helpers.data import normalize
from helpers.passes.fused_layer import FusedLayer
from helpers.passes.predictor import Predictor, UnknownPlace

IMAGES = torch.randint(0, 256, (7, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    network = models.mobilenet_v2(width_mult=0.25)
    with torch.no_grad():
        network(torch.randn(16, 3, 32, 32))  # BatchNorm statistics that are not the identity
    return network.eval()


def expected(model, dtype=torch.float32):
    with torch.no_grad():
        return copy.deepcopy(model).to(dtype)(normalize(IMAGES, dtype)).softmax(1)


@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_predicts_what_the_network_predicts(model, batch_size):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    classes, probabilities = Predictor(model, batch_size=batch_size)(IMAGES)
    torch.testing.assert_close(probabilities, expected(model), rtol=1e-4, atol=1e-5)
    assert torch.equal(classes, probabilities.argmax(1))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("precision", ["float64", "bfloat16", "float16"])
def test_other_precisions_are_compositions(model, precision):
    predictor = Predictor(model, precision=precision)
    tolerance = {"float64": 1e-6, "bfloat16": 0.05, "float16": 0.01}[precision]
    probabilities = predictor(IMAGES).probabilities
    assert (probabilities - expected(model, torch.float64)).abs().max() < tolerance
    layers = [layer for layer in predictor.network.modules() if isinstance(layer, FusedLayer)]
    assert {layer.kernel for layer in layers} == {"composition"}
    assert any(precision in reason for _, _, reason in predictor.report.declined)


def test_reads_a_file(model, tmp_path):
    path = models.save(model, tmp_path / "network.safetensors")
    predictor = Predictor(path, batch_size=4)
    torch.testing.assert_close(predictor(IMAGES).probabilities, expected(model), rtol=1e-4, atol=1e-5)


def test_is_fused_even_when_made_in_inference_mode(model):
    with torch.inference_mode():
        predictor = Predictor(model)
        assert not any(parameter.is_inference() for parameter in predictor.network.parameters())
    assert not [reason for name, _, reason in predictor.report.declined if name == "fusion" and "image" in reason]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"target": "tpu"}, "no target 'tpu': choose one of cpu, cuda"),
        ({"precision": "int3"}, "no precision 'int3'"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_an_unknown_place_is_refused(model, settings, reason):
    with pytest.raises(UnknownPlace, match=reason):
        Predictor(model, **settings)


def test_a_missing_gpu_is_said(model, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnknownPlace, match="no CUDA device"):
        Predictor(model, target="cuda")


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(models.ModelError, match="does not exist"):
        Predictor(tmp_path / "nothing.safetensors")
