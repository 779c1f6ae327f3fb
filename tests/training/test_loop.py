from itertools import pairwise

import pytest
import torch
from torch import nn

from helpers import models
from helpers.training.config import Config
from helpers.training.loop import TrainingLoop, device_of, share_of_peak, uses_bfloat16
from helpers.training.optimizers import Muon, weight_groups
from tests.training.tiny import tiny_cifar, tiny_model


def test_the_rate_rises_then_falls_to_zero():
    config = Config(lr=1.0, warmup=0.2)
    rates = [config.lr * share_of_peak(step, 100, config.warmup) for step in range(100)]
    assert all(a < b for a, b in pairwise(rates[:20]))
    assert all(a > b for a, b in pairwise(rates[20:]))
    assert max(rates) == 1.0
    assert 0 < rates[-1] < 0.001
    assert 0 < rates[0] < 0.06


def test_the_rate_really_reaches_the_optimizer_at_each_step(monkeypatch):
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), Config(epochs=2, batch_size=20, lr=0.1))
    seen = []
    [optimizer] = loop.optimizers
    original = optimizer.step
    monkeypatch.setattr(optimizer, "step", lambda: seen.append([g["lr"] for g in optimizer.param_groups]) or original())
    loop.run_epoch(0)
    loop.run_epoch(1)
    expected = [loop.config.lr * share_of_peak(step, 10, loop.config.warmup) for step in range(10)]
    assert [rates[0] for rates in seen] == expected
    assert all(len(set(rates)) == 1 for rates in seen)


def test_batchnorm_biases_and_depthwise_filters_do_not_decay():
    model = models.mobilenet_v2(width_mult=0.25)
    decayed, spared = weight_groups(model, 5e-4)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (5e-4, 0.0)
    dense = [
        m.weight for m in model.modules() if isinstance(m, nn.Linear) or (isinstance(m, nn.Conv2d) and m.groups == 1)
    ]
    assert {id(p) for p in decayed["params"]} == {id(p) for p in dense}
    assert len(decayed["params"]) + len(spared["params"]) == len(list(model.parameters()))


def test_the_average_follows_the_weights_and_the_statistics():
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), Config(ema=0.75))
    before = {n: t.clone() for n, t in loop.averaged.state_dict().items()}
    with torch.no_grad():
        for tensor in loop.model.state_dict().values():
            tensor.add_(1)
    loop.update_average(done=1000)
    for name, tensor in loop.averaged.state_dict().items():
        share = 0.25 if tensor.is_floating_point() else 1
        torch.testing.assert_close(tensor, before[name] + share)


def test_a_weight_that_two_layers_share_is_averaged_once():
    model = tiny_model()
    model.append(nn.Linear(10, 10)).append(nn.Linear(10, 10))
    model[-1].weight = model[-2].weight
    loop = TrainingLoop(model, tiny_cifar().split(), Config(ema=0.9))
    before = {n: t.clone() for n, t in loop.averaged.state_dict().items()}
    with torch.no_grad():
        for tensor in loop.model.parameters():
            tensor.add_(1)
    loop.update_average(done=1000)
    for name, _ in loop.model.named_parameters(remove_duplicate=False):
        torch.testing.assert_close(loop.averaged.state_dict()[name], before[name] + 0.1)


def test_the_average_of_an_untrained_start_is_forgotten():
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), Config(ema=0.999))
    loop.model[0].weight.data.fill_(1)
    loop.averaged[0].weight.data.fill_(0)
    for done in range(30):
        loop.update_average(done)
    assert float(loop.averaged[0].weight.detach().min()) > 0.97


def test_gradients_are_clipped(monkeypatch):
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), Config(batch_size=20, clip=1e-3))
    norms = []
    [optimizer] = loop.optimizers
    original = optimizer.step

    def step():
        norms.append(float(torch.cat([p.grad.flatten() for p in loop.model.parameters()]).norm()))
        return original()

    monkeypatch.setattr(optimizer, "step", step)
    loop.run_epoch(0)
    assert max(norms) < 1.01e-3


def test_muon_turns_the_filters_of_dense_convolutions_and_sgd_the_rest(monkeypatch):
    model = tiny_model()
    config = Config(muon=0.05, lr=0.0, batch_size=20, epochs=1, warmup=0.0)
    loop = TrainingLoop(model, tiny_cifar().split(), config)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    loop.step(0, 0, torch.arange(20), 32, torch.Generator().manual_seed(0))
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"0.weight"}
    # An orthogonal step: all of its singular values are alike, those of the gradient are not.
    step = (model[0].weight.detach() - before["0.weight"]).permute(0, 2, 3, 1).flatten(1)
    for matrix, alike in ((step, True), (model[0].weight.grad.permute(0, 2, 3, 1).flatten(1), False)):
        values = torch.linalg.svdvals(matrix)
        assert bool(values.max() < 3 * values.min()) == alike


@pytest.mark.parametrize("shape", [(8, 4, 3, 3), (64, 16, 1, 1), (16, 64, 1, 1)])
def test_muon_steps_as_torchs_does_but_for_its_bfloat16(shape):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(shape, generator=generator)
    mine = nn.Parameter(start.clone().to(memory_format=torch.channels_last))
    torchs = nn.Parameter(start.flatten(1).clone())
    optimizers = Muon([mine], 0.1), torch.optim.Muon([torchs], 0.1)
    for _ in range(3):
        mine.grad = torch.randn(shape, generator=generator)
        torchs.grad = mine.grad.flatten(1)
        for optimizer in optimizers:
            optimizer.step()
    moved = (mine - start).abs().max()
    assert (mine.flatten(1) - torchs).abs().max() < 0.05 * moved


def test_muon_learns():
    cifar = tiny_cifar(600)
    loop = TrainingLoop(tiny_model(), cifar.split(), Config(muon=0.02, lr=0.05, epochs=6, batch_size=20))
    losses = [loop.run_epoch(epoch)["loss"] for epoch in range(6)]
    assert losses[-1] < 0.9 * losses[0]


def test_easy_images_are_skipped_and_the_rest_of_them_weighs_more():
    config = Config(epochs=8, batch_size=10, skip=0.5)
    loop, generator = TrainingLoop(tiny_model(), tiny_cifar(1000).split(), config), torch.Generator().manual_seed(0)
    assert len(loop.choose(1, generator)) == 900  # Nothing is known about any of them.
    loop.last_losses[:] = torch.arange(900.0)
    loop.last_losses[899] = torch.inf  # Left over from an epoch that did not come out even.
    order = loop.choose(2, generator)
    easy = order[order < 449]
    assert len(order) - len(easy) == 451
    assert 180 < len(easy) < 270
    assert bool((loop.weights[:449] == 2).all() and (loop.weights[449:] == 1).all())
    assert len(loop.choose(7, generator)) == 900  # The end of the run.
    assert bool((loop.weights == 1).all())


def test_an_image_without_weight_leaves_no_gradient():
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), Config(batch_size=20))
    loop.weights.zero_()
    loop.step(0, 0, torch.arange(20), 32, torch.Generator().manual_seed(0))
    assert all(bool((p.grad == 0).all()) for p in loop.model.parameters())
    assert float(loop.last_losses[:20].min()) > 0


def test_an_epoch_with_skipped_images_is_shorter_and_keeps_the_schedule():
    loop = TrainingLoop(tiny_model(), tiny_cifar(1200).split(), Config(epochs=2, batch_size=20, skip=0.5, warmup=0.0))
    rates = [loop.run_epoch(epoch)["lr"] for epoch in range(2)]
    assert loop.steps_per_epoch < 54
    assert rates[1] < 0.01 * loop.config.lr < rates[0]


def test_image_sizes_take_equal_parts_of_the_run():
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), Config(epochs=6, image_sizes=(16, 24, 32)))
    assert [loop.image_size(epoch) for epoch in range(6)] == [16, 16, 24, 24, 32, 32]


def test_an_epoch_sees_every_image_at_most_once_and_in_a_new_order(monkeypatch):
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), Config(epochs=2, batch_size=20))
    orders = []
    for epoch in (0, 1):
        seen = []
        monkeypatch.setattr(loop, "step", lambda e, s, indices, size, g: seen.append(indices) or torch.tensor(0.0))  # noqa: B023
        loop.run_epoch(epoch)
        orders.append(torch.cat(seen))
        assert len(orders[-1].unique()) == len(orders[-1]) == 100
    assert not torch.equal(*orders)


def test_bfloat16_is_chosen_by_hardware(monkeypatch):
    for supported in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: supported)  # noqa: B023
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert uses_bfloat16("auto", torch.device("cpu")) == supported
    assert uses_bfloat16("bfloat16", torch.device("cpu"))
    assert not uses_bfloat16("float32", torch.device("cpu"))


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.ReLU()])
def test_device_of_anything(model):
    assert device_of(model) == torch.device("cpu")


def test_distillation_loss_is_zero_when_student_and_teacher_agree():
    model = tiny_model().eval()
    loop = TrainingLoop(model, tiny_cifar().split(), Config(distill=1.0), teacher=tiny_model())
    assert abs(loop.losses(torch.randn(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)).mean().item()) < 1e-5
    other = TrainingLoop(model, tiny_cifar().split(), Config(distill=1.0), teacher=tiny_model(seed=3))
    assert other.losses(torch.randn(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)).mean().item() > 1e-3
