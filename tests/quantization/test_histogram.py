import pytest
import torch

from helpers.quantization.histogram import Histogram


@pytest.mark.parametrize("order", [1, -1])
def test_no_value_is_lost_when_it_grows(order):
    histogram = Histogram(bins=64)
    batches = [torch.randn(1000) * scale + shift for scale, shift in ((0.01, 0), (1, 50), (9, -300), (0.1, 2))][::order]
    for batch in batches:
        histogram.add(batch)
    x = torch.cat(batches)
    assert histogram.counts.sum() == len(x)
    assert (histogram.smallest, histogram.largest) == (x.min().item(), x.max().item())
    assert histogram.start <= histogram.smallest
    assert histogram.largest <= (histogram.start + histogram.width * 64) * (1 + 1e-6)
    mean = (histogram.counts @ histogram.centres / len(x)).item()
    assert mean == pytest.approx(x.double().mean().item(), abs=histogram.width)


def test_counts_match_torch_on_one_batch():
    x = torch.rand(5000)
    histogram = Histogram(bins=16)
    histogram.add(x)
    assert torch.equal(histogram.counts, torch.histc(x, 16).double())


def test_a_constant_batch_then_others():
    histogram = Histogram(bins=8)
    for batch in (torch.zeros(5), torch.tensor([-1.0, 1.0])):
        histogram.add(batch)
    assert histogram.counts.sum() == 7
