"""The zoo's traps really are traps: the naive rewrite gives a wrong answer, and the check sees it."""

import pytest
import torch

from helpers import passes
from helpers.passes import conv_bn_folding
from tests.passes.equivalence import build, differences, example
from tests.passes.naive import rewrite
from tests.passes.zoo import CONSTANT_CASES, FOLD, NORM_CASES, ZOO

TRAPS = [case for case in ZOO if case.wrong]
# A batch norm or a constant is folded here, by the maths that the tests below falsify; not in addmm, which becomes a
# layer as it is, and an empty batch hides everything.
HIDDEN = ("addmm", "empty batch")
FOLDS = [case for case in (*NORM_CASES, *CONSTANT_CASES) if case.verdict == FOLD and case.name not in HIDDEN]


@pytest.mark.parametrize("case", TRAPS, ids=[case.name for case in TRAPS])
def test_the_naive_rewrite_is_caught(case):
    model, x = build(case), example(case)
    assert differences(model, rewrite(case.wrong, build(case), x), x) != []


def test_the_naive_rewrite_is_right_where_nothing_is_tricky():
    plain = next(case for case in ZOO if case.name == "plain")
    assert differences(build(plain), rewrite("norm", build(plain), example(plain)), example(plain)) == []


@pytest.mark.parametrize("case", FOLDS, ids=[case.name for case in FOLDS])
def test_wrong_maths_is_caught(case, monkeypatch):
    """Each fold with a factor or a summand that is slightly off."""
    right = conv_bn_folding.folded

    def off(layer, factor, summand):
        factor = torch.as_tensor(factor)
        return right(layer, factor * 1.001, summand)

    model, x = build(case), example(case)
    monkeypatch.setattr(conv_bn_folding, "folded", off)
    assert differences(model, passes.optimize(model, x, verify=False)[0], x) != []


@pytest.mark.parametrize("groups", [1, 2])
def test_the_wrong_axis_of_a_transposed_convolution_is_caught(groups, monkeypatch):
    name = "transposed, Cin == Cout" if groups == 1 else "transposed, 2 groups, Cin == Cout"
    case = next(case for case in ZOO if case.name == name)
    model, x = build(case), example(case)
    wrong = {
        1: lambda layer, factor: factor.reshape(-1, 1, 1, 1),
        2: lambda layer, factor: factor[:2].reshape(1, -1, 1, 1),
    }
    monkeypatch.setattr(conv_bn_folding, "_along_output_axis", wrong[groups])
    assert differences(model, passes.optimize(model, x, verify=False)[0], x) != []


def test_a_forgotten_eps_is_caught(monkeypatch):
    case = next(case for case in ZOO if case.name == "variance near 0")
    model, x = build(case), example(case)

    def without_eps(norm):
        a = norm.weight.double() / norm.running_var.double().sqrt()
        return a, norm.bias - a * norm.running_mean

    monkeypatch.setattr(conv_bn_folding, "norm_as_affine", without_eps)
    assert differences(model, passes.optimize(model, x, verify=False)[0], x) != []
