"""Lesson 04. The oracles count what torch really does, or sort the graph."""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from helpers.checks.compare import Tolerance
from helpers.checks.inputs import between
from helpers.checks.specification import Case, Item


def intensity_cases(rng: torch.Generator) -> list[Case]:
    """The three convolutions of a block: pointwise, depthwise, ordinary."""
    cases = []
    for label, kernel, depthwise in (("pointwise", 1, False), ("depthwise", 3, True), ("ordinary", 3, False)):
        c_in, side = 4 * between(rng, 2, 9), between(rng, 5, 30)
        c_out, groups = (c_in, c_in) if depthwise else (4 * between(rng, 10, 19), 1)
        inputs = {"c_in": c_in, "c_out": c_out, "side": side, "kernel": kernel, "groups": groups}
        cases.append(Case(f"a {label} convolution", inputs))
    return cases


def intensity_oracle(inputs: dict, probe: dict) -> float:
    """torch counts the operations; the tensors know their bytes."""
    x = torch.zeros(1, inputs["c_in"], inputs["side"], inputs["side"])
    weight = torch.zeros(inputs["c_out"], inputs["c_in"] // inputs["groups"], inputs["kernel"], inputs["kernel"])
    with FlopCounterMode(display=False) as counter:
        out = F.conv2d(x, weight, padding="same", groups=inputs["groups"])
    return counter.get_total_flops() / (x.nbytes + weight.nbytes + out.nbytes)


class Rows(nn.Module):
    """Layers in a row; what the listed ones put out is read a second time, by the sum at the end."""

    def __init__(self, kinds: list[str], read_twice: list[int]):
        super().__init__()
        made = {"conv": lambda: nn.Conv2d(2, 2, 1), "linear": lambda: nn.Linear(4, 4), "relu": nn.ReLU}
        self.layers, self.read_twice = nn.ModuleList([made[kind]() for kind in kinds]), read_twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run them."""
        kept = []
        for position, layer in enumerate(self.layers):
            x = layer(x)
            kept += [x] * (position in self.read_twice)
        return sum(kept, x)


def fusable_cases(rng: torch.Generator) -> list[Case]:
    """Convolutions with one reader, with two, and activations after something else."""
    cases = []
    for label, read_twice in (("every value is read once", False), ("some values are read twice", True)):
        blocks = [["conv", "relu"], ["linear", "relu"], ["relu", "relu"], ["conv", "conv"], ["conv", "relu"]]
        order = torch.randperm(len(blocks), generator=rng).tolist()
        kinds = [kind for block in order for kind in blocks[block]]
        pairs = [i for i in range(len(kinds) - 1) if kinds[i : i + 2] == ["conv", "relu"]]
        # A convolution that is read twice must not be fused; an activation that is read twice may be.
        twice = [pairs[0], pairs[1] + 1] if read_twice else []
        cases.append(Case(label, {"kinds": kinds, "read_twice": twice}))
    return cases


def run_fusable(student: Mapping[str, Any], inputs: dict) -> list[str]:
    """Hand over the traced network; look at the names of the nodes that come back."""
    graph_module = fx.symbolic_trace(Rows(**inputs).eval())
    return [str(node) for node in student["fusable"](graph_module)]


def fusable_oracle(inputs: dict, probe: dict) -> list[str]:
    """Known from the way in which the network was built."""
    kinds, twice = inputs["kinds"], inputs["read_twice"]
    pairs = [i for i in range(1, len(kinds)) if (kinds[i - 1], kinds[i]) == ("conv", "relu")]
    return [f"layers_{i}" for i in pairs if i - 1 not in twice]


def in_order(answer: Any, probe: dict) -> list[str]:
    """Names, whatever held them."""
    return sorted(map(str, answer), key=lambda name: int(name.rpartition("_")[2]))


def cycle_cases(rng: torch.Generator) -> list[Case]:
    """Ways back over one node and over many, none at all though edges enter and leave, and one from the middle."""
    names = [f"n{number}" for number in torch.randperm(90, generator=rng)[:7].tolist()]
    a, b, c, d, e, f, g = names
    graphs = {
        "a way back over one node": ([(a, b), (b, c), (a, c), (c, d)], [a, c]),
        "a way back over two nodes": ([(a, b), (b, c), (c, d), (a, d), (d, e)], [a, d]),
        "a way back over five nodes": ([(a, b), (b, c), (c, d), (d, e), (e, f), (f, g), (a, g)], [a, g]),
        "edges enter and leave": ([(e, a), (a, b), (b, c), (f, b), (c, d)], [a, b]),
        "two ways, both inside": ([(a, b), (a, c), (b, d), (c, d), (d, e)], [a, b, c, d]),
        "a way back in a larger group": ([(a, b), (b, c), (b, e), (e, f), (f, d), (c, d)], [a, b, c, d]),
    }
    return [Case(label, {"edges": edges, "group": group}) for label, (edges, group) in graphs.items()]


def cycle_oracle(inputs: dict, probe: dict) -> bool:
    """Let the group be one node, and try to sort what comes out."""
    sorter, group = TopologicalSorter(), set(inputs["group"])
    for start, end in inputs["edges"]:
        if start not in group or end not in group:
            sorter.add("group" if end in group else end, "group" if start in group else start)
    try:
        sorter.prepare()
    except CycleError:
        return True
    return False


ITEMS = (
    Item(
        name="intensity",
        function="intensity",
        points=1,
        cases=intensity_cases,
        oracle=intensity_oracle,
        tolerance=Tolerance(relative=1e-6),
        hint="Two operations per multiply-add; bytes of input, weights and output, 4 each. groups divides W.",
        nudge="Count operations and bytes separately, then divide.",
        minutes=6,
        dots=2,
    ),
    Item(
        name="fusable",
        function="fusable",
        points=1,
        cases=fusable_cases,
        oracle=fusable_oracle,
        run=run_fusable,
        view=in_order,
        hint="The ReLU's operand must be a call to a Conv2d, and len(operand.users) must be 1.",
        nudge="Two questions per ReLU: what does it read, and does anybody else read that?",
        minutes=10,
        dots=2,
    ),
    Item(
        name="waits_for_itself",
        function="waits_for_itself",
        points=1,
        cases=cycle_cases,
        oracle=cycle_oracle,
        view=lambda answer, probe: bool(answer),
        hint="Start at the outside nodes that read from the group, follow the edges, and see if you come back into it.",
        nudge="A path that comes back must first leave the group.",
        minutes=12,
        dots=3,
    ),
)
