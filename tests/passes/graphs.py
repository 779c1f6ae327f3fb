"""Small networks, traced and folded, and whether two networks do the same: for the tests of graphs
and passes.
"""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from helpers.equivalence import gap
from helpers.graphs.tracing import OTHER_INPUTS, trace
from helpers.passes import Passer
from helpers.passes.base import Pass
from helpers.passes.passer import Report
from tests.passes.zoo import NORMS, Net


def network(function, **parts):
    """A network of the zoo's form, in eval mode."""
    return Net(function, **parts).eval()


def graph_of(function, **parts):
    """That network, traced."""
    return fx.symbolic_trace(network(function, **parts))


def fold(
    names: str | list[Pass], model: nn.Module, x: torch.Tensor, route: str = "fx"
) -> tuple[fx.GraphModule, Report]:
    """Run passes on a canonical graph in float64 until it settles; answers and model must stay."""
    model, x = model.double().eval(), x.double()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    graph_module = trace(model, (x,), route)
    Passer(["canonicalize", "dead_code"]).run(graph_module)
    some_passes = names.split() if isinstance(names, str) else names
    report = Passer(some_passes, rounds=9).run(graph_module)
    assert differences(model, graph_module, x) == []
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    return graph_module, report


def calls(graph_module: fx.GraphModule) -> list[Any]:
    """What the graph calls, a module by its class."""
    return [
        type(graph_module.get_submodule(n.target)) if n.op == "call_module" else n.target
        for n in call_nodes(graph_module)
    ]


def call_nodes(graph_module: fx.GraphModule) -> list[fx.Node]:
    """The nodes that call something, but for the guards of an exported graph."""
    guards: set[fx.Node] = set()
    for node in reversed(graph_module.graph.nodes):
        asserts = node.target is torch._assert and OTHER_INPUTS in node.args[1]
        if asserts or (node.users and node.op != "placeholder" and guards.issuperset(node.users)):
            guards.add(node)
    nodes = graph_module.graph.nodes
    return [node for node in nodes if node.op.startswith("call_") and node not in guards]


def norm_calls(graph_module: fx.GraphModule) -> Iterator[fx.Node]:
    """Where the graph calls a batch norm, as a module or as a function."""
    modules, norms = dict(graph_module.named_modules(remove_duplicate=False)), tuple(NORMS.values())
    for node in graph_module.graph.nodes:
        named = node.op == "call_function" and "batch_norm" in str(node.target)
        if named or (node.op == "call_module" and isinstance(modules[node.target], norms)):
            yield node


def reasons(report: Report) -> list[str]:
    return [reason for _, _, reason in report.declined]


TOLERANCE = {
    torch.float64: 1e-10,
    torch.complex128: 1e-10,
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
}
TOLERANCE |= {torch.float16: 2e-2, torch.bfloat16: 8e-2}


def example(case, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if not case.dtype.is_floating_point:
        return torch.randint(-9, 9, case.shape, generator=generator, dtype=case.dtype)
    return torch.randn(case.shape, generator=generator, dtype=torch.float64).to(case.dtype)


def build(case, seed: int = 0) -> nn.Module:
    """The case's network in eval mode; a training submodule stays one."""
    torch.manual_seed(seed)
    model = case.build()
    wider = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    if case.dtype == torch.float64:
        model._apply(lambda t: t.to(wider.get(t.dtype, t.dtype)))
    training = (
        [module for module in model.modules() if module.training] if not model.training else []
    )
    model.eval()
    for module in training:
        module.train()
    return model if case.dtype != torch.bfloat16 else model.bfloat16()


@torch.no_grad()
def differences(before: nn.Module, after: nn.Module, x: torch.Tensor, calls: int = 2) -> list[str]:
    """What tells the two apart in some calls: results, and what became of the inputs.

    Empty when nothing does.
    """
    before, after = copy.deepcopy(before), copy.deepcopy(after)
    found = []
    for _ in range(calls):
        one, other = x.clone(), x.clone()
        torch.manual_seed(5)
        expected = [*tree_leaves(before(one)), one]
        torch.manual_seed(5)
        try:
            results = [*tree_leaves(after(other)), other]
        except RuntimeError as error:
            return [f"does not run: {error}"]
        gaps = ((a.dtype, *gap(a, b)) for a, b in zip(expected, results, strict=True))
        found += [why for dtype, why, error in gaps if error > TOLERANCE.get(dtype, 0)]
    return found
