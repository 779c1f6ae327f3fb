import math

import pytest
import torch

from helpers.quantization.affine import QuantizationError, choose, code_range, decode, encode
from helpers.quantization.observers import OBSERVERS, Entropy, MinMax, MovingAverage, NotCalibrated, Percentile


def outliers(count=20000):
    """A normal distribution with ten values far away."""
    x = torch.randn(count, generator=torch.Generator().manual_seed(0))
    x[:10] = 60.0
    return x


def error(x, low, high, bits):
    scale, zero_point = choose(torch.tensor(low), torch.tensor(high), bits)
    return (decode(encode(x, scale, zero_point, *code_range(bits, False)), scale, zero_point) - x).square().sum().item()


@pytest.mark.parametrize("name", OBSERVERS)
def test_range_lies_within_what_was_seen(name):
    observer = OBSERVERS[name]()
    batches = [torch.randn(500) * scale for scale in (1, 5, 0.1, 9)]
    for batch in batches:
        observer.observe(batch)
    low, high = observer.range()
    everything = torch.cat(batches)
    assert everything.min() <= low < 0 < high <= everything.max()


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("value", [0.0, 2.5, -3.0])
def test_constant_input(name, value):
    observer = OBSERVERS[name]()
    for _ in range(2):
        observer.observe(torch.full((50,), value))
    low, high = observer.range()
    scale, zero_point = choose(torch.tensor(low), torch.tensor(high), 8)
    x = torch.tensor([value])
    assert decode(encode(x, scale, zero_point, 0, 255), scale, zero_point).item() == pytest.approx(value, rel=0.01)


@pytest.mark.parametrize("name", OBSERVERS)
def test_refuses_what_has_no_range(name):
    with pytest.raises(NotCalibrated, match="calibration images"):
        OBSERVERS[name]().range()
    observer = OBSERVERS[name]()
    for bad in (torch.empty(0), torch.tensor([math.nan]), torch.tensor([math.inf, 1.0])):
        with pytest.raises(QuantizationError, match="NaN or infinity"):
            observer.observe(bad)
    with pytest.raises(NotCalibrated):
        observer.range()  # a refused batch leaves no trace


def test_minmax_and_moving_average_by_hand():
    minmax, average = MinMax(), MovingAverage()
    for batch in (torch.tensor([-1.0, 2.0]), torch.tensor([-3.0, 1.0])):
        minmax.observe(batch)
        average.observe(batch)
    assert minmax.range() == (-3.0, 2.0)
    assert average.range() == pytest.approx((-1.2, 1.9))


def test_percentile_leaves_out_the_share_it_says():
    observer = Percentile()
    x = torch.rand(100000)
    observer.observe(x)
    low, high = observer.range()
    assert (x < low).float().mean() == pytest.approx(1e-4, abs=6e-4)
    assert (x > high).float().mean() == pytest.approx(1e-4, abs=6e-4)


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_mse_beats_every_other_range_on_its_grid(bits):
    x = outliers()
    observer = OBSERVERS["mse"](bits)
    observer.observe(x)
    ours = error(x, *observer.range(), bits)
    low, high = x.min().item(), x.max().item()
    for share in torch.linspace(0.3, 1, 15).tolist():
        assert ours <= error(x, low, high * share, bits) * 1.01


def test_entropy_cuts_outliers_that_cost_resolution_but_not_a_uniform_distribution():
    far, even = Entropy(bits=4), Entropy(bits=8)
    far.observe(outliers())
    even.observe(torch.linspace(0, 1, 20000))
    assert far.range()[1] < 50
    assert even.range()[1] > 0.97


def test_entropy_is_not_misled_by_the_zeros_of_a_relu():
    x = torch.randn(50000, generator=torch.Generator().manual_seed(0))
    without, with_zeros = Entropy(), Entropy()
    without.observe(x[x > 0])
    with_zeros.observe(x.relu())
    assert with_zeros.range() == pytest.approx(without.range())
    assert with_zeros.range()[1] > 2.5
