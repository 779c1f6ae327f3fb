import pytest
import torch
import torch.nn.functional as F

from helpers.quantization import moments as under_test
from helpers.quantization.moments import columns, means, moments, rows
from helpers.quantization.plan import INPUT, Op


def layer(groups=1, kernel=3, stride=(1, 1), padding=(1, 1), dilation=(1, 1)):
    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x = torch.randn(4, 6, 9, 8, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(12, 6 // groups, kernel, kernel, generator=torch.Generator().manual_seed(1))
    shape = F.conv2d(x, weight, **attributes).shape[1:]
    return Op("c", "conv", (INPUT,), weight, torch.zeros(12), attributes=attributes, shape=tuple(shape)), x


LAYERS = [
    {},
    {"groups": 2},
    {"groups": 6, "stride": (2, 2)},
    {"kernel": 1, "padding": (0, 0)},
    {"kernel": 1, "padding": (0, 0), "stride": (2, 1), "groups": 3},
    {"kernel": 1, "padding": (1, 1)},
    {"dilation": (2, 1), "padding": (2, 0)},
]


@pytest.mark.parametrize("sizes", LAYERS)
def test_rows_times_columns_is_the_convolution(sizes):
    op, x = layer(**sizes)
    product = rows(op, op.weight) @ columns(op, x)  # (groups, outputs per group, places)
    result = product.reshape(12, 4, *op.shape[1:]).transpose(0, 1)
    assert torch.allclose(result, op.run(x), atol=1e-5)


@pytest.mark.parametrize("sizes", LAYERS)
def test_means_and_covariances(sizes):
    op, x = layer(**sizes)
    y = torch.round(x * 2) / 2
    a, b = columns(op, x), columns(op, y)
    batches = [x[:3], x[3:]], [y[:3], y[3:]]
    assert torch.allclose(means(op, batches[0]), a.mean(2, keepdim=True), atol=1e-6)
    found = moments(op, *batches)
    a, b = a - a.mean(2, keepdim=True), b - b.mean(2, keepdim=True)
    for name, expected in (("exact", a @ a.mT), ("cross", a @ b.mT), ("rounded", b @ b.mT)):
        assert torch.allclose(getattr(found, name), expected / a.shape[2], atol=1e-5), name


def test_linear_layers_have_one_place_an_image():
    op = Op("fc", "linear", (INPUT,), torch.randn(3, 5), torch.zeros(3), shape=(3,))
    x = torch.randn(7, 5)
    assert torch.equal(columns(op, x), x.t()[None])
    assert torch.allclose(means(op, [x[:2], x[2:]])[0, :, 0], x.mean(0), atol=1e-6)


def test_it_stops_when_it_has_seen_enough(monkeypatch):
    op, x = layer()
    monkeypatch.setattr(under_test, "ENOUGH_PLACES", 2 * 72)
    monkeypatch.setattr(under_test, "PLACES_PER_INPUT", 0)
    whole, spoiled = [x], [torch.cat([x[:2], torch.full_like(x[2:], float("nan"))])]
    assert torch.isfinite(moments(op, whole, spoiled).rounded).all()
