"""Networks nobody has seen before: optimised, cut and quantized they answer the same, or are
refused with a reason.

WILD_SEED=1000 python -m pytest tests/wild    other networks; WILD_COUNT says how many; WILD_ONNX=1
exports each of them
"""

import copy
import functools
import os
import warnings
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from course.benchmarks.quantization_rivals import run_onnx
from helpers import passes, pruning, quantization
from helpers.graphs.errors import PassError, UnsupportedCase
from helpers.graphs.tracing import OTHER_INPUTS
from helpers.pruning.surgery import cut
from tests.marks import IN_CI
from tests.passes.graphs import norm_calls
from tests.passes.zoo import Net
from tests.pruning.zeroing import random_plan, zeroed
from tests.wild.networks import draw

FIRST, COUNT = int(os.environ.get("WILD_SEED", 0)), int(os.environ.get("WILD_COUNT", 25))
SEEDS = range(FIRST, FIRST + COUNT)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}


def assert_same_answers(before, after, inputs) -> None:
    """Twice in a row, then with another batch, where the network takes one."""
    before, after = copy.deepcopy(before), copy.deepcopy(after)
    for batch in (None, None, len(inputs[0]) + 1, 1, 9):
        given = (
            inputs
            if batch is None
            else [torch.randn(batch, *x.shape[1:], dtype=x.dtype) for x in inputs]
        )
        with torch.no_grad():
            try:
                expected = before(*copy.deepcopy(given))
            except (RuntimeError, ValueError):
                continue
            try:
                got = after(*copy.deepcopy(given))
            except AssertionError as refusal:  # it was recorded for others, and says so
                assert OTHER_INPUTS in str(refusal)
                continue
        for one, two in zip(tree_leaves(expected), tree_leaves(got), strict=True):
            assert one.shape == two.shape
            limit = TOLERANCE[one.dtype] * max(1.0, one.abs().max().item())
            assert (one - two).abs().max() <= limit


@pytest.mark.parametrize("level", ["fold", "inference"])
@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_answers_stay(seed, route, level):
    network = draw(seed)
    kinds = (torch.float64, torch.float32) if level == "fold" else (torch.float32,)
    for dtype in kinds:
        model, inputs = network.model.to(dtype), tuple(x.to(dtype) for x in network.inputs)
        try:
            optimised, _ = passes.optimize(model, inputs, level=level, route=route)
        except (ValueError, RuntimeError) as refusal:
            if isinstance(refusal, PassError) and refusal.pass_name != "tracing":
                raise  # a pass went wrong, and found it out itself
            pytest.skip(f"refused: {network}, {route}: {refusal}"[:200])
        assert_same_answers(model, optimised, inputs)


@pytest.mark.parametrize("route", ["fx", pytest.param("export", marks=IN_CI)])
def test_few_are_refused_and_most_norms_fold(route):
    outcomes, left, foldable = Counter(), 0, 0
    for seed in SEEDS:
        network = draw(seed)
        try:
            optimised, _ = passes.optimize(network.model, network.inputs, route=route)
        except (ValueError, RuntimeError) as refusal:
            outcomes[f"{network.kind}: {refusal}"[:120]] += 1
            continue
        everything = sum(
            isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.model.modules()
        )
        everything += network.kind == "functional"
        left += len([*norm_calls(optimised)]) - (everything - network.foldable)
        foldable += network.foldable
    assert sum(outcomes.values()) <= 0.1 * len(SEEDS), outcomes
    assert left <= 0.2 * foldable


@pytest.mark.parametrize("seed", SEEDS)
def test_cutting_is_exactly_zeroing(seed):
    network = draw(seed)
    model, inputs = network.model.double(), tuple(x.double() for x in network.inputs)
    groups = pruning.channel_groups(model, inputs)
    plan = random_plan(groups, np.random.default_rng(seed))
    small, _ = cut(model, groups, plan)
    with torch.no_grad():
        found, expected = (
            tree_leaves(m(*(x.clone() for x in inputs)))
            for m in (small, zeroed(model, groups, plan))
        )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_most_networks_have_something_to_cut():
    reasons = Counter()
    for seed in SEEDS:
        network = draw(seed)
        groups = list(pruning.channel_groups(network.model, network.inputs))
        if all(group.reason for group in groups):
            reasons[f"{network}: {'; '.join(str(group.reason) for group in groups)}"[:150]] += 1
    assert len(reasons) <= 0.25 * len(SEEDS), reasons


EXPORTED = int(os.environ.get("WILD_ONNX", 8))  # an export takes seconds
RECIPES = [
    {"residual": "fused"},
    {"residual": "separate"},
    {"residual": "separate", "equalize": True},
]


@functools.cache
def calibrated(seed):
    """A drawn network, images like its example, and the network quantized with them; the error if
    it is refused.
    """
    network = draw(seed)
    x = torch.randn(24, *network.inputs[0].shape[1:], generator=torch.Generator().manual_seed(seed))
    recipe = quantization.Recipe(observer="minmax", **RECIPES[seed % 3])
    try:
        return network.model, x, quantization.quantize(network.model, x, recipe)
    except (ValueError, RuntimeError) as refusal:
        return network, x, refusal


def gap(expected, found):
    """The error as a share of the answers, both as root mean squares."""
    return (
        ((found - expected).square().mean() / expected.square().mean().clamp(min=1e-12))
        .sqrt()
        .item()
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_form_answers_alike(seed, tmp_path):
    model, x, quantized = calibrated(seed)
    if isinstance(quantized, Exception):
        pytest.skip(f"refused: {model}: {quantized}"[:200])
    answers = {}
    with torch.no_grad():
        expected = model(x)
        again = quantization.replay(model, quantized.recipe.as_dict(), tuple(x.shape[1:]))
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
    """Those with two inputs or outputs do not count, nor those that keep state or take a certain
    number of images.
    """
    found = {seed: calibrated(seed) for seed in SEEDS}
    expected = ("siamese", "vae", "by_batch", "counting")
    refused = [
        f"{network}: {why}"[:150]
        for network, _, why in found.values()
        if isinstance(why, Exception) and network.kind not in expected
    ]
    assert len(refused) <= 0.1 * len(SEEDS), refused


X = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network(middle=None, names=("first", "middle", "last")):
    """Three layers, with these names."""
    torch.manual_seed(0)
    parts = [nn.Conv2d(3, 8, 3), middle or nn.ReLU(), nn.Conv2d(8, 4, 3)]
    return nn.Sequential(OrderedDict(zip(names, parts, strict=True))).eval()


def normed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        return network(nn.utils.weight_norm(nn.Conv2d(8, 8, 1)))


WAYS = {
    "fx": lambda m: passes.optimize(m, X[:2], level="inference")[0],
    "export": lambda m: passes.optimize(m, X[:2], level="inference", route="export")[0],
    "quantize": lambda m: quantization.quantize(m, X, quantization.Recipe(observer="minmax")),
    "prune": lambda m: pruning.prune(m, X[:2], ratio=0.0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("model", "refusals"),
    [
        (network(names=("keys", "update", "items")), {}),
        (network(Net(lambda m, x: x.clamp(1, -1))), {}),
        (normed(), dict.fromkeys(WAYS, "cannot be copied")),
    ],
    ids=["named like methods", "clamp upside down", "old weight_norm"],
)
def test_the_right_answer_or_one_sentence(model, refusals, way):
    if way in refusals:
        with pytest.raises((ValueError, RuntimeError), match=refusals[way]):
            WAYS[way](model)
        return
    made = WAYS[way](model)
    with torch.no_grad():
        assert (made(X[:2]) - model(X[:2])).abs().max() < 0.05


def test_what_is_no_network_is_named():
    with pytest.raises(UnsupportedCase, match=r"expected a network \(nn.Module\), got str"):
        passes.optimize("m", X)


def test_numbers_of_numpy_are_numbers():
    small = pruning.prune(network(), X[:2], ratio=np.float32(0.5), round_to=np.int64(2))
    assert small.first.out_channels == 4


def test_torchscript_is_refused_by_prune_in_one_sentence():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        model = network(torch.jit.script(nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU())))
    with pytest.raises(
        ValueError, match=r"nothing can be pruned .*this operation is not understood"
    ):
        pruning.prune(model, X[:2])
