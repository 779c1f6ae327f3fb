import torch

from helpers import plots


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts if text.get_text()]


def test_number_grids_write_every_number():
    figure = plots.number_grids({"x": torch.tensor([[1.5, -2.0]]), "y": torch.tensor([[3.0]])}, signs="=")
    assert {"1.5", "-2", "3", "=", "x", "y"} == set(texts(figure))


def test_window_places_agree_with_torch():
    settings = [
        {"size": 9, "kernel": 3, "stride": 2, "padding": 1},
        {"size": 7, "kernel": 5, "stride": 1, "padding": 0},
    ]
    figure = plots.window_places(settings)
    for ax, s in zip(figure.axes, settings, strict=True):
        outputs = torch.nn.functional.conv1d(
            torch.zeros(1, 1, s["size"]), torch.zeros(1, 1, s["kernel"]), stride=s["stride"], padding=s["padding"]
        ).shape[-1]
        pixels = s["size"] + 2 * s["padding"]
        assert len(ax.patches) == pixels + outputs
        assert f"{outputs} outputs" in ax.get_title()


def test_bars_carry_their_numbers():
    figure = plots.bars({"before": [1.0, 2.0], "after": [0.5, 0.25]}, ["size", "time"], "share")
    assert {"1", "2", "0.5", "0.25"} == set(texts(figure))


def test_waterfall_says_what_is_left():
    figure = plots.waterfall({"float32": 8.0, "int8": 2.0}, "MB")
    assert {"8.00  (100%)", "2.00  (25%)"} == set(texts(figure))


def test_image_grid_titles():
    figure = plots.image_grid(torch.zeros(3, 3, 8, 8, dtype=torch.uint8), ["a", "b", "c"], columns=2)
    assert [ax.get_title() for ax in figure.axes] == ["a", "b", "c", ""]
