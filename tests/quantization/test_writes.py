"""Networks that write in place: the quantized network computes what they compute, or is refused
with the reason.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.quantization import QuantizationError, Recipe, quantize, verify
from tests.passes.zoo import Net
from tests.quantization.networks import images


def writes(compute):
    def forward(self, x):
        return compute(self, self.a(x)).mean((2, 3))

    parts = {"relu": nn.ReLU(inplace=True), "selu": nn.SELU(inplace=True), "calls": torch.zeros(1)}
    return Net(forward, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(4, 4, 1), **parts).eval()


def unassigned(write):
    """Write into what a layer made, throw the result away, and read the tensor again."""

    def compute(m, y):
        write(m, y)
        return m.b(y) + y

    return compute


def written_between(m, y):
    """The shortcut is read before the write, the sum after it."""
    z = m.b(y)
    F.relu_(y)
    return z + y


def written_into_slices(m, y):
    """By the route export, for fx does not iterate over a shape."""
    y = y + torch.zeros(*y.shape)
    y[:, :2] = 0.1
    y[:, 1:, ::2, 1:] = y[:, :1, ::2, 1:]
    return m.b(y) + y


FOLLOWED = [
    unassigned(lambda m, y: F.relu_(y)),
    unassigned(lambda m, y: y.clamp_(-0.1, 0.2)),
    unassigned(lambda m, y: y.masked_fill_(y > 0.1, 0.5)),
    unassigned(lambda m, y: y.add_(y)),
    unassigned(lambda m, y: m.relu(m.selu(y))),
    lambda m, y: m.b(m.relu(y)) + y,  # both read what ReLU wrote
    lambda m, y: m.relu(m.b(y)) + y,
    written_between,
    written_into_slices,
]


@pytest.mark.parametrize("compute", FOLLOWED)
def test_whoever_reads_later_reads_what_was_written(compute):
    model, x = writes(compute), images()
    expected = model(x.clone())
    for residual in ("fused", "separate"):
        q = quantize(model, x, Recipe(observer="minmax", residual=residual))
        for q.mode in ("simulated", "integer"):
            assert (q(x) - expected).abs().max() <= 0.05 * expected.abs().max()


REFUSED = [
    unassigned(lambda m, y: y.__setitem__((slice(None), 0), 0)),
    unassigned(lambda m, y: y[:, :2].relu_()),  # a write into a view
    lambda m, y: m.b(y) * m.calls.add_(1),
    lambda m, y: torch.cat([m.b(part) for part in y.chunk(2)]),  # of one image a single part
]


@pytest.mark.parametrize("compute", REFUSED)
def test_what_no_plan_can_follow_is_refused(compute):
    with pytest.raises(
        QuantizationError, match=r"they differ from .* on|a batch of one changes them"
    ):
        quantize(writes(compute), images())


def test_the_last_check_names_the_operation_and_can_be_left_out():
    model = writes(lambda m, y: F.dropout(m.b(y), 0.5, training=True))
    with pytest.raises(
        QuantizationError, match=r"they differ from 'dropout' on\. It may have hooks, draw random"
    ):
        quantize(model, images())
    assert quantize(model, images(), verify=False)(images()).shape == (16, 4)


def test_what_float32_cannot_hold_is_no_difference():
    """The mean is 200,000 deviations, and folding takes it away before anything is added."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()
    model[0].bias.data += 2e5
    model[1].running_mean += 2e5
    x = images()
    exact = copy.deepcopy(model).double()(x.double())
    assert verify.gap(exact, model(x).double())[1] > verify.TOLERANCE
    q = quantize(model, x, Recipe(observer="minmax"))
    assert (q(x) - exact).abs().max() <= 0.02 * exact.abs().max()


def test_what_float32_overflows_on_excuses_no_other_answer():
    overflows = Net(lambda m, x: (100 * x).exp()).eval()  # in float64 it is finite
    x = torch.full((1, 1), 2.0)
    assert verify._rounding(overflows, x, overflows(x)) == 0


@pytest.mark.parametrize(
    "recipe", [{"equalize": True}, {"rounding": "learned", "bias_correction": "empirical"}]
)
def test_linear_layers_on_more_dimensions_have_an_integer_form(recipe):
    def forward(m, x):
        x = m.patches(x).flatten(2).transpose(1, 2)
        return m.head((m.attention(x, x, x)[0] + m.narrow(torch.relu(m.widen(m.norm(x))))).mean(1))

    parts = {
        "patches": nn.Conv2d(3, 8, 3, stride=3),
        "head": nn.Linear(8, 5),
        "norm": nn.LayerNorm(8),
    }
    parts |= {"narrow": nn.Linear(24, 8), "widen": nn.Linear(8, 24)}
    model, x = (
        Net(forward, attention=nn.MultiheadAttention(8, 2, batch_first=True), **parts).eval(),
        images(32),
    )
    q = quantize(model, x, Recipe(observer="minmax", **recipe))
    assert {"widen", "narrow", "head"}.isdisjoint(q.float_layers)
    for q.mode in ("simulated", "integer", "kernel"):
        assert (q(x) - model(x)).abs().max() <= 0.05 * model(x).abs().max()
