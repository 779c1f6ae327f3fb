import itertools

import pytest
import torch
import torch.nn.functional as F

from helpers.quantization import repairs
from helpers.quantization.plan import INPUT, Op, Recipe
from helpers.quantization.repairs import columns, covariance, learn_rounding, output_error, rows
from helpers.quantization.weights import PAIR_LIMIT, LayerWeights, encode_layer
from tests.quantization.plans import conv


def linear(outputs=4, inputs=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator)
    return Op("fc", "linear", (INPUT,), weight, torch.zeros(outputs), shape=(outputs,))


def correlated(inputs=6, count=400, seed=1):
    """Inputs that move together, as activations do: there rounding one weight can make up for another."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(count, 1, generator=generator)
    return [common + 0.2 * torch.randn(count, inputs, generator=generator)]


def error(op, layer, seen):
    return output_error(rows(op, op.weight), rows(op, layer.decode()), seen).sum().item()


def test_output_error_is_the_variance_of_the_difference(monkeypatch):
    monkeypatch.setattr(repairs, "DAMPING", 0.0)
    op, x = linear(), correlated()
    y = [x[0] + 0.1 * torch.randn(x[0].shape, generator=torch.Generator().manual_seed(5))]
    rounded = torch.round(op.weight * 3) / 3
    measured = (x[0] @ op.weight.t() - y[0] @ rounded.t()).var(0, correction=0)
    computed = output_error(rows(op, op.weight), rows(op, rounded), covariance(op, x, y))
    assert torch.allclose(computed.flatten(), measured, rtol=1e-3)


def test_it_gains_most_of_what_the_best_combination_gains():
    nearest = achieved = best = 0.0
    for seed in range(4):
        op, x = linear(outputs=3, inputs=6, seed=seed), correlated(seed=seed)
        layer, seen = encode_layer(op, Recipe(weight_bits=3)), covariance(op, x, x)
        scale = layer.scale[:, None]
        ups = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)))
        every = ((torch.floor(op.weight / scale)[:, None] + ups).clamp(-3, 3) * scale[:, None]).transpose(0, 1)
        errors = torch.stack([output_error(rows(op, op.weight), one[None], seen).flatten() for one in every])
        best += errors.min(0).values.sum().item()
        nearest += error(op, layer, seen)
        achieved += error(op, learn_rounding(op, layer, seen), seen)
    assert best <= achieved
    assert nearest - achieved > 0.5 * (nearest - best), "most of what can be gained is"


def test_codes_are_neighbours_of_the_weight_and_nothing_else_changes():
    op = conv("c", (INPUT,), 6, 8, kernel=3, groups=2)
    layer = encode_layer(op, Recipe(weight_bits=4))
    x = list(torch.rand(8, 6, 8, 8).split(4))
    learned = learn_rounding(op, layer, covariance(op, x, x))
    assert (learned.codes - op.weight / layer.scale[:, None, None, None]).abs().max() < 1
    assert learned.codes.dtype == torch.int8
    assert learned.codes.abs().max() <= 7
    assert torch.equal(learned.scale, layer.scale)
    assert torch.equal(learned.bias, layer.bias)
    assert not torch.equal(learned.codes, layer.codes)


def test_each_row_is_at_most_as_wrong_as_before(monkeypatch):
    monkeypatch.setattr(repairs, "STEPS", 0)  # nothing learned: switches stay where they began
    op, x = linear(), correlated()
    layer, seen = encode_layer(op, Recipe(weight_bits=2)), covariance(op, x, x)
    before = output_error(rows(op, op.weight), rows(op, layer.decode()), seen)
    learned = learn_rounding(op, layer, seen)
    assert (output_error(rows(op, op.weight), rows(op, learned.decode()), seen) <= before).all()


def test_eight_bit_pairs_still_fit_into_sixteen_bits():
    codes = torch.tensor([[64.0, 64.0, -64.0, -64.0, 127.0, 1.0]])
    op = Op("fc", "linear", (INPUT,), codes + 0.45, torch.zeros(1), shape=(1,))
    layer = LayerWeights(codes.to(torch.int8), torch.ones(1), torch.zeros(1), bits=8)
    # the output must grow: going up everywhere would be best, but pairs (65, 65) and (128, 2) are too large
    seen = torch.ones(1, 6, 6).repeat(1, 2, 2)
    seen[:, :6, 6:] = seen[:, 6:, :6] = 1.1
    learned = learn_rounding(op, layer, 1.2 * seen).codes.long()
    pairs = learned.reshape(-1, 2)
    assert pairs.clamp(min=0).sum(1).max() <= PAIR_LIMIT
    assert pairs.clamp(max=0).sum(1).min() >= -PAIR_LIMIT
    assert not torch.equal(learned, codes.long()), "the negative pair was free to move"


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
def test_covariance(sizes, monkeypatch):
    monkeypatch.setattr(repairs, "DAMPING", 0.0)
    op, x = layer(**sizes)
    y = torch.round(x * 2) / 2
    both = torch.cat([columns(op, x), columns(op, y)], dim=1)
    both = both - both.mean(2, keepdim=True)
    found = covariance(op, [x[:3], x[3:]], [y[:3], y[3:]])
    assert torch.allclose(found, both @ both.mT / both.shape[2], atol=1e-5)
