"""Lesson 04. The oracles count what torch really does, or know how the network was built."""

from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between
from torch import fx, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake


def intensity_cases(rng: torch.Generator) -> list[Case]:
    """The three convolutions of a block: pointwise, depthwise, ordinary."""
    cases = []
    for label, kernel, depthwise in (
        ("pointwise", 1, False),
        ("depthwise", 3, True),
        ("ordinary", 3, False),
    ):
        c_in, side = 4 * between(rng, 2, 9), between(rng, 5, 30)
        c_out, groups = (c_in, c_in) if depthwise else (4 * between(rng, 10, 19), 1)
        inputs = {"c_in": c_in, "c_out": c_out, "side": side, "kernel": kernel, "groups": groups}
        cases.append(Case(f"a {label} convolution", inputs))
    sizes = {"c_in": 4 * between(rng, 2, 9), "c_out": 4 * between(rng, 10, 19)}
    sizes |= {"side": between(rng, 5, 30), "kernel": 3, "groups": 2}
    return [*cases, Case("a convolution in two groups", sizes)]


def intensity_oracle(inputs: dict, probe: dict) -> float:
    """torch counts the operations; the tensors know their bytes."""
    x = torch.zeros(1, inputs["c_in"], inputs["side"], inputs["side"])
    weight = torch.zeros(
        inputs["c_out"], inputs["c_in"] // inputs["groups"], inputs["kernel"], inputs["kernel"]
    )
    with FlopCounterMode(display=False) as counter:
        out = F.conv2d(x, weight, padding="same", groups=inputs["groups"])
    return counter.get_total_flops() / (x.nbytes + weight.nbytes + out.nbytes)


class Rows(nn.Module):
    """Layers in a row; the sum at the end reads what the listed ones put out a second time.

    With `crossing` each of the last two reads the layer two before it.
    """

    def __init__(self, kinds: list[str], read_twice: list[int], crossing: bool = False):
        super().__init__()
        made = {
            "conv": lambda: nn.Conv2d(2, 2, 1),
            "linear": lambda: nn.Linear(4, 4),
            "relu": nn.ReLU,
        }
        self.layers, self.read_twice = nn.ModuleList([made[kind]() for kind in kinds]), read_twice
        self.crossing = crossing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run them."""
        if self.crossing:
            one, other, first, second = self.layers
            a = one(x)
            b = other(x)
            return first(a) + second(b)
        kept = []
        for position, layer in enumerate(self.layers):
            x = layer(x)
            kept += [x] * (position in self.read_twice)
        return sum(kept, x)


def fusable_cases(rng: torch.Generator) -> list[Case]:
    """Convolutions with one reader, with two, and activations after something else."""
    cases = []
    for label, read_twice in (
        ("every value is read once", False),
        ("some values are read twice", True),
    ):
        blocks = [
            ["conv", "relu"],
            ["linear", "relu"],
            ["relu", "relu"],
            ["conv", "conv"],
            ["conv", "relu"],
        ]
        order = torch.randperm(len(blocks), generator=rng).tolist()
        kinds = ["relu"] * read_twice + [
            kind for block in order for kind in blocks[block]
        ]  # it may read the input
        pairs = [i for i in range(len(kinds) - 1) if kinds[i : i + 2] == ["conv", "relu"]]
        # A convolution that is read twice must not be fused; an activation that is read twice may
        # be.
        twice = [pairs[0], pairs[1] + 1] if read_twice else []
        cases.append(Case(label, {"kinds": kinds, "read_twice": twice}))
    crossing = {"kinds": ["conv", "conv", "relu", "relu"], "read_twice": [], "crossing": True}
    return [*cases, Case("not the node that stands before", crossing)]


def run_fusable(student: Mapping[str, Any], inputs: dict) -> list[str]:
    """Hand over the traced network; look at the names of the nodes that come back."""
    graph_module = fx.symbolic_trace(Rows(**inputs).eval())
    return [str(node) for node in student["fusable"](graph_module)]


def fusable_oracle(inputs: dict, probe: dict) -> str:
    """Known from the way in which the network was built."""
    kinds, twice = inputs["kinds"], inputs["read_twice"]
    if inputs.get("crossing"):
        return in_order(["layers_2", "layers_3"], probe)
    pairs = [i for i in range(1, len(kinds)) if (kinds[i - 1], kinds[i]) == ("conv", "relu")]
    return in_order([f"layers_{i}" for i in pairs if i - 1 not in twice], probe)


def in_order(answer: Any, probe: dict) -> str:
    """Names, whatever held them."""
    return ", ".join(sorted(map(str, answer)))


ITEMS = (
    Item(
        "intensity",
        intensity_cases,
        intensity_oracle,
        tolerance=Tolerance(relative=1e-6),
        minutes=6,
        dots=2,
        nudge="Count operations and bytes separately, then divide.",
        hint="Two operations per multiply-add; bytes of input, weights and output, 4 each. "
        "groups divides the number of weights, and with it the operations.",
        mistakes=(
            Mistake(
                "A multiply-add is two operations. You count it as one.",
                wrong="weights",
                right="2 * weights",
            ),
            Mistake(
                "You divide by how many numbers are moved. Each of them has 4 bytes.",
                wrong="(c_in",
                right="4 * (c_in",
            ),
            Mistake(
                "You leave out groups. An output channel reads only the input channels of its own "
                "group.",
                wrong="c_in",
                right="(c_in // groups)",
            ),
            Mistake(
                "You count the bytes of input and output. The weights are read as well.",
                wrong="",
                right=" + weights",
            ),
        ),
    ),
    Item(
        "fusable",
        fusable_cases,
        fusable_oracle,
        run=run_fusable,
        view=in_order,
        minutes=10,
        dots=2,
        nudge="Two questions for each ReLU: which node does it use, and does anything else use "
        "that one?",
        hint="The ReLU's operand must be a call to a Conv2d, and len(operand.users) must be 1.",
        mistakes=(
            Mistake(
                "You also fuse convolutions whose output something else reads. After fusing, "
                "that value would be gone: count its users.",
                wrong="",
                right=" and len(source.users) == 1",
            ),
            Mistake(
                "You accept any node before the ReLU. It must be the call of a convolution.",
                wrong="",
                right="is_conv and ",
            ),
            Mistake(
                "You count the users of the ReLU itself. What matters is who reads the "
                "convolution before it.",
                wrong="len(node.users)",
                right="len(source.users)",
            ),
            Mistake(
                "You return the names of the convolutions. Return those of the ReLUs.",
                wrong="source.name",
                right="node.name",
            ),
        ),
    ),
)
