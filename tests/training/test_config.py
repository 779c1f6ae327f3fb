import pytest

from helpers.training.config import Config, TrainingError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number between 1 and 1000000, got 0"),
        ({"lr": float("nan")}, "lr must lie between"),
        ({"precision": "int8"}, "precision must be"),
        ({"epochs": True}, "epochs must be a whole number between 1 and .*, got True"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"cutout": -5}, "cutout must be a whole number"),
        ({"lr": "a"}, "lr must lie between 0 and 100, got 'a'"),
        ({"clip": -1}, "clip must lie between 0 and inf"),
        ({"temperature": 0}, "temperature must lie between"),
        *(({n: float("nan")}, f"{n} must lie") for n in ("clip", "temperature", "muon", "weight_decay")),
        ({"image_sizes": 32}, "image_sizes must be a tuple"),
        ({"image_sizes": (16.5, 32)}, "8 pixels or more"),
        ({"image_sizes": (8, 16, 24, 32), "epochs": 2}, "need an epoch each, and epochs is 2"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(TrainingError, match=message):
        Config(**settings)
