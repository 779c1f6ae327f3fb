import pytest
import torch

from helpers import data, models, training
from helpers.quantization.qat import QatLayer, fake_quantize, prepare, train
from helpers.quantization.quantizer import quantize
from helpers.quantization.recipe import Recipe
from helpers.quantization.weights import PAIR_LIMIT, encode_layer
from tests.quantization.plans import conv, small_mobilenet


def test_fake_quantization_rounds_and_saturates():
    x = torch.tensor([-9.0, -0.26, 0.2, 0.3, 9.0])
    assert torch.allclose(fake_quantize(x, torch.tensor(0.5), 0, -7, 7), torch.tensor([-3.5, -0.5, 0.0, 0.5, 3.5]))
    y = fake_quantize(x, torch.tensor(0.5), torch.tensor(2), 0, 15)
    assert torch.allclose(y, torch.tensor([-1.0, -0.5, 0.0, 0.5, 6.5]))


def test_slopes_are_those_of_the_paper():
    x = torch.tensor([-9.0, -0.26, 0.2, 0.3, 9.0], requires_grad=True)
    scale = torch.tensor(0.5, requires_grad=True)
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    (fake_quantize(x, scale, torch.tensor(2), 0, 15) * weight).sum().backward()
    assert torch.allclose(x.grad, weight * torch.tensor([0.0, 1, 1, 1, 0]))
    v = x.detach() / 0.5
    inside = torch.round(v) - v
    by_hand = torch.tensor([0.0 - 2, inside[1], inside[2], inside[3], 15.0 - 2])
    assert torch.allclose(scale.grad, (weight * by_hand).sum() * (5 * 15) ** -0.5)


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(weight_bits=3, activation_bits=4), Recipe(per_channel=False)])
def test_before_training_it_is_the_post_training_network(recipe):
    model, images = small_mobilenet()
    network, quantized = prepare(model, images, recipe), quantize(model, images, recipe)
    x = data.normalize(images)
    with torch.no_grad():
        difference = (network(x) - quantized(x)).abs()
    assert difference.mean() < 0.05 * quantized(x).std(), "a rare code rounds the other way, no more"
    same = network.convert().state_dict()
    for name, tensor in quantized.state_dict().items():
        assert torch.allclose(same[name], tensor, rtol=1e-6), name


def test_training_lowers_the_distance_to_the_float_network_and_survives_saving(tmp_path):
    model, images = small_mobilenet()
    network = prepare(model, images, Recipe(weight_bits=3))
    x = data.normalize(images)
    with torch.no_grad():
        wanted = model(x)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    losses = []
    for _ in range(25):
        loss = (network(x) - wanted).square().mean() / wanted.var()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    quantized = network.convert()
    with torch.no_grad():
        trained = network(x)
    assert torch.allclose(quantized(x), trained, atol=0.05 * trained.std().item())
    loaded = models.load(models.save(quantized, tmp_path / "qat.safetensors"))
    assert torch.equal(loaded(x), quantized(x))


def test_eight_bit_pairs_never_overflow_while_training():
    op = conv("c", ("input",), 4, 6)
    recipe = Recipe()
    layer = QatLayer(op, encode_layer(op, recipe), recipe)
    with torch.no_grad():
        layer.weight.copy_(torch.ones(6, 4, 1, 1))
        layer.scale.fill_(1 / 127)
    codes = layer.convert().codes.long()
    assert (codes[:, 0] + codes[:, 1]).max() <= PAIR_LIMIT


def test_train_takes_the_course_data_and_a_teacher():
    cifar = data.load_cifar10("sample")
    tiny = data.Cifar10(
        cifar.train_images[:40], cifar.train_labels[:40], cifar.test_images[:8], cifar.test_labels[:8], "test", True
    )
    model, _ = small_mobilenet()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config = training.Config(epochs=1, batch_size=18, lr=0.005, distill=0.5, precision="float32")
    quantized = train(model, tiny, Recipe(weight_bits=4), config, progress=False)
    start = quantize(model, tiny.split().train_images, Recipe(weight_bits=4))
    assert not torch.equal(quantized.step("features.0.0").bias, start.step("features.0.0").bias)
    assert quantized(data.normalize(tiny.test_images)).shape == (8, 10)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
