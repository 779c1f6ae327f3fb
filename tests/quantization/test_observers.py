import math

import pytest
import torch
from torch import nn

from helpers.graphs.errors import GraphMismatch
from helpers.quantization import Affine, QuantizationError, Recipe, lowering, make_plan, quantize
from helpers.quantization.affine import choose, sqnr
from helpers.quantization.observers import Observer, calibrate
from helpers.quantization.plan import CHOICES, INPUT
from helpers.quantization.qat import prepare
from tests.passes.zoo import Net
from tests.quantization.networks import images, small

RULES = CHOICES["observer"]


def rounded(x, low, high, bits=8):
    affine = Affine(*choose(torch.tensor(low), torch.tensor(high), bits), bits, signed=False)
    return affine.dequantize(affine.quantize(x))


def range_of(rule, *seen, bits=8):
    observer = Observer(rule, bits)
    for batch in seen:
        observer.observe(batch)
    return observer.range()


@pytest.mark.parametrize("rule", RULES)
def test_range_lies_within_what_was_seen_and_holds_a_constant(rule):
    batches = [torch.randn(500) * scale for scale in (1, 5, 0.1, 9)]
    low, high = range_of(rule, *batches)
    everything = torch.cat(batches)
    assert everything.min() <= low < 0 < high <= everything.max()
    assert rule != "minmax" or (low, high) == (everything.min(), everything.max())
    for value in (0.0, 2.5, -3.0):
        x = torch.full((50,), value)
        assert rounded(x, *range_of(rule, x, x))[0].item() == pytest.approx(value, rel=0.01)
    tiny = everything[:500] * 1e-13
    assert sqnr(tiny, rounded(tiny, *range_of(rule, tiny))) > 35


@pytest.mark.parametrize("order", [1, -1])
def test_percentile_leaves_out_no_more_than_it_says_however_a_histogram_grows(order):
    batches = [
        torch.rand(50000) * scale + shift
        for scale, shift in ((0.01, 0), (1, 50), (9, -300), (0.1, 2))
    ][::order]
    low, high = range_of("percentile", *batches)
    x = torch.cat(batches)
    for outside in (x < low, x > high):
        assert outside.double().mean() <= 1e-4
    assert x.min() <= low < -290 and 50 < high <= x.max()
    assert (
        range_of("percentile", torch.cat([torch.rand(20000), torch.full((1,), 100.0)]))[1] < 1.1
    )  # an outlier


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_mse_beats_every_other_range_on_its_grid(bits):
    def error(low, high):
        return (rounded(x, low, high, bits) - x).square().sum()

    x = torch.randn(20000)
    x[:10] = 60.0  # far away
    ours, low, high = error(*range_of("mse", x, bits=bits)), x.min().item(), x.max().item()
    assert all(
        ours <= error(low, high * share) * 1.01 for share in torch.linspace(0.3, 1, 15).tolist()
    )


def test_ranges_are_those_of_the_float_network():
    plan, x, seen = make_plan(small(), (3, 9, 9), Recipe()), images(70), {}
    x[69] *= 100  # more images than one batch
    edges = calibrate(plan, x, Recipe(observer="minmax"))
    plan.run(x, lambda name, value: seen.__setitem__(name, value))
    for name in set(edges) - {"max_pool", "flatten"}:
        low, high = min(seen[name].min().item(), 0), max(seen[name].max().item(), 0)
        assert edges[name].scale.item() == pytest.approx((high - low) / 255, rel=1e-5), name
    assert edges["max_pool"] is edges["grouped"] and edges["flatten"] is edges["pool"]
    assert INPUT in edges and "fc" not in edges


def spoiled(layer, factor, filters=None):
    model = small()
    getattr(model, layer).weight.data[:filters] *= factor
    return model


def test_infinity_around_a_pool_is_its_lowest_code():
    """timm's ResNetV2 pads so, in front of the pool."""
    pad = nn.ConstantPad2d(1, -math.inf)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), pad, nn.MaxPool2d(3, 2), nn.Conv2d(4, 2, 1)).eval()
    expected = model(images())
    q = quantize(model, images(), Recipe(observer="minmax"))
    for q.mode in ("simulated", "integer"):
        assert (q(images()) - expected).abs().max() <= 0.05 * expected.abs().max()


EMPTY = Net(lambda m, x: torch.cat([x, x[:, :0]], 1).flatten(1)).eval()
WIDE = nn.Sequential(nn.Flatten(), nn.Linear(40000, 1)).eval()
nn.init.ones_(WIDE[1].weight)  # its sums are no int32
SEGMENTS = Net(lambda m, x: {"out": m.a(x), "aux": m.b(x)}, a=nn.Conv2d(3, 4, 1), b=nn.Tanh())
SEGMENTS.eval()
REFUSED = [
    (small(), torch.zeros(0, 3, 9, 9), "there are none"),
    (small(), torch.zeros(2, 9, dtype=torch.int64), "uint8 or float32.*those after the emb"),
    (small(), [1, 2], "list"),
    (small(), {"x": images()}, "dict.* if it takes several inputs, quantize the parts"),
    (small(), torch.full((2, 3, 9, 9), math.nan), "2 of 2 hold NaN"),
    (
        nn.Sequential(nn.Conv2d(1, 4, 3)).eval(),
        torch.zeros(2, 1, 9, 9).byte(),
        "calibration images: .*: model.input_normalization = Normalization",
    ),
    (small().double(), images().double(), r"call .float\(\) on the images and"),
    (
        spoiled("widen", math.nan, filters=1),
        images(),
        "widen.weight holds NaN or infinity; check the checkpoint",
    ),
    (
        small().half(),
        torch.zeros(2, 3, 9, 9).byte(),
        r"fc.weight is torch.float16.*call .float\(\) on the network",
    ),
    (spoiled("grouped", 1e38), images(), "edge 'pool' holds nothing, NaN or infinity"),
    (EMPTY, images(), "edge 'getitem' holds nothing"),
    (WIDE, torch.randn(4, 1, 200, 200), "1: the sum of 40000 products"),
    (
        nn.Sequential(nn.ReLU(), nn.Flatten()).eval(),
        images(),
        "no layer of the network has an integer form",
    ),
    (
        Net(lambda m, x: m.a(x).clamp(0, 1e-9).flatten(1), a=nn.Conv2d(3, 4, 1)).eval(),
        1e9 * images(),
        "a: fixed point",
    ),
    (Net(lambda m, x: (x.relu(), x)).eval(), images(), "exactly one"),
    (SEGMENTS, images(), r"picks one, as in self.network\(images\)\['out'\]"),
    (nn.Identity().eval(), images(), "exactly one"),
    (nn.Bilinear(3, 3, 1).eval(), images(), "missing a required argument: 'input2'"),
]


def test_a_class_that_picks_one_output_is_what_quantize_takes():
    picked = Net(lambda m, images: m.network(images)["out"], network=SEGMENTS).eval()
    assert (quantize(picked, images())(images()) - picked(images())).abs().max() < 0.05


def test_of_a_network_of_words_the_part_behind_the_embedding_is_quantized():
    words = torch.arange(12).reshape(2, 6)
    embedded = nn.Embedding(12, 8)(words).detach()
    behind = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)).eval()
    assert (quantize(behind, embedded)(embedded) - behind(embedded)).abs().max() < 0.05


@pytest.mark.parametrize(("model", "x", "message"), REFUSED)
def test_what_cannot_be_quantized_is_named_before_any_training(monkeypatch, model, x, message):
    error = GraphMismatch if "missing" in message else QuantizationError
    monkeypatch.setattr(lowering, "verify_plan", lambda *_: None)
    for begin in (quantize, prepare):
        with pytest.raises(error, match=message):
            begin(model, x, Recipe())
