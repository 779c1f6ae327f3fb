import dataclasses

import pandas as pd
import pytest
import torch
from torch import nn

from helpers import models
from helpers.data import Normalization
from helpers.training import state as state_module
from helpers.training.config import Config, TrainingError
from helpers.training.loop import TrainingLoop
from helpers.training.state import TrainingState
from tests.passes.zoo import Net
from tests.training.tiny import tied_model, tiny_cifar, tiny_model

CONFIG = Config(epochs=3, batch_size=20)


def started(path, config=CONFIG, model=None, cifar=None, teacher=None):
    loop = TrainingLoop(model or tiny_model(), (cifar or tiny_cifar()).split(), config, teacher)
    return TrainingState(loop, path)


class Counting(nn.Module):
    """A network whose answers follow a buffer that its checkpoints leave out."""

    def __init__(self, seed=0):
        super().__init__()
        self.network = tiny_model(seed)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.calls += self.training
        return self.network(x) / (1 + self.calls)


def spare(seed):
    """A network of which one part is frozen and another is never called."""
    model = Net(lambda m, x: m.used(x), used=tiny_model(seed), unused=nn.Linear(2, 2))
    model.used[0].bias.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("make", "muon"),
    [(tiny_model, 0.0), (tiny_model, 0.02), (Counting, 0.0), (spare, 0.0), (tied_model, 0.0)],
)
def test_everything_comes_back_and_leads_to_the_same_end(make, muon, tmp_path):
    config = dataclasses.replace(CONFIG, muon=muon)
    whole = started(tmp_path / "s", config, make(0))
    whole.finish_epoch(whole.loop.run_epoch(0))
    second = started(tmp_path / "s", config, make(4))
    assert second.resume() == 1 and second.history == whole.history
    whole.checkpoint = None
    for epoch in (1, 2, 3):
        found, expected = second.tensors(), whole.tensors()
        assert found.keys() == expected.keys()
        assert any(
            name.startswith("momentum.") and tensor.abs().max() > 0
            for name, tensor in found.items()
        )
        for name, tensor in found.items():
            assert torch.equal(tensor, expected[name]), name
        if epoch < 3:
            for state in (whole, second):
                state.finish_epoch(state.loop.run_epoch(epoch))


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
    assert all(
        torch.equal(second.loop.model.state_dict()[name], expected[name]) for name in statistics
    )


def begun(weights, **places):
    """A run that starts from these weights."""
    loop = TrainingLoop(tiny_model(), tiny_cifar().split(), CONFIG)
    return TrainingState(loop, **places, start=weights)


def test_a_processor_that_draws_other_last_bits_goes_on_with_a_hand_over(tmp_path):
    weights, path = [torch.ones(100)], tmp_path / "h"
    first = begun(weights, handover=path)
    first.finish_epoch(first.loop.run_epoch(0))
    nearly = [torch.nextafter(weights[0], torch.tensor(2.0))]
    assert begun(nearly, handover=path).resume() == 1
    with pytest.raises(TrainingError, match=r"their norm was 10\.0, now .* build or load"):
        begun([weights[0] * 1.001], handover=path).resume()


def test_after_the_last_epoch_a_hand_over_holds_the_average(tmp_path):
    state = started(None)
    state.handover = tmp_path / "h"
    for epoch in range(CONFIG.epochs):
        state.finish_epoch(state.loop.run_epoch(epoch))
    again = started(None)
    again.handover = state.handover
    assert again.resume() == CONFIG.epochs
    for name, tensor in again.loop.averaged.state_dict().items():
        expected = state.loop.averaged.state_dict()[name]
        torch.testing.assert_close(tensor, expected, rtol=1e-3, atol=1e-6)


def test_a_list_of_epochs_that_a_table_program_holds_stops_nothing(tmp_path, monkeypatch):
    write = state_module.write_atomically

    def held(path, content):
        if path.suffix == ".csv":
            raise PermissionError
        return write(path, content)

    monkeypatch.setattr(state_module, "write_atomically", held)
    state = started(None)
    state.handover = tmp_path / "h"
    state.finish_epoch(state.loop.run_epoch(0))
    assert [path.name for path in tmp_path.iterdir()] == ["h"]


class Noted(nn.Module):
    """It keeps a note beside its tensors."""

    def get_extra_state(self):
        return {"note": 1}

    def set_extra_state(self, state):
        pass

    def forward(self, x):
        return x


def test_a_teacher_may_keep_more_than_tensors(tmp_path):
    config = dataclasses.replace(CONFIG, distill=0.5)
    teacher = nn.Sequential(*tiny_model(1), Noted())
    state = started(tmp_path / "s", config, teacher=teacher)
    state.finish_epoch(state.loop.run_epoch(0))
    assert started(tmp_path / "s", config, teacher=teacher).resume() == 1


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


CIFAR, OTHERWISE = tiny_cifar(), tiny_model()
OTHERWISE.input_normalization = Normalization((0.5,) * 3, (0.2,) * 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"config": dataclasses.replace(CONFIG, epochs=4)},
            r"other settings \(epochs was 3, now 4",
        ),
        (
            {"config": dataclasses.replace(CONFIG, muon=0.02)},
            r"other settings \(muon was 0.0, now 0.02",
        ),
        (
            {"cifar": dataclasses.replace(CIFAR, train_images=CIFAR.train_images + 1)},
            r"images was [0-9a-f]+, now",
        ),
        (
            {"cifar": dataclasses.replace(CIFAR, train_labels=CIFAR.train_labels.roll(1))},
            "images was",
        ),
        ({"teacher": tiny_model(seed=2)}, r"teacher was [0-9a-f]+, now [0-9a-f]+"),
        ({"model": OTHERWISE}, "normalization was"),
        (
            {"model": nn.Sequential(*tiny_model()[:4], nn.Dropout(0.9), *tiny_model()[5:])},
            "another network, or its layers were set",
        ),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))}, "another network"),
    ],
)
def test_another_run_is_refused(change, message, tmp_path):
    taught = {"config": dataclasses.replace(CONFIG, distill=0.5), "teacher": tiny_model(seed=1)}
    given = taught if "teacher" in change else {}
    state = started(tmp_path / "s", **given)
    state.finish_epoch(state.loop.run_epoch(0))
    with pytest.raises(TrainingError, match=message):
        started(tmp_path / "s", **given | change).resume()
    assert started(tmp_path / "s", **given).resume() == 1


def test_a_machine_without_a_compiler_goes_on_with_what_one_with_a_compiler_began(tmp_path):
    state = started(tmp_path / "s", dataclasses.replace(CONFIG, compile=True))
    state.history.append({})
    state.write(state.checkpoint, state.tensors())
    assert started(tmp_path / "s").resume() == 1


def test_a_setting_that_is_newer_than_the_file_had_its_default_and_a_damaged_file_is_named(
    tmp_path,
):
    state = started(tmp_path / "s")
    state.settings.pop("muon")
    state.finish_epoch(state.loop.run_epoch(0))
    assert started(tmp_path / "s").resume() == 1
    for content in (b"", b"half a file"):
        (tmp_path / "s").write_bytes(content)
        with pytest.raises(TrainingError, match="is not a training state"):
            started(tmp_path / "s").resume()


def test_a_list_of_something_else_beside_a_hand_over_stays(tmp_path):
    (tmp_path / "birds.csv").write_text("photo,label\n")
    with pytest.raises(TrainingError, match=r"birds.csv is no list of epochs: name another"):
        TrainingState(started(None).loop, handover=tmp_path / "birds.safetensors")


def test_one_path_for_both_files_is_refused(tmp_path):
    loop = started(None).loop
    with pytest.raises(TrainingError, match="name two files"):
        TrainingState(loop, tmp_path / "s", str(tmp_path / "s"))
    for checkpoint, handover in ((None, "run.csv"), ("run.csv", "run.safetensors")):
        with pytest.raises(TrainingError, match=r"a hand-over not \.csv"):
            TrainingState(loop, checkpoint, handover)


def test_a_kill_while_writing_keeps_the_epoch_before(tmp_path, monkeypatch):
    state = started(tmp_path / "s")
    state.finish_epoch(state.loop.run_epoch(0))
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        state.finish_epoch(state.loop.run_epoch(1))
    monkeypatch.undo()
    assert started(tmp_path / "s").resume() == 1
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
