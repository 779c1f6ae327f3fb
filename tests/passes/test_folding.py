"""Every trap of the zoo folds exactly or declines with its reason, by both tracers; the traps for
norms are traps.
"""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers import passes
from helpers.graphs.errors import Declined
from helpers.graphs.tracing import trace
from helpers.passes import conv_bn_folding
from helpers.passes.conv_bn_folding import folded
from tests.marks import IN_CI
from tests.passes.graphs import build, calls, differences, example
from tests.passes.zoo import CONSTANT_CASES, CONVS, DECLINE, FOLD, NORM_CASES, NORMS, ZOO, conv


def runs(route: str, every: int) -> list:
    """All cases of a route; all but each `every`-th one are slow."""
    cases = [case for case in ZOO if route in case.routes]
    return [
        pytest.param(
            case, route, id=f"{case.name}-{route}", marks=[] if number % every == 0 else IN_CI
        )
        for number, case in enumerate(cases)
    ]


@pytest.mark.parametrize(("case", "route"), [*runs("fx", every=1), *runs("export", every=6)])
def test_obeys_its_verdict(case, route):
    model, x = build(case), example(case)
    graph_module, report = passes.optimize(model, x, route=route)
    assert differences(model, graph_module, x) == []
    if case.left is not None:
        assert len(calls(graph_module)) == case.left, graph_module.code + "\n".join(
            map(str, report.declined)
        )
    if case.verdict == DECLINE:
        assert any(case.reason in reason for _, _, reason in report.declined), report.declined


CASES = {case.name: case for case in ZOO}
assert len(CASES) == len(ZOO)  # names are unique
# A batch norm or a constant is folded here, by the maths that the tests below falsify; not in
# addmm, which becomes a layer as it is, and an empty batch hides everything.
HIDDEN = ("addmm", "empty batch")
FOLDS = [
    case
    for case in (*NORM_CASES, *CONSTANT_CASES)
    if case.verdict == FOLD and case.name not in HIDDEN
]


def fold_norms(model: nn.Module, x: torch.Tensor) -> fx.GraphModule:
    """conv -> bn becomes conv, without a question asked: written into the layer that is there,
    whoever else uses it.
    """
    graph_module = trace(model, (x,))
    modules = dict(graph_module.named_modules(remove_duplicate=False))
    for node in list(graph_module.graph.nodes):
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        layer = (
            modules.get(source.target)
            if source is not None and source.op == "call_module"
            else None
        )
        if not isinstance(layer, (*CONVS.values(), nn.Linear)):
            continue
        if node.op == "call_module" and isinstance(modules[node.target], tuple(NORMS.values())):
            norm = modules[node.target]
            mean, var, gamma, beta, eps = (
                norm.running_mean,
                norm.running_var,
                norm.weight,
                norm.bias,
                norm.eps,
            )
        elif node.target is F.batch_norm:
            given = dict(
                zip(("input", "running_mean", "running_var"), node.args, strict=False)
            ) | dict(node.kwargs)
            names = ("running_mean", "running_var", "weight", "bias")
            mean, var, gamma, beta = (
                operator.attrgetter(given[name].target)(graph_module) for name in names
            )
            eps = given["eps"]
        else:
            continue
        a = gamma / ((1 if var is None else var) + eps) ** 0.5
        with torch.no_grad():
            layer.weight.mul_(a.reshape(-1, *[1] * (layer.weight.dim() - 1)))
            layer.bias.mul_(a).add_(beta - (0 if mean is None else mean) * a)
        node.replace_all_uses_with(source)
        graph_module.graph.erase_node(node)
    graph_module.graph.lint()
    graph_module.recompile()
    return graph_module


@pytest.mark.parametrize(
    "case", [CASES["plain"], *(case for case in ZOO if case.trap)], ids=lambda case: case.name
)
def test_the_naive_rewrite_is_caught_but_not_where_nothing_is_tricky(case):
    model, x = build(case), example(case)
    assert bool(differences(model, fold_norms(build(case), x), x)) == case.trap


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
    (
        "transposed, Cin == Cout",
        "_along_output_axis",
        lambda layer, factor: factor.reshape(-1, 1, 1, 1),
    ),
    (
        "transposed, 2 groups, Cin == Cout",
        "_along_output_axis",
        lambda _, factor: factor[:2].reshape(1, -1, 1, 1),
    ),
]


@pytest.mark.parametrize(("name", "function", "wrong"), WRONG)
def test_wrong_maths_a_forgotten_eps_and_a_wrong_axis_are_caught(
    name, function, wrong, monkeypatch
):
    monkeypatch.setattr(conv_bn_folding, function, wrong)
    model, x = build(CASES[name]), example(CASES[name])
    assert differences(model, passes.optimize(model, x, verify=False)[0], x) != []


def test_a_bias_appears_only_when_one_is_needed_and_weights_without_data_are_refused():
    layer = conv(bias=False)
    assert folded(layer, 2.0, 0.0).bias is None
    assert folded(layer, 2.0, torch.zeros(4)).bias is not None  # for any weights of this shape
    with pytest.raises(Declined, match="no data"):
        folded(layer.to("meta"), 2.0, 0.0)
