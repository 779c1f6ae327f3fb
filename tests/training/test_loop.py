"""One epoch: rates, weights and images of its steps."""

import math
import shutil
from contextlib import nullcontext
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers import models
from helpers.training.config import Config
from helpers.training.loop import TrainingLoop, uses_bfloat16
from helpers.training.optimizers import Muon, optimizers, weight_groups
from helpers.training.precision import StridedDepthwiseInFloat32
from tests.training.tiny import tied_model, tiny_cifar, tiny_model


def test_the_rate_of_each_step_rises_then_falls_to_zero_and_gradients_are_clipped():
    config = Config(epochs=2, batch_size=5, lr=0.1, warmup=0.2, clip=1e-3)
    loop, seen, norms = TrainingLoop(tiny_model(), tiny_cifar().split(), config), [], []
    gradients = lambda: [p.grad for p in loop.model.parameters()]  # noqa: E731
    [optimizer] = loop.optimizers
    optimizer.register_step_pre_hook(
        lambda *_: seen.append({group["lr"] for group in optimizer.param_groups})
    )
    optimizer.register_step_pre_hook(
        lambda *_: norms.append(float(nn.utils.get_total_norm(gradients())))
    )
    for epoch in range(2):
        loop.run_epoch(epoch)
    rates = [rate for (rate,) in seen]  # the same for all weights
    peak = rates.index(max(rates))
    assert len(rates) == 42 and peak == 9 and 0.099 < max(rates) <= 0.1  # a fifth of the steps
    assert all(a < b for a, b in pairwise(rates[: peak + 1])) and all(
        a > b for a, b in pairwise(rates[peak:])
    )
    assert 0 < rates[-1] < 0.001 and 0 < rates[0] < 0.02
    assert 0 < max(norms) < 1.01e-3


def test_batchnorm_biases_and_depthwise_filters_do_not_decay():
    model = models.mobilenet_v2(width_mult=0.25)
    decayed, spared = weight_groups(model, 5e-4)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (5e-4, 0.0)
    dense = [
        m.weight
        for m in model.modules()
        if isinstance(m, nn.Linear) or (isinstance(m, nn.Conv2d) and m.groups == 1)
    ]
    assert {id(p) for p in decayed["params"]} == {id(p) for p in dense}
    assert len(decayed["params"]) + len(spared["params"]) == len(list(model.parameters()))


def test_the_average_follows_weights_and_statistics_and_a_shared_weight_once():
    model = tied_model()
    model.register_buffer(
        "unsaved", torch.zeros(1), persistent=False
    )  # `train` hands it out as the model has it
    loop = TrainingLoop(model, tiny_cifar().split(), Config(ema=0.9))
    before = {n: t.clone() for n, t in loop.averaged.state_dict().items()}
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.add_(1)
    loop.update_average(done=1000)
    assert loop.averaged.unsaved == 1
    for name, tensor in loop.averaged.state_dict().items():
        torch.testing.assert_close(
            tensor, before[name] + (0.1 if tensor.is_floating_point() else 1)
        )


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


def test_easy_images_are_skipped_and_the_rest_of_them_weighs_more():
    config = Config(epochs=8, batch_size=10, skip=0.25)
    loop, generator = (
        TrainingLoop(tiny_model(), tiny_cifar(1000).split(), config),
        torch.Generator().manual_seed(0),
    )
    assert len(loop.choose(1, generator)) == 900  # Nothing is known about any of them.
    loop.last_losses[:] = torch.arange(900.0)
    loop.last_losses[899] = torch.inf  # Left over from an epoch that did not come out even.
    order = loop.choose(2, generator)
    easy = order[order < 449]
    assert len(order) - len(easy) == 451 and 300 < len(easy) < 375  # three quarters of 449
    assert bool((loop.weights[:449] == 4 / 3).all() and (loop.weights[449:] == 1).all())
    assert (
        abs(float(loop.weights[order].sum()) - 900) < 40
    )  # the sum of gradients to be expected stays
    assert len(loop.choose(7, generator)) == 900  # The end of the run.
    assert bool((loop.weights == 1).all())


def test_an_image_without_weight_leaves_no_gradient():
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), Config(batch_size=20))
    loop.weights.zero_()
    loop.step(0, 0, torch.arange(20), 32, torch.Generator().manual_seed(0))
    assert all(bool((p.grad == 0).all()) for p in loop.model.parameters())
    assert float(loop.last_losses[:20].min()) > 0
    assert loop.last_losses.isfinite().tolist() == [True] * 20 + [False] * 88


def test_the_second_epoch_skips_what_the_first_found_easy():
    config = Config(epochs=8, batch_size=10, skip=0.5)
    loop = TrainingLoop(tiny_model(), tiny_cifar(1000).split(), config)
    loop.run_epoch(0)
    assert loop.steps_per_epoch == 90
    loop.run_epoch(1)
    assert 40 < loop.steps_per_epoch < 85


def test_one_batch_that_is_not_full_is_better_than_none():
    loop = TrainingLoop(
        tiny_model(), tiny_cifar().split(), Config(epochs=8, batch_size=108, skip=0.9)
    )
    loop.last_losses[:] = torch.arange(108.0)
    assert math.isfinite(loop.run_epoch(1)["loss"]) and loop.steps_per_epoch == 1


def test_image_sizes_take_equal_parts_of_the_run():
    loop = TrainingLoop(
        tiny_model(), tiny_cifar().split(), Config(epochs=6, image_sizes=(16, 24, 32))
    )
    assert [loop.image_size(epoch) for epoch in range(6)] == [16, 16, 24, 24, 32, 32]


def test_an_epoch_sees_every_image_at_most_once_and_in_a_new_order(monkeypatch):
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), Config(epochs=2, batch_size=20))
    orders = []
    for epoch in (0, 1):
        seen = []

        def step(epoch, number, indices, size, generator, seen=seen):
            seen.append(indices)
            return torch.tensor(0.0)

        monkeypatch.setattr(loop, "step", step)
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


def test_of_several_gpus_the_one_that_trains_is_asked_for_bfloat16(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "device", lambda gpu: nullcontext(asked.append(gpu)))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert not uses_bfloat16("auto", torch.device("cuda:1"))
    assert asked == [torch.device("cuda:1")]


def test_strided_depthwise_layers_alone_stay_in_float32():
    model = tiny_model()
    kinds = {}
    for name in ("0", "3", "7"):
        model.get_submodule(name).register_forward_hook(
            lambda *call, name=name: kinds.update({name: call[-1].dtype})
        )
    for precision, others in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        loop = TrainingLoop(model, tiny_cifar().split(), Config(precision=precision))
        loop.run_epoch(0)
        assert kinds == {"0": others, "3": torch.float32, "7": others}


def test_convolutions_under_autocast_take_what_torch_takes():
    image, filters = torch.rand(2, 4, 8, 8), torch.rand(4, 1, 3, 3)
    expected = F.conv2d(image, filters, None, 2, 1, groups=4)
    with torch.autocast("cpu", torch.bfloat16), StridedDepthwiseInFloat32():
        for stride in (2, (2, 2), [2, 2]):
            output = F.conv2d(input=image, weight=filters, stride=stride, padding=1, groups=4)
            assert torch.equal(output, expected)
        for stride in (1, (1, 1), [1, 1]):
            assert F.conv2d(image, filters, None, stride, groups=4).dtype == torch.bfloat16
        assert F.conv2d(image, torch.rand(4, 4, 3, 3), stride=2).dtype == torch.bfloat16
        assert F.conv2d(image, filters.bfloat16(), stride=2, groups=4).dtype == torch.bfloat16


def test_distillation_loss_is_zero_when_student_and_teacher_agree():
    model = tiny_model().eval()
    loop = TrainingLoop(model, tiny_cifar().split(), Config(distill=1.0), teacher=tiny_model())
    assert (
        abs(loop.losses(torch.randn(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)).mean().item())
        < 1e-5
    )
    other = TrainingLoop(
        model, tiny_cifar().split(), Config(distill=1.0), teacher=tiny_model(seed=3)
    )
    assert (
        other.losses(torch.randn(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)).mean().item()
        > 1e-3
    )


def test_soft_targets_are_exact_under_autocast():
    model, teacher = tiny_model().eval(), tiny_model().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    config = Config(distill=1.0, temperature=4.0)
    loop = TrainingLoop(model, tiny_cifar().split(), config, teacher=teacher)
    x = torch.randn(8, 3, 32, 32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = loop.losses(x, torch.zeros(8, dtype=torch.long))
        p, q = (F.log_softmax(one(x).float() / 4, 1) for one in (teacher, model))
        expected = 16 * (p.exp() * (p - q)).sum(1)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_muon_turns_the_filters_of_dense_convolutions_and_sgd_the_rest():
    loop = TrainingLoop(
        tiny_model(), tiny_cifar().split(), Config(muon=0.05, lr=0.0, batch_size=20, warmup=0.0)
    )
    before = {name: p.detach().clone() for name, p in loop.model.named_parameters()}
    loop.step(0, 0, torch.arange(20), 32, torch.Generator().manual_seed(0))
    assert [
        name for name, p in loop.model.named_parameters() if not torch.equal(p, before[name])
    ] == ["0.weight"]


def test_muon_leaves_tables_of_positions_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    model.positions = nn.Parameter(torch.randn(1, 4, 6, 6))
    sgd, muon = optimizers(model, Config(muon=0.05))
    assert muon.param_groups[0]["params"] == [model[0].weight]
    assert any(p is model.positions for p in sgd.param_groups[0]["params"])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile asks for a C++ compiler")
def test_compiled_steps_lead_where_plain_ones_do(monkeypatch):
    """At each size of the images; what is trained is the network itself."""
    calls, compiled = [], torch.compile

    def watched(network, **options):
        answers = compiled(network, **options)
        return lambda batch: calls.append(network) or answers(batch)

    monkeypatch.setattr(torch, "compile", watched)
    losses, weights = [], []
    for choice in (False, True):
        config = Config(epochs=2, lr=0.05, image_sizes=(16, 32), compile=choice)
        loop = TrainingLoop(tiny_model(), tiny_cifar().split(), config)
        losses.append([loop.run_epoch(epoch)["loss"] for epoch in range(2)])
        weights.append(loop.model.state_dict())
    assert calls == 2 * loop.steps_per_epoch * [loop.model]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    torch.testing.assert_close(*weights, rtol=1e-2, atol=1e-3)
