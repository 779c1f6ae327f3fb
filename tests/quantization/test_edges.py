"""What comes close to the limits: numbers that no code stands for, tiny scales, networks without a
layer.
"""

import math

import pytest
import torch
from torch import nn

from helpers import data, models, passes, training
from helpers.quantization import QuantizationError, Recipe, make_plan, mixed_recipe, qat, quantize
from helpers.quantization.weights import SHARES, encode_layer
from helpers.training.optimizers import weight_groups
from tests.passes.zoo import Net

IMAGES = torch.randint(
    0, 256, (16, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
)


def root():
    """Fine on the images that calibrate it; a large negative input gives NaN."""
    forward = lambda net, x: net.last(torch.sqrt(net.conv(x).mean((2, 3)) + 20))  # noqa: E731
    return Net(forward, conv=nn.Conv2d(3, 4, 1), last=nn.Linear(4, 2)).eval()


def wide():
    """A linear layer that would not fit int32 with the weights that it begins with."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 160 * 160, 2))


NAN, MISNAMED = torch.tensor([1.0, math.nan]), Recipe(layer_bits={"c": 8})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q: q.step("sqrt").encode(NAN), "sqrt: computes NaN, which no code stands for"),
        (lambda q: q(torch.full((2, 3, 8, 8), math.inf)), "with NaN or infinity in it"),
        (lambda q: q(torch.full((2, 3, 8, 8), math.nan)), "with NaN or infinity in it"),
        (lambda q: q(torch.zeros(1, 3, 12, 12)), "normalised float images"),
        (lambda q: q(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)), "normalised float images"),
        (lambda _: quantize(root().to("meta"), IMAGES), r"on the CPU: call \.cpu\(\) on the net"),
        (lambda _: quantize(root(), IMAGES.to("meta")), r"on the CPU: call \.cpu\(\) on the net"),
        (
            lambda _: quantize(root(), IMAGES, MISNAMED),
            r"no layer is called \['c'\]; the layers are \['conv'",
        ),
    ],
)
def test_what_no_code_stands_for_is_refused(call, message):
    q = quantize(root(), IMAGES)
    with pytest.raises(QuantizationError, match=message):
        call(q)


def test_bits_for_a_file_are_chosen_for_a_network_that_can_be_saved():
    with pytest.raises(models.ModelError, match=r"carries no specification.*; say which function"):
        mixed_recipe(root(), IMAGES, 1000)


def test_images_in_bfloat16_get_the_codes_of_the_same_numbers():
    q, x = quantize(root(), IMAGES), torch.randn(4, 3, 8, 8).bfloat16()
    assert torch.equal(q.input.encode(x), q.input.encode(x.float()))


def test_a_wide_layer_that_could_be_saved_can_be_loaded(tmp_path):
    model = models.build(wide).eval()
    with torch.no_grad():
        model[1].weight.zero_()[:, ::9] = 1e-3
    q = quantize(model, IMAGES.repeat(1, 1, 20, 20))
    again = models.load(models.save(q, tmp_path / "q.safetensors"), factory=wide)
    x = torch.randn(2, 3, 160, 160)
    assert torch.equal(again(x), q(x))
    again.step("1").weight.fill_(127)  # as a file might say: sums that int32 cannot hold
    with pytest.raises(QuantizationError, match="1: the sum of 76800 products may reach"):
        again.derive_integers()


def test_one_scale_for_a_layer_has_the_least_error_of_all_that_were_tried():
    op = make_plan(nn.Sequential(nn.Conv2d(3, 16, 3)).eval(), (3, 8, 8), Recipe())["0"]
    op.weight *= torch.logspace(-2, 0, 16)[:, None, None, None]
    found = encode_layer(op, Recipe(4, per_channel=False, weight_observer="mse"))
    scales = op.weight.abs().max() * SHARES.float() / 7
    errors = [((op.weight / s).round().clamp(-7, 7) * s - op.weight).square().sum() for s in scales]
    assert (found.decode() - op.weight).square().sum() <= 1.001 * min(errors) and len(
        found.scale.unique()
    ) == 1


def test_training_with_rounding_starts_where_the_integer_network_is():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, groups=8)
    )
    model = nn.Sequential(model, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
    with torch.no_grad():
        model[0][1].weight[3], model[0][1].bias[3] = (
            1e-36,
            0.3,
        )  # a channel that is dead, but for its bias
    network, x = qat.prepare(model, IMAGES, Recipe()), torch.randn(4, 3, 8, 8)
    assert (network(x) - network.convert()(x)).abs().max() < 0.05 * model(x).abs().max()
    _, spared = weight_groups(network, 1e-3)
    assert [p.shape for p in spared["params"] if p.dim() == 4] == [(8, 1, 3, 3)]
    with pytest.raises(QuantizationError, match=r"per_channel: expected one of \(True, False\)"):
        Recipe(per_channel="no")
    for repair in ({"rounding": "learned"}, {"bias_correction": "empirical"}):
        with pytest.raises(QuantizationError, match="training chooses codes and biases itself"):
            qat.prepare(model, IMAGES, Recipe(**repair))


def test_the_bias_of_a_filter_of_zeros_is_trained_as_it_will_be_computed():
    """Its input has steps of 1.7, so that a bias of 0.8 would be rounded to 0 in these."""
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU6(), nn.Conv2d(8, 4, 1)).eval()
    with torch.no_grad():
        model[0].weight[3], model[0].bias[3] = 0, 0.8
        model[2].bias.zero_()
        model[2].weight.zero_()[0, 3] = 1  # its answer is that channel
    images = 25 * torch.rand(8, 3, 8, 8)
    network = qat.prepare(model, images, Recipe(activation_bits=4))
    assert network.edges["0"].scale < 0.5 < network.edges["input"].scale
    for trained in (network(images), network.convert()(images)):
        assert trained[:, 0].mean().item() == pytest.approx(0.8, abs=0.1)


def test_a_class_may_be_ruled_out():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    nn.init.constant_(model[1].bias[1:], -math.inf)
    assert training.evaluate(model, IMAGES, torch.zeros(16, dtype=torch.long)).accuracy == 1


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_network_that_answers_no_number_has_no_accuracy(wrong):
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    nn.init.constant_(model[1].bias[:1], wrong)
    with pytest.raises(training.TrainingError, match="answers NaN or infinity"):
        training.evaluate(model, IMAGES, torch.zeros(16, dtype=torch.long))


@pytest.mark.parametrize(
    ("classes", "labels", "message"),
    [
        (10, torch.zeros(16, 1).long(), r"labels of torch.int64 \(16, 1\)"),
        (10, torch.zeros(16), r"labels of torch.float32 \(16,\)"),
        (1, torch.ones(16).long(), r"scores of shape \(16, 1\) for labels from 1 to 1"),
        (10, torch.arange(16) % 10 + 1, "for labels from 1 to 10; .* classes count from 0"),
        (10, torch.arange(16) % 10 - 1, "for labels from -1 to 8; .* classes count from 0"),
    ],
)
def test_labels_that_do_not_fit_the_scores_have_no_accuracy(classes, labels, message):
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, classes))
    with pytest.raises(training.TrainingError, match=message):
        training.evaluate(model, IMAGES, labels)


@torch.no_grad()
def test_a_forward_that_asks_for_a_tensor_is_refused_with_a_remedy_that_works():
    forward = lambda net, x: net.b(net.a(x) if isinstance(x, torch.Tensor) else x)  # noqa: E731
    model = Net(forward, a=nn.Conv2d(3, 3, 1), b=nn.Conv2d(3, 4, 3)).eval()
    with pytest.raises(QuantizationError, match=r"whether an input is a tensor.*route='export'"):
        quantize(model, IMAGES)
    x = data.normalize(IMAGES)
    graph, _ = passes.optimize(model, x, route="export")
    expected = model(x)
    assert (quantize(graph, IMAGES)(x) - expected).abs().max() < 0.05 * expected.abs().max()
