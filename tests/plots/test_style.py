import re
from itertools import pairwise

import pytest
from matplotlib.colors import to_rgb

from helpers import plots
from helpers.plots import style


def lightness(colour: str) -> float:
    """Relative luminance as the eye sees it (CIE L*), 0 to 100."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * luminance ** (1 / 3) - 16


def test_colours_differ_in_greyscale():
    shades = sorted(lightness(colour) for colour in plots.COLOURS.values())
    assert min(b - a for a, b in pairwise(shades)) > 8


def test_what_colour_tells_line_and_marker_tell_too():
    looks = [plots.line(n) for n in range(5)]
    for what in ("color", "linestyle", "marker"):
        assert len({str(look[what]) for look in looks}) == 5
    assert len({plots.bar(n)["hatch"] for n in range(5)}) == 5


def test_show_displays_alternative_text_and_keeps_png_and_svg(tmp_path, monkeypatch):
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


def test_a_figure_without_alternative_text_is_refused():
    figure, _ = plots.subplots()
    with pytest.raises(ValueError, match="99-line"):
        plots.show(figure, "99-line", " ")
