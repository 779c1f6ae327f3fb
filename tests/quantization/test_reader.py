import pytest
import torch
import torchvision
from torch import fx, nn

from helpers import passes
from helpers.quantization.plan import INPUT, PlanError, Recipe
from helpers.quantization.quantizer import quantize
from helpers.quantization.reader import read
from tests.quantization.networks import images, small


def plan_of(model, x, **choices):
    return read(passes.optimize(model.eval(), (x,))[0], x, Recipe(**choices))


@pytest.mark.parametrize("residual", ["fused", "separate"])
def test_the_plan_computes_the_network(residual):
    model, x = small(), images(2)
    plan = plan_of(model, x, residual=residual)
    assert torch.allclose(plan.run(x), model(x), atol=1e-5)
    expected = ["stem", "widen", "depthwise", "narrow", *["add"] * (residual == "separate"), "grouped"]
    assert [op.name for op in plan.ops][: len(expected)] == expected
    assert plan["narrow"].residual == ("stem" if residual == "fused" else None)
    assert plan["stem"].clamp == (0.0, 6.0) and plan["grouped"].clamp == (0.0, None)


class Residuals(nn.Module):
    """Additions that may and may not join a convolution."""

    def __init__(self, forward):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.compute = forward

    def forward(self, x):
        return self.compute(self, x)


@pytest.mark.parametrize(
    "forward,fused",
    [
        (lambda m, x: m.a(x) + m.b(x), "b"),
        (lambda m, x: m.b(m.a(x)) + x, "b"),
        (lambda m, x: torch.relu(m.a(x) + x), "a"),
        (lambda m, x: torch.relu(m.a(x)) + x, None),  # the activation comes before the sum
        (lambda m, x: (y := m.a(x)) + m.b(y).sigmoid(), None),  # something else comes before the sum
        (lambda m, x: (y := m.a(x)) + y, None),
        (lambda m, x: (y := m.a(x)) + m.b(torch.relu(y)), "b"),
    ],
)
def test_which_additions_join(forward, fused):
    model, x = Residuals(forward), images(2)
    plan = plan_of(model, x)
    assert [op.name for op in plan.ops if op.residual] == ([fused] if fused else [])
    assert torch.allclose(plan.run(x), model(x), atol=1e-5)
    computed = {INPUT}
    for op in plan.ops:
        assert computed.issuperset(op.inputs), f"{op.name} runs before its inputs"
        computed.add(op.name)


def test_a_clamp_with_a_second_reader_stays_alone():
    model, x = Residuals(lambda m, x: torch.relu(y := m.a(x)) + m.b(y)), images(2)
    plan = plan_of(model, x, residual="separate")
    assert plan["a"].clamp is None and [op.kind for op in plan.ops].count("clamp") == 1
    assert torch.allclose(plan.run(x), model(x), atol=1e-5)


class TwoInputs(nn.Module):
    def forward(self, x, y):
        return x + y


class TwoOutputs(nn.Module):
    def forward(self, x):
        return x.relu(), x


@pytest.mark.parametrize("model", [TwoInputs(), TwoOutputs(), nn.Identity()])
def test_one_tensor_in_one_tensor_out(model):
    graph_module = fx.symbolic_trace(model)
    with pytest.raises(PlanError, match=r"the inputs|exactly one tensor"):
        read(graph_module, images(2), Recipe())


class Shuffle(nn.Module):
    """Splits into parts, swaps them by a run-time size, and joins what is left with a constant."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.register_buffer("offset", torch.randn(4, 1, 1))

    def forward(self, x):
        left, right = self.conv(x).chunk(2, dim=1)
        mixed = torch.cat([right * self.offset, left], 1).view(x.size(0), 2, 4, x.size(2), x.size(3))
        return self.last(mixed.transpose(1, 2).flatten(1, 2)).mean((2, 3))


def test_parts_sizes_and_constants_stay_inside_float_operations():
    torch.manual_seed(0)
    model, x = Shuffle().eval(), images(2)
    plan = plan_of(model, x)
    assert torch.allclose(plan.run(x), model(x), atol=1e-5)
    assert torch.allclose(plan.run(images(5)), model(images(5)), atol=1e-5)
    quantized = quantize(model, images(16), Recipe())
    for quantized.mode in ("simulated", "integer"):
        assert (quantized(x) - model(x)).abs().max() < 0.05 * model(x).abs().max()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["shufflenet_v2_x0_5", "resnet18", "squeezenet1_1", "mobilenet_v3_small", "mnasnet0_5", "regnet_y_400mf"]
)
def test_torchvision_networks(name):
    torch.manual_seed(0)
    model, x = getattr(torchvision.models, name)(num_classes=10).eval(), torch.randn(2, 3, 64, 64)
    plan, expected = plan_of(model, x), model(x)
    assert torch.allclose(plan.run(x), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
