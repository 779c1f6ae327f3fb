"""Networks nobody has seen before, optimised: the same answers, or a refusal with its reason, and few of those.

WILD_SEED=1000 python -m pytest tests/wild    other networks; WILD_COUNT says how many
"""

import copy
import os
from collections import Counter

import pytest
import torch
from torch import nn

from helpers import passes
from helpers.graphs.tracing import WrongSize
from tests.wild.networks import draw

FIRST, COUNT = int(os.environ.get("WILD_SEED", 0)), int(os.environ.get("WILD_COUNT", 25))
SEEDS = range(FIRST, FIRST + COUNT)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}
NORMS = ("batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training")


def is_norm(graph_module, node) -> bool:
    if node.op == "call_module":
        return isinstance(graph_module.get_submodule(node.target), nn.modules.batchnorm._BatchNorm)
    return getattr(node.target, "__name__", "").split(".")[0] in NORMS


def norms_left(model, inputs, route) -> int:
    graph_module, _ = passes.optimize(model, inputs, route=route)
    return sum(is_norm(graph_module, node) for node in graph_module.graph.nodes)


def sized(inputs, batch: int):
    return tuple(torch.randn(batch, *x.shape[1:], dtype=x.dtype) for x in inputs)


def assert_same_answers(before, after, inputs) -> None:
    """Twice in a row, then with another batch, where the network takes one."""
    before, after = copy.deepcopy(before), copy.deepcopy(after)
    for batch in (None, None, len(inputs[0]) + 1, 1, 9):
        given = inputs if batch is None else sized(inputs, batch)
        with torch.no_grad():
            try:
                expected = before(*copy.deepcopy(given))
            except (RuntimeError, ValueError):
                continue
            try:
                got = after(*copy.deepcopy(given))
            except WrongSize:  # it was recorded for others, and says so
                continue
        if isinstance(expected, torch.Tensor):
            expected, got = (expected,), (got,)
        assert len(expected) == len(got)
        for one, two in zip(expected, got, strict=True):
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
            pytest.skip(f"refused: {network}, {route}: {refusal}"[:200])
        assert_same_answers(model, optimised, inputs)


@pytest.mark.parametrize("route", ["fx", "export"])
def test_few_are_refused_and_most_norms_fold(route):
    outcomes, left, foldable = Counter(), 0, 0
    for seed in SEEDS:
        network = draw(seed)
        try:
            remaining = norms_left(network.model, network.inputs, route)
        except (ValueError, RuntimeError) as refusal:
            outcomes[f"{network.kind}: {refusal}"[:120]] += 1
            continue
        everything = sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.model.modules())
        everything += network.kind == "functional"
        left, foldable = left + remaining - (everything - network.foldable), foldable + network.foldable
    assert sum(outcomes.values()) <= 0.1 * len(SEEDS), outcomes
    assert left <= 0.2 * foldable
