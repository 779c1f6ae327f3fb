"""Every trap of the zoo folds exactly or declines with its reason, by both tracers."""

import pytest

from helpers import passes
from tests.passes.equivalence import build, differences, example
from tests.passes.zoo import DECLINE, ZOO


def runs(route: str, every: int) -> list:
    """All cases of a route; all but each `every`-th one are slow."""
    cases = [case for case in ZOO if route in case.routes]
    slow = [pytest.mark.slow, pytest.mark.ci]
    return [
        pytest.param(case, route, id=f"{case.name}-{route}", marks=[] if number % every == 0 else slow)
        for number, case in enumerate(cases)
    ]


RUNS = [*runs("fx", every=1), *runs("export", every=6)]


def operations(graph_module) -> list:
    return [node for node in graph_module.graph.nodes if node.op.startswith("call_")]


@pytest.mark.parametrize(("case", "route"), RUNS)
def test_obeys_its_verdict(case, route):
    model, x = build(case), example(case)
    graph_module, report = passes.optimize(model, x, route=route)
    assert differences(model, graph_module, x) == []
    if case.left is not None:
        assert len(operations(graph_module)) == case.left, graph_module.code + "\n".join(map(str, report.declined))
    if case.verdict == DECLINE:
        assert any(case.reason in reason for _, _, reason in report.declined), report.declined


def test_names_are_unique():
    names = [case.name for case in ZOO]
    assert sorted(names) == sorted(set(names))
