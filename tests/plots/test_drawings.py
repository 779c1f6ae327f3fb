"""Figures show the numbers that they were given, and can be read in grey and aloud."""

import re
from itertools import pairwise

import pandas as pd
import pytest
import torch
from matplotlib.colors import to_rgb

from helpers import plots
from helpers.plots import exploring, style
from helpers.training import Evaluation


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts if text.get_text()]


def test_grids_and_bars_carry_their_numbers_and_a_waterfall_what_is_left():
    figure = plots.number_grids({"x": torch.tensor([[1.5, -2.0]]), "y": torch.tensor([[3.0]])}, signs="=")
    assert {"1.5", "-2", "3", "=", "x", "y"} == set(texts(figure))
    figure = plots.bars({"before": [1.0, 2.0], "after": [0.5, 0.25]}, ["size", "time"], "share")
    assert {"1", "2", "0.5", "0.25"} == set(texts(figure))
    figure = plots.waterfall({"float32": 8.0, "int8": 2.0}, "MB")
    assert {"8.00  (100%)", "2.00  (25%)"} == set(texts(figure))


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


def test_every_box_and_arrow_of_a_flow_says_what_it_was_given():
    (ax,) = plots.flow([("a", "1"), ("b", "2"), ("c", "3")], ["then", "becomes"], strong=(2,)).axes
    assert {"a", "b", "c", "1", "2", "3", "then", "becomes"} <= {text.get_text() for text in ax.texts}
    assert len(ax.patches) == 3
    assert sum(text.arrow_patch is not None for text in ax.texts if hasattr(text, "arrow_patch")) == 2
    plain, _, strong = (patch.get_linewidth() for patch in ax.patches)
    assert strong > plain


def test_a_figure_follows_its_slider_or_says_where_the_sliders_are(monkeypatch, capsys):
    def draw(slope):
        figure, ax = plots.subplots(size=(2, 1))
        ax.plot([0, 1], [0, slope])
        return figure

    shown = []
    monkeypatch.setattr(exploring, "display", shown.append)
    monkeypatch.delenv("COURSE_HEADLESS", raising=False)
    plots.explore(draw, "a line", slope=(0.0, 1.0, 2.0))
    sliders, picture = shown[0].children
    before = picture.value
    sliders.children[0].value = 2.0
    assert picture.value != before and 'alt="a line"' in picture.value
    monkeypatch.setenv("COURSE_HEADLESS", "1")
    plots.explore(draw, "a line", slope=(0.0, 1.0, 2.0))
    assert len(shown) == 1 and "JupyterLab to get sliders for slope" in capsys.readouterr().out


def lightness(colour: str) -> float:
    """Relative luminance as the eye sees it (CIE L*), 0 to 100."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * luminance ** (1 / 3) - 16


def test_colours_differ_in_greyscale_and_what_they_tell_line_and_marker_tell_too():
    shades = sorted(lightness(colour) for colour in plots.COLOURS.values())
    assert min(b - a for a, b in pairwise(shades)) > 8
    looks = [plots.line(n) for n in range(5)]
    for what in ("color", "linestyle", "marker"):
        assert len({str(look[what]) for look in looks}) == 5
    assert len({plots.bar(n)["hatch"] for n in range(5)}) == 5


def test_show_needs_and_displays_alternative_text_and_keeps_png_and_svg(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "FIGURES", tmp_path)
    shown = []
    monkeypatch.setattr(style, "display", lambda data, **options: shown.append((data, options)))
    figure, ax = plots.subplots()
    ax.plot([1, 2], [3, 4])
    plots.show(figure, "99-line", 'rises from "3" to 4')
    data, options = shown[0]
    assert re.search(r'alt="rises from &quot;3&quot; to 4"', data["text/html"])
    assert options["metadata"] == {"figure": "99-line"}
    assert (tmp_path / "99-line.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "99-line.svg").read_text()
    with pytest.raises(ValueError, match="99-line"):
        plots.show(figure, "99-line", " ")
