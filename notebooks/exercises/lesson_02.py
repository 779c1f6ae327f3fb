"""Lesson 02. The learner's functions get a traced network; the oracles know how it was put together."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from helpers.checks.compare import Tolerance
from helpers.checks.inputs import between
from helpers.checks.specification import Case, Item

LAYERS = {"linear": lambda: nn.Linear(4, 4), "relu": nn.ReLU, "identity": nn.Identity}


class Branches(nn.Module):
    """Layers in a row, and the sum of the last two values: so that a value is read twice."""

    def __init__(self, kinds: list[str]):
        super().__init__()
        self.layers = nn.ModuleList([LAYERS[kind]() for kind in kinds])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run them."""
        values = [x]
        for layer in self.layers:
            values.append(layer(values[-1]))
        return values[-1] + values[-2]


def traced(inputs: dict) -> fx.GraphModule:
    """The network of a case, with weights from its seed, traced."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(inputs["seed"])
        return fx.symbolic_trace(Branches(inputs["kinds"]).eval())


def layer_cases(rng: torch.Generator) -> list[Case]:
    """Rows of layers with identities in all places: at the front, at the end, two in a row."""
    cases = []
    for label, ends in (("at the end", ["linear", "identity"]), ("two in a row", ["identity", "identity"])):
        kinds = [list(LAYERS)[between(rng, 0, 2)] for _ in range(between(rng, 2, 6))] + ["relu"]
        cases.append(Case(f"an identity {label}", {"kinds": kinds + ends, "seed": between(rng, 0, 10**6)}))
    kinds = ["identity", "linear", "identity", "relu"]
    cases.append(Case("an identity in front", {"kinds": kinds, "seed": between(rng, 0, 10**6)}))
    cases.append(Case("no identity at all", {"kinds": ["linear", "relu"], "seed": between(rng, 0, 10**6)}))
    return cases


def run_count(student: Mapping[str, Any], inputs: dict) -> dict:
    """Hand over the graph."""
    return student["nodes_by_op"](traced(inputs).graph)


def count_oracle(inputs: dict, probe: dict) -> dict:
    """Known from the way in which the network was built."""
    return {"placeholder": 1, "call_module": len(inputs["kinds"]), "call_function": 1, "output": 1}


def as_plain(answer: Any, probe: dict) -> dict:
    """A dictionary, also from a Counter."""
    return {str(op): int(count) for op, count in dict(answer).items()}


def run_remove(student: Mapping[str, Any], inputs: dict) -> dict:
    """Hand over the network; look at what became of it. Returning it is allowed, changing it in place too."""
    graph_module = traced(inputs)
    graph_module = student["remove_identities"](graph_module) or graph_module
    graph_module.graph.lint()
    graph_module.recompile()
    left = [node for node in graph_module.graph.nodes if node.op == "call_module"]
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    return {"modules called": len(left), "nodes": len(graph_module.graph.nodes), "output": graph_module(x).detach()}


def remove_oracle(inputs: dict, probe: dict) -> dict:
    """The network as it was, and the number of layers that are no identity."""
    kept = sum(kind != "identity" for kind in inputs["kinds"])
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    return {"modules called": kept, "nodes": kept + 3, "output": traced(inputs)(x).detach()}


ITEMS = (
    Item(
        name="nodes_by_op",
        function="nodes_by_op",
        points=1,
        cases=layer_cases,
        oracle=count_oracle,
        run=run_count,
        view=as_plain,
        hint="Go through graph.nodes and count node.op; ops that do not occur have no entry.",
        nudge="Each node has an attribute `op`.",
        minutes=4,
        dots=1,
    ),
    Item(
        name="remove_identities",
        function="remove_identities",
        points=1,
        cases=layer_cases,
        oracle=remove_oracle,
        run=run_remove,
        tolerance=Tolerance(1e-6, 1e-6),
        hint="node.replace_all_uses_with(node.args[0]), then graph.erase_node(node); go through a copy of the list.",
        nudge="Three steps: find the node, move its readers, erase it.",
        minutes=10,
        dots=2,
    ),
)
