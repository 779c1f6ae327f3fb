"""Small networks, traced and folded, for the tests of graphs and passes."""

from typing import Any

import torch
from torch import fx, nn

from helpers.graphs.tracing import trace
from helpers.passes import Passer
from helpers.passes.passer import Report
from tests.passes.equivalence import differences


def network(function, **parts):
    """A module in eval mode whose forward is `function(net, x, ...)`, with the given modules and buffers hung on it."""
    net = type("Net", (nn.Module,), {"forward": function})()
    for name, part in parts.items():
        setattr(net, name, nn.Buffer(part) if isinstance(part, torch.Tensor) else part)
    return net.eval()


def graph_of(function, **parts):
    """That network, traced."""
    return fx.symbolic_trace(network(function, **parts))


def fold(names: str, model: nn.Module, x: torch.Tensor, route: str = "fx") -> tuple[fx.GraphModule, Report]:
    """Run passes on a canonical graph in float64 until it settles; answers and model must stay."""
    model, x = model.double().eval(), x.double()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    graph_module = trace(model, (x,), route)
    Passer(["canonicalize", "dead_code"]).run(graph_module)
    report = Passer(names.split(), rounds=9).run(graph_module)
    assert differences(model, graph_module, x) == []
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    return graph_module, report


def calls(graph_module: fx.GraphModule) -> list[Any]:
    """What the graph calls, a module by its class."""
    nodes = [node for node in graph_module.graph.nodes if node.op.startswith("call_")]
    return [type(graph_module.get_submodule(n.target)) if n.op == "call_module" else n.target for n in nodes]


def reasons(report: Report) -> list[str]:
    return [reason for _, _, reason in report.declined]
