import copy

import pytest
import torch
from torch import nn

from helpers import data, models, training
from helpers.quantization import Recipe, quantize
from helpers.quantization.qat import fake_quantize, prepare
from tests.quantization.networks import images, small, small_mobilenet
from tests.training.tiny import tiny_cifar, tiny_model


def test_slopes_are_those_of_torch_and_for_the_scale_those_of_the_paper():
    x, slope, zero = torch.randn(4, 3, 5, 5), torch.randn(4, 3, 5, 5), 2
    x[0, 0, 0] = torch.tensor([-4.5, 2.7, 2.8, 0.25, -0.25])  # -9, 5 and 6 steps, and ties
    scale = torch.tensor([0.5, 0.1, 1.0, 0.3])
    rounded, per_row = x.clone().requires_grad_(), scale.clone().requires_grad_()
    fake_quantize(rounded, per_row, zero, -7, 7).backward(slope)
    other, zeros = x.clone().requires_grad_(), torch.full((4,), zero, dtype=torch.int32)
    torch.fake_quantize_per_channel_affine(other, scale, zeros, 0, -7, 7).backward(slope)
    assert rounded.grad[0, 0, 0, :3].ne(0).tolist() == [
        True,
        True,
        False,
    ]  # the last code still learns
    assert torch.equal(rounded.grad, other.grad)
    v = x / scale[:, None, None, None]
    code = v.round() + zero
    along_scale = torch.where(code.abs() <= 7, v.round() - v, code.clamp(-7, 7) - zero) * slope
    assert torch.allclose(per_row.grad, along_scale.sum((1, 2, 3)) * (75 * 7) ** -0.5, atol=1e-6)
    one = scale[1].clone().requires_grad_()  # for a tensor as a whole
    fake_quantize(x[1], one, zero, -7, 7).backward(slope[1])
    assert torch.allclose(one.grad, per_row.grad[1], atol=1e-6)


def test_networks_are_trained_in_bfloat16_too():
    network = prepare(small(), images(), Recipe())
    with torch.autocast("cpu", torch.bfloat16):
        network(images()).float().square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_what_stays_in_float_is_trained_too():
    model = nn.Sequential(nn.Flatten(), nn.Linear(243, 8), nn.LayerNorm(8), nn.Linear(8, 4)).eval()
    network, x = prepare(model, images(), Recipe()), images()
    network(x).square().sum().backward()
    weight, bias = network.floats.parameters()
    assert weight.grad.any() and {id(weight), id(bias)} <= {*map(id, network.parameters())}
    bias.data += 1
    torch.testing.assert_close(network.convert()(x), network(x), atol=0.05, rtol=0)


@pytest.mark.parametrize(
    "recipe", [Recipe(), Recipe(weight_bits=3, activation_bits=4), Recipe(per_channel=False)]
)
def test_before_training_it_is_the_post_training_network(recipe):
    model, images = small_mobilenet()
    network, quantized = prepare(model, images, recipe), quantize(model, images, recipe)
    x = data.normalize(images)
    difference = (network(x) - quantized(x)).detach().abs()
    assert difference.mean() < 0.05 * quantized(x).std(), (
        "a rare code rounds the other way, no more"
    )
    same = network.convert().state_dict()
    for name, tensor in quantized.state_dict().items():
        assert torch.allclose(same[name], tensor, rtol=1e-6), name


@pytest.mark.parametrize("says", [False, True])
def test_what_the_network_says_of_its_images_and_no_more_is_said_of_it(says):
    model, other = small(), data.Normalization((0.1,) * 3, (0.2,) * 3)
    if says:
        model.input_normalization = other
    network = prepare(model, images(), Recipe())
    assert getattr(network, "input_normalization", None) == (other if says else None)
    network.input_normalization = other
    assert network.convert().input_normalization == other


def test_a_network_with_one_scale_a_layer_is_trained():
    network = prepare(
        tiny_model().eval(), tiny_cifar().train_images[:16], Recipe(per_channel=False)
    )
    before = copy.deepcopy(network.trained)
    schedule = training.Config(epochs=1, image_sizes=(32,))
    training.train(network, tiny_cifar(), schedule, progress=False)
    scales = [name for name in before if name.startswith("scale")]
    assert scales and all(not torch.equal(network.trained[name], before[name]) for name in scales)


@pytest.mark.slow
@pytest.mark.ci
def test_training_lowers_the_distance_to_the_float_network_and_survives_saving(tmp_path):
    model, images = small_mobilenet()
    network = prepare(model, images, Recipe(weight_bits=3))
    x = data.normalize(images)
    wanted, losses = model(x).detach(), []
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(25):
        loss = (network(x) - wanted).square().mean() / wanted.var()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    quantized, trained = network.convert(), network(x).detach()
    assert torch.allclose(quantized(x), trained, atol=0.05 * trained.std().item())
    loaded = models.load(models.save(quantized, tmp_path / "qat.safetensors"))
    assert torch.equal(loaded(x), quantized(x))
