import pytest

from helpers.training_config import Config, TrainingError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be a positive whole number, got 0"),
        ({"epochs": 1.5}, "epochs"),
        ({"batch_size": -1}, "batch_size"),
        ({"lr": float("nan")}, "lr must lie between"),
        ({"warmup": 2}, "warmup"),
        ({"distill": -0.1}, "distill"),
        ({"precision": "int8"}, "precision must be"),
        ({"image_sizes": ()}, "image_sizes"),
        ({"image_sizes": (4, 32)}, "8 pixels or more"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(TrainingError, match=message):
        Config(**settings)
