from helpers import plots
from helpers.plots.exploring import panel


def draw(slope):
    figure, ax = plots.subplots(size=(2, 1))
    ax.plot([0, 1], [0, slope])
    return figure


def test_the_figure_follows_the_slider():
    widget = panel(draw, "a line", slope=(0.0, 1.0, 2.0))
    sliders, picture = widget.children
    before = picture.value
    sliders.children[0].value = 2.0
    assert picture.value != before
    assert 'alt="a line"' in picture.value


def test_without_a_reader_it_says_where_the_sliders_are(monkeypatch, capsys):
    monkeypatch.setenv("COURSE_HEADLESS", "1")
    plots.explore(draw, "a line", slope=(0.0, 1.0, 2.0))
    assert "JupyterLab to get sliders for slope" in capsys.readouterr().out
