import dataclasses

import pandas as pd
import pytest
import torch
from torch import nn

from helpers import models
from helpers.training.config import Config, TrainingError
from helpers.training.loop import TrainingLoop
from helpers.training.state import TrainingState
from tests.training.tiny import tiny_cifar, tiny_model

CONFIG = Config(epochs=3, batch_size=20)


def started(path, config=CONFIG, model=None, cifar=None, teacher=None):
    loop = TrainingLoop(model or tiny_model(), (cifar or tiny_cifar()).split(), config, teacher)
    return TrainingState(loop, path)


@pytest.mark.parametrize("muon", [0.0, 0.02])
def test_everything_comes_back(tmp_path, muon):
    config = dataclasses.replace(CONFIG, muon=muon)
    first = started(tmp_path / "s", config)
    first.finish_epoch(first.loop.run_epoch(0))
    second = started(tmp_path / "s", config, model=tiny_model(seed=4))
    assert second.resume() == 1
    found, expected = second.tensors(), first.tensors()
    assert found.keys() == expected.keys()
    assert any(name.startswith("momentum.") and tensor.abs().max() > 0 for name, tensor in found.items())
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name
    assert second.history == first.history


class Counting(nn.Module):
    """A network whose answers follow a buffer that its checkpoints leave out."""

    def __init__(self, seed=0):
        super().__init__()
        self.network = tiny_model(seed)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.calls += self.training
        return self.network(x) / (1 + self.calls)


def test_buffers_that_a_checkpoint_leaves_out_come_back(tmp_path):
    first = started(tmp_path / "s", model=Counting())
    first.finish_epoch(first.loop.run_epoch(0))
    second = started(tmp_path / "s", model=Counting(seed=4))
    assert second.resume() == 1
    assert second.loop.model.calls == first.loop.model.calls > 0
    assert second.loop.run_epoch(1)["loss"] == first.loop.run_epoch(1)["loss"]


class Spare(nn.Module):
    """A network of which one part is frozen and another is never called."""

    def __init__(self, seed=0):
        super().__init__()
        self.used, self.unused = tiny_model(seed), nn.Linear(2, 2)
        self.used[0].bias.requires_grad_(False)

    def forward(self, x):
        return self.used(x)


def test_a_network_with_frozen_and_unused_parameters_goes_on_to_the_same_end(tmp_path):
    whole = started(None, model=Spare())
    for epoch in range(2):
        whole.finish_epoch(whole.loop.run_epoch(epoch))
    first = started(tmp_path / "s", model=Spare())
    first.finish_epoch(first.loop.run_epoch(0))
    second = started(tmp_path / "s", model=Spare(seed=4))
    assert second.resume() == 1
    second.finish_epoch(second.loop.run_epoch(1))
    found, expected = second.tensors(), whole.tensors()
    assert found.keys() == expected.keys()
    stepped = sum(name.startswith("momentum.") for name in found)
    assert stepped == len(list(second.loop.model.used.parameters())) - 1
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


def test_weights_that_two_layers_share_come_back(tmp_path):
    def tied(seed):
        model = tiny_model(seed).append(nn.Linear(10, 10)).append(nn.Linear(10, 10))
        model[-1].weight = model[-2].weight
        return model

    first = started(tmp_path / "s", model=tied(0))
    first.finish_epoch(first.loop.run_epoch(0))
    second = started(tmp_path / "s", model=tied(4))
    assert second.resume() == 1
    assert all(torch.equal(t, first.tensors()[name]) for name, t in second.tensors().items())


def test_a_hand_over_is_small_and_brings_the_weights(tmp_path):
    first = started(None, model=models.tiny())
    first.handover = tmp_path / "run.safetensors"
    first.finish_epoch(first.loop.run_epoch(0))
    assert first.handover.stat().st_size < 2.2 * 78_042 + 20_000
    assert len(pd.read_csv(tmp_path / "run.csv")) == 1
    second = started(None, model=models.tiny())
    second.handover = first.handover
    assert second.resume() == 1
    expected = first.loop.model.state_dict()
    for twin in (second.loop.model, second.loop.averaged):
        for name, tensor in twin.state_dict().items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-6)
    statistics = [name for name in expected if "running" in name]
    assert all(torch.equal(second.loop.model.state_dict()[name], expected[name]) for name in statistics)


def test_whichever_file_knows_more_epochs_is_used(tmp_path):
    state = started(tmp_path / "s")
    state.finish_epoch(state.loop.run_epoch(0))
    state.checkpoint, state.handover = None, tmp_path / "h"
    state.finish_epoch(state.loop.run_epoch(1))
    later = started(tmp_path / "s")
    later.handover = tmp_path / "h"
    assert later.resume() == 2
    later.finish_epoch(later.loop.run_epoch(2))
    assert started(tmp_path / "s").resume() == 3


def test_no_file_means_a_new_run(tmp_path):
    assert started(tmp_path / "nothing").resume() == 0
    assert started(None).resume() == 0


def test_other_settings_are_refused(tmp_path):
    state = started(tmp_path / "s")
    state.finish_epoch(state.loop.run_epoch(0))
    for changed in (Config(epochs=4, batch_size=20), Config(epochs=3, batch_size=20, muon=0.02)):
        with pytest.raises(TrainingError, match=r"other settings \((epochs was 3, now 4|muon was 0.0, now 0.02)"):
            started(tmp_path / "s", changed).resume()


def test_a_setting_that_is_newer_than_the_file_had_its_default(tmp_path, monkeypatch):
    state = started(tmp_path / "s")
    state.settings.pop("muon")
    state.finish_epoch(state.loop.run_epoch(0))
    assert started(tmp_path / "s").resume() == 1


def test_other_images_and_labels_are_refused(tmp_path):
    cifar = tiny_cifar()
    state = started(tmp_path / "s", cifar=cifar)
    state.finish_epoch(state.loop.run_epoch(0))
    brighter = dataclasses.replace(cifar, train_images=cifar.train_images + 1)
    shuffled = dataclasses.replace(cifar, train_labels=cifar.train_labels.roll(1))
    for other in (brighter, shuffled):
        with pytest.raises(TrainingError, match=r"images was [0-9a-f]+, now [0-9a-f]+"):
            started(tmp_path / "s", cifar=other).resume()
    assert started(tmp_path / "s", cifar=tiny_cifar()).resume() == 1


def test_another_teacher_is_refused(tmp_path):
    config = dataclasses.replace(CONFIG, distill=0.5)
    state = started(tmp_path / "s", config, teacher=tiny_model(seed=1))
    state.finish_epoch(state.loop.run_epoch(0))
    with pytest.raises(TrainingError, match=r"teacher was [0-9a-f]+, now [0-9a-f]+"):
        started(tmp_path / "s", config, teacher=tiny_model(seed=2)).resume()
    assert started(tmp_path / "s", config, teacher=tiny_model(seed=1)).resume() == 1


def test_another_network_is_refused(tmp_path):
    state = started(tmp_path / "s")
    state.finish_epoch(state.loop.run_epoch(0))
    other = started(tmp_path / "s", model=nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)))
    with pytest.raises(TrainingError, match="another network"):
        other.resume()


@pytest.mark.parametrize("content", [b"", b"half a file"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(TrainingError, match="is not a training state"):
        started(tmp_path / "s").resume()


def test_a_kill_while_writing_keeps_the_epoch_before(tmp_path, monkeypatch):
    state = started(tmp_path / "s")
    state.finish_epoch(state.loop.run_epoch(0))
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        state.finish_epoch(state.loop.run_epoch(1))
    monkeypatch.undo()
    assert started(tmp_path / "s").resume() == 1
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
