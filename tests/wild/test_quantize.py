"""Networks nobody has seen before, quantized: near to float, the same in every form, or refused with the reason.

WILD_SEED=1000 python -m pytest tests/wild    other networks; WILD_COUNT says how many; WILD_ONNX=1 exports each of them
"""

import functools
import os

import pytest
import torch

from course.benchmarks.quantization_rivals import run_onnx
from helpers import quantization
from tests.wild.networks import draw
from tests.wild.test_optimize import SEEDS

EXPORTED = int(os.environ.get("WILD_ONNX", 8))  # an export takes seconds
RECIPES = [{"residual": "fused"}, {"residual": "separate"}, {"residual": "separate", "equalize": True}]


@functools.cache
def calibrated(seed):
    """A drawn network, images like its example, and the network quantized with them; the error if it is refused."""
    network = draw(seed)
    x = torch.randn(24, *network.inputs[0].shape[1:], generator=torch.Generator().manual_seed(seed))
    recipe = quantization.Recipe(observer="minmax", **RECIPES[seed % 3])
    try:
        return network.model, x, quantization.quantize(network.model, x, recipe)
    except (ValueError, RuntimeError) as refusal:
        return network, x, refusal


def gap(expected, found):
    """The error as a share of the answers, both as root mean squares."""
    return ((found - expected).square().mean() / expected.square().mean().clamp(min=1e-12)).sqrt().item()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_form_answers_alike(seed, tmp_path):
    model, x, quantized = calibrated(seed)
    if isinstance(quantized, Exception):
        pytest.skip(f"refused: {model}: {quantized}"[:200])
    answers = {}
    with torch.no_grad():
        expected = model(x)
        again = quantization.replay(model, quantized.recipe.to_json(), tuple(x.shape[1:]))
        again.load_state_dict(quantized.state_dict())
        for mode in quantization.MODES:
            quantized.mode = again.mode = mode
            answers[mode] = quantized(x)
            assert torch.equal(again(x), answers[mode])
            assert gap(model(x[:1]), quantized(x[:1])) < 0.2  # any number of images
    assert gap(expected, answers["simulated"]) < 0.06
    assert gap(answers["simulated"], answers["integer"]) < 0.01
    assert gap(answers["integer"], answers["kernel"]) < 0.01
    if seed % EXPORTED == 0:
        exported = run_onnx(quantization.to_onnx(quantized, tmp_path / "wild.onnx"))
        assert gap(answers["integer"], exported(x)) < 0.01


def test_few_are_refused():
    """Those with two inputs or outputs do not count, nor those that keep state or take a certain number of images."""
    found = {seed: calibrated(seed) for seed in SEEDS}
    refused = [f"{network}: {why}"[:150] for network, _, why in found.values() if isinstance(why, Exception)]
    expected = ("exactly one", "siamese", "by_batch", "counting")
    refused = [line for line in refused if not any(word in line for word in expected)]
    assert len(refused) <= 0.1 * len(SEEDS), refused
