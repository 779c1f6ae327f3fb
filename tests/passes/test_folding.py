"""Every trap of the zoo folds exactly or declines with its reason, by both tracers; and the traps really are traps."""

import pytest
import torch

from helpers import passes
from helpers.graphs.errors import MustStay
from helpers.passes import conv_bn_folding
from helpers.passes.conv_bn_folding import folded
from tests.passes.equivalence import build, differences, example
from tests.passes.graphs import calls
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


RUNS = [*runs("fx", every=1), *runs("export", every=6)]


@pytest.mark.parametrize(("case", "route"), RUNS)
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


@pytest.mark.parametrize("case", TRAPS, ids=[case.name for case in TRAPS])
def test_the_naive_rewrite_is_caught(case):
    model, x = build(case), example(case)
    assert differences(model, rewrite(case.wrong, build(case), x), x) != []


def test_the_naive_rewrite_is_right_where_nothing_is_tricky():
    plain = CASES["plain"]
    assert differences(build(plain), rewrite("norm", build(plain), example(plain)), example(plain)) == []


@pytest.mark.parametrize("case", FOLDS, ids=[case.name for case in FOLDS])
def test_wrong_maths_is_caught(case, monkeypatch):
    """Each fold with a factor or a summand that is slightly off."""
    right, model, x = conv_bn_folding.folded, build(case), example(case)
    off = lambda layer, factor, summand: right(layer, torch.as_tensor(factor) * 1.001, summand)  # noqa: E731
    monkeypatch.setattr(conv_bn_folding, "folded", off)
    assert differences(model, passes.optimize(model, x, verify=False)[0], x) != []


@pytest.mark.parametrize("groups", [1, 2])
def test_the_wrong_axis_of_a_transposed_convolution_is_caught(groups, monkeypatch):
    case = CASES["transposed, Cin == Cout" if groups == 1 else "transposed, 2 groups, Cin == Cout"]
    model, x = build(case), example(case)
    wrong = {
        1: lambda layer, factor: factor.reshape(-1, 1, 1, 1),
        2: lambda layer, factor: factor[:2].reshape(1, -1, 1, 1),
    }
    monkeypatch.setattr(conv_bn_folding, "_along_output_axis", wrong[groups])
    assert differences(model, passes.optimize(model, x, verify=False)[0], x) != []


def test_a_forgotten_eps_is_caught(monkeypatch):
    case = CASES["variance near 0"]
    model, x = build(case), example(case)

    def without_eps(norm):
        a = norm.weight.double() / norm.running_var.double().sqrt()
        return a, norm.bias - a * norm.running_mean

    monkeypatch.setattr(conv_bn_folding, "norm_as_affine", without_eps)
    assert differences(model, passes.optimize(model, x, verify=False)[0], x) != []


def test_a_bias_appears_only_when_one_is_needed():
    layer = conv(bias=False)
    assert folded(layer, 2.0, 0.0).bias is None
    assert folded(layer, 2.0, torch.zeros(4)).bias is not None  # for any weights of this shape


def test_weights_without_data_are_refused():
    with pytest.raises(MustStay, match="no data"):
        folded(conv().to("meta"), 2.0, 0.0)
