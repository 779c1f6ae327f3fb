import pandas as pd
import pytest
import torch

from helpers import plots
from helpers.training import Evaluation


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


def test_accuracies_are_drawn_in_percent_with_their_intervals():
    found = {"dense": Evaluation(0.9, 100, (0.8, 0.95), 0.1), "cut": Evaluation(0.5, 100, (0.4, 0.6), 1.0)}
    (bars,) = plots.accuracies(found).axes
    assert [bar.get_height() for bar in bars.patches] == [90, 50]
    assert [label.get_text() for label in bars.get_xticklabels()] == ["dense", "cut"]
    (ax,) = plots.accuracies({"per layer": list(found.values())}, (8, 4), "bits", found["dense"]).axes
    whiskers = next(c for c in ax.collections).get_segments()
    assert whiskers[0][:, 1] == pytest.approx([80, 95])
    assert [text.get_text() for text in ax.get_legend().texts] == ["float32", "per layer"]


def test_times_and_lines_show_what_they_are_given():
    table = pd.DataFrame({"name": ["float32", "int8"], "median_ms": [4.0, 1.0], "iqr_ms": [0.2, 0.1]})
    (ax,) = plots.times(table, 64).axes
    assert [bar.get_width() for bar in ax.patches] == [4, 1]
    assert "64 images" in ax.get_xlabel()
    (ax,) = plots.lines({"a": ([0, 1], [2, 3]), "b": ([0, 1], [4, 5])}, "step", "loss", ylim=(0, 9)).axes
    assert [list(line.get_ydata()) for line in ax.lines] == [[2, 3], [4, 5]]
    assert ax.get_ylim() == (0, 9)
