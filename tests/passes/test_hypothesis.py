"""Random graphs of convolutions, batch norms, sums, products and activations, with shared modules and odd shapes."""

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import passes
from tests.passes.equivalence import differences, flat
from tests.passes.zoo import conv, norm, up

ACTIVATIONS = (F.relu, torch.sigmoid, F.hardswish, F.silu, F.relu6, torch.tanh)
KINDS = ("conv", "up", "norm", "functional", "add", "sub", "rsub", "mul", "div", "act", "residual", "reuse", "identity")


class Random(nn.Module):
    """A list of steps on a growing list of values; each step names what it does and the value that it takes."""

    def __init__(self, steps: list, dimensions: int, channels: int, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.steps, self.parts = steps, nn.ModuleList()
        for number, (kind, _, choice) in enumerate(steps):
            bias = bool(choice % 2)
            part = nn.Identity()
            if kind == "conv":
                groups = channels if choice % 3 == 0 else 1
                part = conv(channels, channels, 3, dimensions, padding=1, groups=groups, bias=bias)
            elif kind == "up":
                part = up(channels, channels, 3, dimensions, padding=1, bias=bias, groups=channels if choice % 3 else 1)
            elif kind in ("norm", "functional"):
                part = norm(channels, dimensions, affine=bias or kind == "functional")
            self.parts.append(part)
            shapes = ((channels, *[1] * dimensions), (), (1,), (1, channels, *[1] * dimensions), (4,) * dimensions)
            self.register_buffer(f"z{number}", torch.rand(shapes[choice % 5]) + 0.5)

    def forward(self, x):
        values = [x]
        for number, (kind, source, choice) in enumerate(self.steps):
            value, z = values[-1 - source % min(len(values), 2)], getattr(self, f"z{number}")
            values.append(self.step(kind, number, value, values[source % len(values)], z, choice))
        return values[-1], values[len(values) // 2]

    def step(self, kind, number, value, other, z, choice):
        if kind == "reuse":
            return self.parts[choice % len(self.parts)](value)
        if kind == "functional":
            part = self.parts[number]
            mean, var = part.running_mean, part.running_var
            return F.batch_norm(value, mean, var, part.weight, part.bias, training=False, eps=part.eps)
        results = {
            "add": lambda: z + value,
            "sub": lambda: value - z,
            "rsub": lambda: z - value,
            "mul": lambda: torch.mul(value, z),
            "div": lambda: value / z,
            "act": lambda: ACTIVATIONS[choice % len(ACTIVATIONS)](value),
            "residual": lambda: value + other,
        }
        return results[kind]() if kind in results else self.parts[number](value)


steps = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 14)), min_size=2, max_size=9)


def input_for(dimensions: int, channels: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(2, channels, *[4] * dimensions, dtype=dtype)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps, st.sampled_from((1, 2, 3)), st.integers(1, 4), st.integers(0, 99))
def test_float64_answers_stay(steps, dimensions, channels, seed):
    network = Random(steps, dimensions, channels, seed).double().eval()
    x = input_for(dimensions, channels, torch.float64)
    folded, _ = passes.optimize(network, x)
    assert differences(network, folded, x, calls=1) == []
    assert passes.Passer(passes.PIPELINES["fold"]).run(folded).changed == []


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps, st.sampled_from((1, 2)), st.integers(1, 4), st.integers(0, 99))
def test_float32_is_as_near_to_the_truth_as_before(steps, dimensions, channels, seed):
    """The error against float64 is at most 1e-5, or four times that of the network before the folds."""
    network = Random(steps, dimensions, channels, seed).eval()
    x = input_for(dimensions, channels, torch.float32)
    folded, _ = passes.optimize(network, x)
    with torch.no_grad():
        results, plain = flat(folded(x)), flat(network(x))
        truths = flat(network.double()(x.double()))
    for truth, before, after in zip(truths, plain, results, strict=True):
        scale = truth.abs().max().item() or 1.0
        error = (after.double() - truth).abs().max().item() / scale
        own = (before.double() - truth).abs().max().item() / scale
        assert error <= max(1e-5, 4 * own)
