"""Training as a whole: it learns, goes on after a kill, and refuses what cannot be meant."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from helpers import pipeline, pruning, training
from helpers.data import from_arrays
from helpers.training import Config, TrainingError, evaluate, finetune, train, wilson_interval
from helpers.training.state import TrainingState
from tests.passes.zoo import Net
from tests.training.tiny import tiny_cifar, tiny_model

FAST = Config(epochs=3, batch_size=20, lr=0.1, precision="float32")
ITSELF = tiny_model()
MANY, LEARNS = (
    tiny_cifar(1200),
    Config(epochs=15, batch_size=20, lr=0.05, ema=0.9, label_smoothing=0.0, precision="float32"),
)


def weights(model):
    return torch.cat([t.detach().flatten().double() for t in model.state_dict().values()])


@pytest.fixture(scope="module")
def learned():
    """A network that was trained without a break, and its history."""
    model = tiny_model()
    return model, train(model, MANY, LEARNS, progress=False)


def test_training_learns_and_reports_each_epoch(learned):
    model, history = learned
    assert list(history.epoch) == list(range(1, 16))
    assert history.loss.iloc[-1] < 0.8 * history.loss.iloc[0]
    assert evaluate(model, MANY.test_images, MANY.test_labels).accuracy > 0.4
    assert not model.training
    assert all(
        p.stride() == torch.empty(p.shape).stride() for p in model.parameters()
    )  # as if it were loaded


def test_the_same_seed_gives_the_same_network_and_leaves_the_callers_random_numbers_alone():
    runs = []
    for seed in (0, 0, 1):
        model, before = tiny_model(), torch.get_rng_state()
        train(
            model,
            tiny_cifar(),
            Config(epochs=2, batch_size=20, seed=seed, autoaugment=True),
            progress=False,
        )
        assert torch.equal(torch.get_rng_state(), before)
        runs.append(weights(model))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


class Killed(Exception):
    """Stands for a kill signal."""


@pytest.fixture
def dies_after(monkeypatch):
    """Kill a run when it has finished one of these epochs."""

    def arrange(*epochs):
        def finish_then_die(self, row, finish=TrainingState.finish_epoch):
            finish(self, row)
            if len(self.history) in epochs:
                raise Killed

        monkeypatch.setattr(TrainingState, "finish_epoch", finish_then_die)

    return arrange


def test_a_killed_run_goes_on_to_the_same_end_and_is_then_not_run_again(
    tmp_path, dies_after, monkeypatch
):
    whole = tiny_model()
    expected = train(whole, tiny_cifar(), FAST, progress=False)
    dies_after(1, 2)
    for _ in range(2):
        with pytest.raises(Killed):
            train(tiny_model(), tiny_cifar(), FAST, tmp_path / "run.state", progress=False)
    model = tiny_model()
    history = train(model, tiny_cifar(), FAST, tmp_path / "run.state", progress=False)
    assert torch.equal(weights(model), weights(whole))
    columns = ["epoch", "loss", "lr", "validation_accuracy"]
    assert history[columns].equals(expected[columns])
    monkeypatch.setattr(training.TrainingLoop, "run_epoch", None)
    assert train(tiny_model(), tiny_cifar(), FAST, tmp_path / "run.state", progress=False).equals(
        history
    )
    with pytest.raises(TrainingError, match=r"run.state .*starting weights was [0-9a-f]+, now"):
        train(tiny_model(seed=1), tiny_cifar(), FAST, tmp_path / "run.state", progress=False)


@pytest.mark.slow
@pytest.mark.ci
def test_a_run_handed_over_twice_ends_within_noise_of_an_undisturbed_one(
    learned, tmp_path, dies_after
):
    model, handover = tiny_model(), tmp_path / "run.safetensors"
    dies_after(5, 10)
    for _ in range(2):  # Each on a machine that has the hand-over alone.
        with pytest.raises(Killed):
            train(tiny_model(), MANY, LEARNS, progress=False, handover=handover)
    history = train(model, MANY, LEARNS, progress=False, handover=handover)
    assert list(history.epoch) == list(range(1, 16))
    # Nothing else could bring the finished run back, before its network is saved.
    assert {p.name for p in tmp_path.iterdir()} == {"run.csv", "run.safetensors"}
    accuracies = [
        evaluate(m, MANY.test_images, MANY.test_labels).accuracy for m in (learned[0], model)
    ]
    assert accuracies[1] > accuracies[0] - 0.1


def test_nan_stops_with_epoch_and_step_and_keeps_the_last_epoch(tmp_path, monkeypatch):
    original = training.TrainingLoop.step

    def poisoned(self, epoch, step, *rest):
        loss = original(self, epoch, step, *rest)
        return loss * float("nan") if (epoch, step) == (1, 2) else loss

    monkeypatch.setattr(training.TrainingLoop, "step", poisoned)
    with pytest.raises(TrainingError, match=r"epoch 2, step 3, .* with another checkpoint"):
        train(tiny_model(), tiny_cifar(), FAST, tmp_path / "run.state", progress=False)
    monkeypatch.setattr(training.TrainingLoop, "step", original)
    model = tiny_model()
    train(model, tiny_cifar(), FAST, tmp_path / "run.state", progress=False)
    assert weights(model).isfinite().all()


def test_answers_beside_the_scores_are_named():
    class TwoHeads(nn.Sequential):
        def forward(self, x):
            scores = super().forward(x)
            return (scores, scores) if self.training else scores

    with pytest.raises(TrainingError, match=r"gives tuple, not scores: .*aux_logits=False"):
        train(TwoHeads(*tiny_model()), tiny_cifar(), FAST, progress=False)


class Stateful(nn.Identity):
    """With state that is no tensor."""

    def get_extra_state(self):
        return {"calls": 1}

    def set_extra_state(self, state):
        pass


def test_state_that_is_no_tensor_is_named_before_the_first_epoch():
    with pytest.raises(TrainingError, match=r"_extra_state is no tensor and has no average: put"):
        train(nn.Sequential(*tiny_model(), Stateful()), tiny_cifar(), FAST, progress=False)


def test_a_teacher_of_other_classes_and_a_frozen_network_are_refused():
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 1))
    config = Config(epochs=1, distill=0.5)
    with pytest.raises(TrainingError, match=r"the teacher gives scores of shape \(\d+, 1\)"):
        train(tiny_model(), tiny_cifar(), config, teacher=teacher, progress=False)
    with pytest.raises(TrainingError, match=r"no parameter .* qat\.prepare"):
        train(tiny_model().requires_grad_(False), tiny_cifar(), FAST, progress=False)


def test_test_images_are_not_looked_at():
    cifar = tiny_cifar()
    for unseen in ("test_images", "test_labels"):
        object.__setattr__(cifar, unseen, None)
    assert len(train(tiny_model(), cifar, FAST, progress=False)) == 3


def test_a_teacher_is_asked_in_eval_mode_and_gets_its_modes_back(monkeypatch):
    teacher, asked = tiny_model(seed=5).train(), []
    teacher[1].eval()
    before = [m.training for m in teacher.modules()]
    teacher.register_forward_pre_hook(
        lambda module, _: asked.append(any(m.training for m in module.modules()))
    )
    train(
        tiny_model(),
        tiny_cifar(),
        Config(epochs=1, batch_size=20, distill=0.5),
        teacher=teacher,
        progress=False,
    )
    assert set(asked) == {False}
    assert [m.training for m in teacher.modules()] == before


def test_finetune_distills_by_default_when_there_is_a_teacher(monkeypatch):
    seen = []
    monkeypatch.setattr(training, "train", lambda *a: seen.append(a[2]))
    finetune(tiny_model(), tiny_cifar(), tiny_model())
    finetune(tiny_model(), tiny_cifar())
    assert [c.distill > 0 for c in seen] == [True, False]


class Viewed(nn.Sequential):
    def forward(self, x):
        return self[2](self[1](self[0](x)).view(len(x), -1))


def test_networks_for_which_channels_last_fails_are_trained_evaluated_measured_again_and_timed():
    size = tiny_cifar().train_images.shape[-1]
    viewed = Viewed(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * size**2, 10))
    deep = nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 1, 3, padding=1), nn.Flatten(1, 2), tiny_model()
    )
    late = copy.deepcopy(
        viewed
    )  # fails only with weights in channels_last, whatever its images are in
    late[0].register_forward_pre_hook(lambda layer, given: given[0].contiguous())
    for model in (viewed, deep, late):
        latencies = pipeline.latencies({"dense": model}, torch.zeros(1, 3, size, size), runs=3)
        assert len(latencies) == 1
        train(model, tiny_cifar(), Config(epochs=1, batch_size=20), progress=False)
        assert all(
            parameter.is_contiguous() for parameter in model.parameters()
        )  # as in a network that is loaded
        assert evaluate(model, tiny_cifar().test_images, tiny_cifar().test_labels).n == 50
        pruning.reestimate_batchnorm(model, [tiny_cifar().train_images[:20]])
        assert model(torch.zeros(2, 3, size, size)).shape == (2, 10)


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_evaluate_counts_every_image_once(at_once, monkeypatch):
    monkeypatch.setattr(training, "AT_ONCE", at_once)
    cifar, asked, always = tiny_cifar(), [], torch.eye(10)[3]
    labels = cifar.test_labels.clone()
    labels[:20] = 3
    result = evaluate(
        Net(lambda m, x: asked.extend(x) or always.expand(len(x), -1)), cifar.test_images, labels
    )
    assert len(asked) == result.n == 50 and {image.dtype for image in asked} == {torch.float32}
    assert result.accuracy == int((labels == 3).sum()) / 50


def test_wilson_interval_against_the_textbook():
    # 8 of 10: Wilson (1927), as tabulated by Newcombe (1998), method 3: 0.4902 to 0.9433.
    low, high = wilson_interval(0.8, 10)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)
    assert wilson_interval(0.0, 10)[0] == 0.0
    assert wilson_interval(1.0, 10)[1] == 1.0


SETTINGS = [
    ({"epochs": 0}, "epochs must be a whole number between 1 and 1000000, got 0"),
    ({"lr": float("nan")}, "lr must lie between"),
    ({"autoaugment": "no"}, "autoaugment must be True or False, got 'no'"),
    ({"precision": "int8"}, "precision must be"),
    ({"epochs": True}, "epochs must be a whole number between 1 and .*, got True"),
    ({"seed": 1.5}, "seed must be a whole number"),
    ({"cutout": -5}, "cutout must be a whole number"),
    ({"lr": "a"}, "lr must lie between 0 and 100, got 'a'"),
    ({"clip": -1}, "clip must lie between 0 and inf"),
    ({"temperature": 0}, "temperature must lie between"),
    *(
        ({n: float("nan")}, f"{n} must lie")
        for n in ("clip", "temperature", "muon", "weight_decay")
    ),
    ({"image_sizes": 32}, "image_sizes must be a tuple"),
    ({"image_sizes": (16.5, 32)}, "8 pixels or more"),
    ({"image_sizes": (8, 16, 24, 32), "epochs": 2}, "need an epoch each, and epochs is 2"),
]


def taught(teacher, distill):
    return lambda cifar: train(
        ITSELF, cifar, Config(distill=distill), teacher=teacher, progress=False
    )


def of_shape(shape, **settings):
    images, labels = np.zeros((9, *shape), np.uint8), np.zeros(9)
    network = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 1))
    return lambda _: train(
        network, from_arrays(images, labels, images, labels), Config(epochs=1, **settings)
    )


def counted(images, labels):
    return lambda cifar: evaluate(ITSELF, cifar.test_images[:images], cifar.test_labels[:labels])


def alone(cifar):
    one = replace(cifar, train_images=cifar.train_images[:1], train_labels=cifar.train_labels[:1])
    train(tiny_model(), one, FAST, progress=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((lambda cifar, s=s: Config(**s), message) for s, message in SETTINGS),
        (taught(None, 0.5), "both a teacher and distill"),
        (taught(ITSELF, 0.0), "both a teacher and"),
        (taught(ITSELF, 0.5), "the network itself"),
        (counted(50, 49), "50 images and labels of torch.int64 .49,"),
        (counted(0, 0), "0 images"),
        (
            of_shape((1, 16, 32), image_sizes=(16,)),
            "image_sizes are sides of squares, and the images have 32 x 16",
        ),
        (of_shape((1, 4, 4)), "4 x 4 pixels are too small to be shifted by 4"),
        (alone, "no image is left to train on"),
    ],
)
def test_what_cannot_be_meant_is_named(call, message):
    with pytest.raises(TrainingError, match=message):
        call(tiny_cifar())
