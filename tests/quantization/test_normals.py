import math

import pytest
import torch
from torch import nn

from helpers.quantization.normals import clamped_mean, expected, record_normals
from helpers.quantization.plan import INPUT, Op, Plan
from tests.quantization.plans import conv, inverted_residuals


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (0.0, None), (None, 1.0), (None, None), (-1.0, 0.5)])
def test_clamped_mean_agrees_with_numerical_integration(low, high):
    mean = torch.tensor([-2.0, 0.0, 0.3, 5.0, 9.0])
    deviation = torch.tensor([0.5, 1.0, 2.0, 3.0, 0.1])
    z = torch.linspace(-9, 9, 200_001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    values = mean.double()[:, None] + deviation.double()[:, None] * z
    if (low, high) != (None, None):
        values = values.clamp(low, high)
    reference = torch.trapezoid(values * density, z)
    assert torch.allclose(clamped_mean(mean, deviation, low, high).double(), reference, atol=1e-5)


def test_limits_per_channel_and_zero_deviation():
    result = clamped_mean(torch.tensor([3.0, 3.0]), torch.zeros(2), 0.0, torch.tensor([6.0, 2.0]))
    assert torch.allclose(result, torch.tensor([3.0, 2.0]))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.shared, self.other = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x):
        x = self.shared(self.norm(self.conv(x)))
        return x + self.other(x)


def test_normals_come_from_the_batchnorm_that_alone_reads_the_layer():
    torch.manual_seed(0)
    model = Block().eval()
    nn.init.normal_(model.norm.weight)
    nn.init.normal_(model.norm.bias)
    plan = Plan([conv("conv", (INPUT,), 3, 4), conv("shared", ("conv",), 4)], (3, 8, 8))
    for op in plan.ops:
        op.normal = None
    record_normals(plan, model)
    assert torch.equal(plan["conv"].normal[0], model.norm.bias)
    assert torch.equal(plan["conv"].normal[1], model.norm.weight.abs())
    assert plan["shared"].normal is None, "its output is also used without the BatchNorm"


def test_expected_means_pass_through_residuals_and_pooling():
    plan = inverted_residuals()
    assert torch.equal(expected(plan, INPUT), torch.zeros(3))
    assert torch.allclose(
        expected(plan, "b.project"), plan["b.project"].normal[0] + plan["a.project"].normal[0], atol=1e-6
    )
    assert torch.equal(expected(plan, "flat"), clamped_mean(*plan["head"].normal, 0.0, 6.0))
    plan["head"].normal = None
    assert expected(plan, "flat") is None
    plan.ops.append(Op("more", "reshape", ("b.project",), shape=(512,)))
    assert expected(plan, "more") is None, "a reshape that mixes channels and places has no mean per channel"
