"""Every trap of the zoo folds exactly or declines with its reason, by both tracers; and the traps really are traps."""

import pytest
import torch

from helpers import passes
from helpers.graphs.errors import MustStay
from helpers.passes import conv_bn_folding
from helpers.passes.conv_bn_folding import folded
from tests.passes.graphs import build, calls, differences, example
from tests.passes.naive import rewrite
from tests.passes.zoo import CONSTANT_CASES, DECLINE, FOLD, NORM_CASES, ZOO, conv


def runs(route: str, every: int) -> list:
    """All cases of a route; all but each `every`-th one are slow."""
    cases = [case for case in ZOO if route in case.routes]
    slow = [pytest.mark.slow, pytest.mark.ci]
    return [
        pytest.param(case, route, id=f"{case.name}-{route}", marks=[] if number % every == 0 else slow)
        for number, case in enumerate(cases)
    ]


@pytest.mark.parametrize(("case", "route"), [*runs("fx", every=1), *runs("export", every=6)])
def test_obeys_its_verdict(case, route):
    model, x = build(case), example(case)
    graph_module, report = passes.optimize(model, x, route=route)
    assert differences(model, graph_module, x) == []
    if case.left is not None:
        assert len(calls(graph_module)) == case.left, graph_module.code + "\n".join(map(str, report.declined))
    if case.verdict == DECLINE:
        assert any(case.reason in reason for _, _, reason in report.declined), report.declined


TRAPS = [case for case in ZOO if case.wrong]
CASES = {case.name: case for case in ZOO}
assert len(CASES) == len(ZOO)  # names are unique
# A batch norm or a constant is folded here, by the maths that the tests below falsify; not in addmm, which becomes a
# layer as it is, and an empty batch hides everything.
HIDDEN = ("addmm", "empty batch")
FOLDS = [case for case in (*NORM_CASES, *CONSTANT_CASES) if case.verdict == FOLD and case.name not in HIDDEN]


@pytest.mark.parametrize("case", [CASES["plain"], *TRAPS], ids=lambda case: case.name)
def test_the_naive_rewrite_is_caught_but_not_where_nothing_is_tricky(case):
    model, x = build(case), example(case)
    assert bool(differences(model, rewrite(case.wrong or "norm", build(case), x), x)) == bool(case.wrong)


def off(layer, factor, summand):
    """A fold with a factor that is slightly wrong; `folded` is imported, and so stays right."""
    return folded(layer, torch.as_tensor(factor) * 1.001, summand)


def without_eps(norm):
    a = norm.weight.double() / norm.running_var.double().sqrt()
    return a, norm.bias - a * norm.running_mean


# What is put in the place of a function of conv_bn_folding, and the case that shows it.
WRONG = [
    *((case.name, "folded", off) for case in FOLDS),
    ("variance near 0", "norm_as_affine", without_eps),
    ("transposed, Cin == Cout", "_along_output_axis", lambda layer, factor: factor.reshape(-1, 1, 1, 1)),
    ("transposed, 2 groups, Cin == Cout", "_along_output_axis", lambda _, factor: factor[:2].reshape(1, -1, 1, 1)),
]


@pytest.mark.parametrize(("name", "function", "wrong"), WRONG)
def test_wrong_maths_a_forgotten_eps_and_a_wrong_axis_are_caught(name, function, wrong, monkeypatch):
    monkeypatch.setattr(conv_bn_folding, function, wrong)
    model, x = build(CASES[name]), example(CASES[name])
    assert differences(model, passes.optimize(model, x, verify=False)[0], x) != []


def test_a_bias_appears_only_when_one_is_needed_and_weights_without_data_are_refused():
    layer = conv(bias=False)
    assert folded(layer, 2.0, 0.0).bias is None
    assert folded(layer, 2.0, torch.zeros(4)).bias is not None  # for any weights of this shape
    with pytest.raises(MustStay, match="no data"):
        folded(layer.to("meta"), 2.0, 0.0)
