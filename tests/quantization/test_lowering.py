import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import data, models, passes
from helpers.quantization import Recipe, make_plan, plan, quantize
from helpers.quantization.lowering import IMAGES
from helpers.quantization.plan import INPUT
from tests.passes.zoo import Net
from tests.quantization.networks import images, small


def plan_of(model, x, **choices):
    return make_plan(model.eval(), x.shape[1:], Recipe(**choices))


@pytest.mark.parametrize("residual", ["fused", "separate"])
def test_the_plan_computes_the_network(residual):
    model, x = small(), images(2)
    plan = plan_of(model, x, residual=residual)
    assert torch.allclose(plan.run(x), model(x), atol=1e-5)
    expected = [
        "stem",
        "widen",
        "depthwise",
        "narrow",
        *["add"] * (residual == "separate"),
        "grouped",
    ]
    assert [op.name for op in plan.ops][: len(expected)] == expected
    assert plan["narrow"].residual == ("stem" if residual == "fused" else None)
    assert plan["stem"].clamp == (0.0, 6.0) and plan["grouped"].clamp == (0.0, math.inf)


@pytest.mark.parametrize(
    "forward,fused",
    [
        (lambda m, x: m.a(x) + m.b(x), "b"),
        (lambda m, x: m.b(m.a(x)) + x, "b"),
        (lambda m, x: torch.relu(m.a(x) + x), "a"),
        (lambda m, x: torch.relu(m.a(x)) + x, None),  # the activation comes before the sum
        (
            lambda m, x: (y := m.a(x)) + m.b(y).sigmoid(),
            None,
        ),  # something else comes before the sum
        (lambda m, x: (y := m.a(x)) + y, None),
        (lambda m, x: (y := m.a(x)) + m.b(torch.relu(y)), "b"),
        (
            lambda m, x: torch.relu(y := m.a(x)) + m.b(y),
            "b",
        ),  # the activation is not the only reader
    ],
)
def test_which_additions_join(forward, fused):
    model, x = Net(forward, a=nn.Conv2d(3, 3, 1), b=nn.Conv2d(3, 3, 1)), images(2)
    plan = plan_of(model, x)
    assert [op.name for op in plan.ops if op.residual] == ([fused] if fused else [])
    assert torch.allclose(plan.run(x), model(x), atol=1e-5)
    computed = {INPUT}
    for op in plan.ops:
        assert computed.issuperset(op.inputs), f"{op.name} runs before its inputs"
        computed.add(op.name)


def decides(self, x, features=False, *, factor=2):
    """Looks at sizes, goes through parts, and has arguments that nobody gives."""
    if x.shape[-1] % 2:
        x = F.pad(x, (0, 1, 0, 0))
    y = torch.cat([part.relu() for part in self.norm(self.conv(x)).chunk(2, 1)], 1)
    return y if features else factor * self.last(y)


def test_a_forward_that_decides_is_read_by_export():
    model = Net(
        decides, conv=nn.Conv2d(3, 8, 3), norm=nn.BatchNorm2d(8), last=nn.Conv2d(8, 4, 1)
    ).eval()
    for x in (images(16), images(16)[..., :-1]):
        quantized = quantize(model, x, Recipe())
        assert {"conv", "last"} <= {step.op.name for step in quantized.steps.values()} - {
            *quantized.float_layers
        }
        assert (quantized(x) - model(x)).abs().max() < 0.05 * model(x).abs().max()


@pytest.mark.parametrize(
    "kind,call,layer",
    [
        (
            "conv",
            lambda m, x: m.layer(x),
            nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0), dilation=2),
        ),
        ("conv", lambda m, x: m.layer(x), nn.Conv2d(4, 8, 3, groups=4, bias=False)),
        *(
            ("conv", lambda m, x: m.layer(x), nn.Conv2d(4, 6, 3, padding=word))
            for word in ("same", "valid")
        ),
        ("conv", lambda m, x: F.conv2d(input=x, weight=m.weight, bias=m.bias, stride=(2, 1)), None),
        ("clamp", lambda m, x: m.layer(x), nn.ReLU6()),
        ("clamp", lambda m, x: m.layer(x), nn.Hardtanh(-0.5, 2.0)),
        ("clamp", lambda m, x: x.clamp(min=-1), None),
        ("clamp", lambda m, x: torch.clamp(x, 0.1, 0.6), None),
        ("clamp", lambda m, x: F.hardtanh(x), None),
        ("add", lambda m, x: x + x, None),
        ("concat", lambda m, x: torch.cat([x.relu(), x, x], 1), None),
        ("average_pool", lambda m, x: F.avg_pool2d(x, x.size()[2:]), None),
        ("average_pool", lambda m, x: m.layer(x), nn.AvgPool2d(2)),
        ("average_pool", lambda m, x: m.layer(x), nn.AdaptiveAvgPool2d((3, 2))),
        ("average_pool", lambda m, x: torch.mean(x, dim=(-1, -2), keepdim=True), None),
        ("max_pool", lambda m, x: m.layer(x), nn.MaxPool2d(3, 2, 1)),
        ("max_pool", lambda m, x: m.layer(x), nn.MaxPool2d(3, 2, ceil_mode=True)),
        ("linear", lambda m, x: m.layer(x.mean((2, 3))), nn.Linear(4, 3)),
        ("linear", lambda m, x: F.linear(x.mean((2, 3)), m.rows), None),
        ("linear", lambda m, x: m.layer(x), nn.Linear(6, 3)),  # on the last of four dimensions
        ("reshape", lambda m, x: torch.flatten(x, 1), None),
        ("reshape", lambda m, x: x.view(-1, 4, 36), None),
        # Without an integer form:
        ("float", lambda m, x: m.layer(x), nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect")),
        ("float", lambda m, x: m.layer(x), nn.Conv2d(4, 6, 2, padding="same")),
        ("float", lambda m, x: m.layer(x), nn.ConvTranspose2d(4, 6, 3)),
        ("float", lambda m, x: m.layer(x), nn.AvgPool2d(3, padding=1)),
        ("float", lambda m, x: m.layer(x), nn.AvgPool2d(5, 2, ceil_mode=True)),
        ("float", lambda m, x: m.layer(x), nn.AdaptiveAvgPool2d(4)),
        ("float", lambda m, x: torch.clamp(x, 1, -1), None),
        ("float", lambda m, x: F.conv2d(x, m.weight * x.mean()), None),  # the weight is computed
        ("float", lambda m, x: torch.add(x, x, alpha=2), None),
        ("float", lambda m, x: x + 1, None),
        ("float", lambda m, x: x + x.mean(1, keepdim=True), None),  # the shapes differ
        ("float", lambda m, x: x.mean(1), None),
        ("float", lambda m, x: torch.cat([x, x]), None),  # twice as many images
        (
            "float",
            lambda m, x: torch.cat([x, m.weight[:IMAGES, :, :1, :1].expand(-1, -1, 6, 6)], 1),
            None,
        ),
        ("float", lambda m, x: x.reshape(-1, 36), None),  # the batch changes
        ("float", lambda m, x: torch.clamp(x, max=x), None),
        ("float", lambda m, x: x.clamp(max=0.5 * x.max()), None),
        ("float", lambda m, x: x.clamp(min=x.min().item() + 1), None),
    ],
)
def test_the_plan_knows_each_operation_and_computes_it(kind, call, layer):
    for parameter in layer.parameters() if layer and kind == "float" else ():
        nn.init.zeros_(
            parameter
        )  # with which all paddings are alike: a file is read with a fresh network's weights
    shapes = {"weight": (6, 4, 3, 3), "bias": (6,), "rows": (5, 4)}
    parameters = {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    model, x = Net(call, layer=layer, **parameters), torch.randn(IMAGES, 4, 6, 6)
    plan = plan_of(model, x)
    assert torch.allclose(plan.run(x), model(x), atol=1e-5)
    assert plan.ops[-1].kind == kind


def widened():
    """As one makes a dilated network of another: by its settings."""
    layer = nn.Conv2d(4, 6, 3, padding=1)
    layer.dilation, layer.padding = (2, 2), (2, 2)
    return layer


def test_a_padding_that_was_set_later_is_the_one_that_counts():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 1), widened()).eval(), torch.randn(IMAGES, 3, 6, 6)
    assert plan_of(model, x).ops[-1].kind == "conv"
    fused, _ = passes.optimize(model, x, level="inference")
    assert fused(x).shape == (IMAGES, 6, 6, 6)
    torch.testing.assert_close(fused(x), model(x))


def test_the_worked_example_of_the_plan_says_what_is_so():
    tiny, cifar = models.pretrained("tiny"), data.load_cifar10(source="sample")
    q = quantize(tiny, cifar.train_images[:64], Recipe(observer="minmax"))
    q.mode, codes = "integer", {}
    q.run(data.normalize(cifar.test_images[:1]), lambda edge, x: codes.update({edge: x.clone()}))
    step, place = q.step("block1.conv2"), (0, 0, 10, 10)
    total, shortcut = (
        int(part[place]) for part in step.sums(*(codes[name] for name in step.op.inputs))
    )
    first, second = ((m / 2.0**step.shift).flatten()[0] for m in step.multipliers)
    code = int(codes["block1.conv2"][place])
    told = [f"round({total} * {first:.4g} + {shortcut} * {second:.4g}) + 0 = {code} "]
    for name in (INPUT, "stem.0", "block1.conv2"):
        edge = q.edges[name]
        told.append(f"    {name:12}  {edge.scale:.4g} * (code - {edge.zero_point})\n")
    ops = plan_of(tiny, cifar.train_images).ops
    for op in ops[:3] + ops[-3:]:
        inputs, clamp = ", ".join(op.inputs), ", ".join(f"{bound:g}" for bound in op.clamp or ())
        shape = ", ".join(map(str, op.shape))
        told.append(f"    {op.name:19}  {op.kind:12}  {inputs:33}  {clamp:6}  {shape}\n")
    assert [line for line in told if line not in plan.__doc__] == []
    assert len(ops) == 12
