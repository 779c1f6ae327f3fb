"""Networks of torchvision by both tracers, and random graphs with shared modules and odd shapes:
the answers stay.
"""

import gc
import hashlib
import operator

import pytest
import torch
import torch.nn.functional as F
import torchvision
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.fx.experimental.optimization import fuse

from helpers import metrics, passes
from tests.marks import IN_CI
from tests.passes.graphs import differences, norm_calls
from tests.passes.zoo import conv, norm, up

ALL = torchvision.models.list_models(module=torchvision.models)
TINY = (
    "mobilenet_v2",
    "mobilenet_v3_small",
    "resnet18",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "mnasnet0_5",
)
SHARE = (
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "densenet169",
    "efficientnet_b0",
    "efficientnet_b1",
    "efficientnet_v2_s",
    "googlenet",
    "inception_v3",
    "mnasnet1_3",
    "mobilenet_v3_large",
    "regnet_x_400mf",
    "regnet_y_400mf",
    "regnet_y_1_6gf",
    "resnet34",
    "resnet50",
    "resnext50_32x4d",
    "shufflenet_v2_x1_0",
    "shufflenet_v2_x2_0",
    "squeezenet1_0",
    "swin_t",
    "vit_b_32",
    "wide_resnet50_2",
    "maxvit_t",
)
# The side of the smallest images that the network accepts; 64 for all others.
SIDES = {"inception_v3": 96, "googlenet": 64, "maxvit_t": 224, "alexnet": 80} | {
    name: 224 for name in ALL if name.startswith("vit_")
}


def build(name: str) -> nn.Module:
    """The network with random weights and batch-norm statistics that are far from 0 and 1."""
    settings = (
        {"init_weights": False, "aux_logits": False}
        if name in ("googlenet", "inception_v3")
        else {}
    )
    model = torchvision.models.get_model(name, weights=None, **settings).eval()
    return metrics.randomize_batchnorm(model)


def digests(model: nn.Module) -> dict[str, str]:
    """What says whether a tensor has changed, without a copy of it."""
    return {
        name: hashlib.blake2b(tensor.numpy()).hexdigest()
        for name, tensor in model.state_dict().items()
    }


def marked(name: str, route: str):
    if name == "mobilenet_v2" or (name in TINY[:4] and route == "fx"):
        return (name, route)
    in_ci = name in (*SHARE, *TINY)
    return pytest.param(name, route, marks=IN_CI if in_ci else pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "route"), [marked(name, route) for name in ALL for route in ("fx", "export")]
)
def test_every_network(name, route):
    gc.collect()  # a graph refers to itself, so the gigabytes of the network before are still here
    model = build(name).double()
    side = SIDES.get(name, 64)
    x = torch.randn(1, 3, side, side, dtype=torch.float64)
    before = digests(model)
    folded, _ = passes.optimize(model, x, route=route)
    assert differences(model, folded, x, calls=1) == []
    assert digests(model) == before
    assert passes.Passer(passes.PIPELINES["fold"]).run(folded).changed == []
    if route == "fx":  # without numbers, of which the largest networks have 5 GB
        assert len([*norm_calls(folded)]) <= len([*norm_calls(fuse(model.to("meta")))])


ACTIVATIONS = (F.relu, torch.sigmoid, F.hardswish, F.silu, F.relu6, torch.tanh)
OPERATORS = {
    "add": torch.add,
    "sub": operator.sub,
    "rsub": torch.rsub,
    "mul": torch.mul,
    "div": operator.truediv,
}
LAYERS = {"conv": conv, "up": up}
KINDS = (*LAYERS, "norm", "functional", *OPERATORS, "act", "residual", "reuse", "identity")


class Random(nn.Module):
    """A list of steps on a growing list of values; each step names what it does and the value that
    it takes.
    """

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
            shapes = (
                (channels, *[1] * dimensions),
                (),
                (1,),
                (1, channels, *[1] * dimensions),
                (4,) * dimensions,
            )
            self.register_buffer(f"z{number}", torch.rand(shapes[choice % 5]) + 0.5)

    def forward(self, x):
        values = [x]
        for number, (kind, source, choice) in enumerate(self.steps):
            value, part = values[-1 - source % min(len(values), 2)], self.parts[number]
            if kind == "functional":
                value = F.batch_norm(
                    value, part.running_mean, part.running_var, part.weight, part.bias, eps=part.eps
                )
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


STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 14)), min_size=2, max_size=9
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(STEPS, st.sampled_from((1, 2, 3)), st.integers(1, 4), st.integers(0, 99))
def test_float64_answers_stay(steps, dimensions, channels, seed):
    torch.manual_seed(seed)
    network = Random(steps, dimensions, channels).double().eval()
    x = torch.randn(2, channels, *[4] * dimensions, dtype=torch.float64)
    folded, _ = passes.optimize(network, x)
    assert differences(network, folded, x, calls=1) == []
    assert passes.Passer(passes.PIPELINES["fold"]).run(folded).changed == []
