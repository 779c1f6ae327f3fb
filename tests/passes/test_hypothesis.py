"""Random graphs of convolutions, batch norms, sums, products and activations, with shared modules and odd shapes."""

import operator

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import passes
from tests.passes.equivalence import differences
from tests.passes.zoo import conv, norm, up

ACTIVATIONS = (F.relu, torch.sigmoid, F.hardswish, F.silu, F.relu6, torch.tanh)
OPERATORS = {"add": torch.add, "sub": operator.sub, "rsub": torch.rsub, "mul": torch.mul, "div": operator.truediv}
LAYERS = {"conv": conv, "up": up}
KINDS = (*LAYERS, "norm", "functional", *OPERATORS, "act", "residual", "reuse", "identity")


class Random(nn.Module):
    """A list of steps on a growing list of values; each step names what it does and the value that it takes."""

    def __init__(self, steps: list, dimensions: int, channels: int):
        super().__init__()
        self.steps, self.parts = steps, nn.ModuleList()
        for number, (kind, _, choice) in enumerate(steps):
            part = nn.Identity()
            if kind in LAYERS:
                options = {"groups": channels if choice % 3 == 0 else 1, "bias": bool(choice % 2)}
                part = LAYERS[kind](channels, channels, 3, dimensions, padding=1, **options)
            elif kind in ("norm", "functional"):
                part = norm(channels, dimensions, affine=bool(choice % 2) or kind == "functional")
            self.parts.append(part)
            shapes = ((channels, *[1] * dimensions), (), (1,), (1, channels, *[1] * dimensions), (4,) * dimensions)
            self.register_buffer(f"z{number}", torch.rand(shapes[choice % 5]) + 0.5)

    def forward(self, x):
        values = [x]
        for number, (kind, source, choice) in enumerate(self.steps):
            value, part = values[-1 - source % min(len(values), 2)], self.parts[number]
            if kind == "functional":
                value = F.batch_norm(value, part.running_mean, part.running_var, part.weight, part.bias, eps=part.eps)
            elif kind in OPERATORS:
                value = OPERATORS[kind](value, getattr(self, f"z{number}"))
            elif kind == "act":
                value = ACTIVATIONS[choice % len(ACTIVATIONS)](value)
            elif kind == "residual":
                value = value + values[source % len(values)]
            else:
                value = self.parts[choice % len(self.parts) if kind == "reuse" else number](value)
            values.append(value)
        return values[-1], values[len(values) // 2]


STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 14)), min_size=2, max_size=9)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(STEPS, st.sampled_from((1, 2, 3)), st.integers(1, 4), st.integers(0, 99))
def test_float64_answers_stay(steps, dimensions, channels, seed):
    torch.manual_seed(seed)
    network = Random(steps, dimensions, channels).double().eval()
    x = torch.randn(2, channels, *[4] * dimensions, dtype=torch.float64)
    folded, _ = passes.optimize(network, x)
    assert differences(network, folded, x, calls=1) == []
    assert passes.Passer(passes.PIPELINES["fold"]).run(folded).changed == []
