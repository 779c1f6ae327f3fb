import pytest
import torch

from helpers.quantization.absorption import absorb_high_biases
from helpers.quantization.plan import INPUT, Plan
from tests.quantization.plans import conv, in_double


def two_layers(high=None, padding_kernel=1, bias=30.0):
    """The first layer's bias is so high that its ReLU never acts."""
    first = conv("first", (INPUT,), 3, 6, clamp=(0.0, high), spread=0.1)
    first.weight, first.bias = first.weight * 0.2, torch.full((6,), bias)
    first.normal = (torch.full((6,), bias), torch.ones(6))
    second = conv("second", ("first",), 6, 4, kernel=padding_kernel, seed=1)
    return in_double(Plan([first, second], (3, 8, 8)))


def images():
    return torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("high", [None, 30.5])
def test_a_bias_above_all_activations_moves_on_and_nothing_changes(high):
    plan = two_layers(high)
    before, ranges = plan.run(images()), {}
    (row,) = absorb_high_biases(plan)
    assert torch.equal(row.constants, torch.full((6,), 27.0, dtype=torch.float64))
    after = plan.run(images(), lambda edge, x: ranges.update({edge: x.max().item()}))
    assert torch.allclose(after, before, rtol=1e-9)
    assert ranges["first"] < 12
    assert torch.equal(plan["first"].normal[0], torch.full((6,), 3.0, dtype=torch.float64))


def test_low_biases_stay():
    plan = two_layers(bias=2.0)
    (row,) = absorb_high_biases(plan)
    assert not row.constants.any()


def test_never_beyond_the_upper_clamp():
    plan = two_layers(high=6.0)
    before = plan.run(images())
    absorb_high_biases(plan)
    assert (plan["first"].clamp[1] >= 0).all()
    assert torch.allclose(plan.run(images()), before, rtol=1e-9)


def test_a_padding_reader_is_declined_because_its_border_would_change():
    plan = two_layers(padding_kernel=3)
    (row,) = absorb_high_biases(plan)
    assert row.constants is None
    assert row.reason == "second pads with zeros"
    assert torch.equal(plan["first"].bias, torch.full((6,), 30.0, dtype=torch.float64))


def test_without_statistics_or_with_two_readers_it_is_declined():
    plan = two_layers()
    plan["first"].normal = None
    assert "statistics" in absorb_high_biases(plan)[0].reason
    plan = two_layers()
    plan.ops.append(conv("third", ("second", "first"), 4, 6))
    assert "one layer alone" in absorb_high_biases(plan)[0].reason
