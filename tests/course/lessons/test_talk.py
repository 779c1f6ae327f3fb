"""The talk: about a dozen slides, each with something to say, as it is committed."""

from argparse import Namespace

import nbformat
import pytest

from course.commands import pages
from course.publish import page, runner, slides


@pytest.fixture(scope="module")
def talk():
    return nbformat.read(runner.NOTEBOOKS / runner.TALK, as_version=4)


def test_about_twelve_slides_each_with_notes(talk):
    shown = slides.slides_of(talk)
    assert 12 <= len(shown) <= 16
    assert all('<aside class="notes">' in "".join(parts) for parts in shown)


def test_outputs_of_a_real_run_and_figures_with_alternative_text(talk):
    for cell in talk.cells:
        if cell.cell_type == "code":
            assert cell.execution_count, f"{cell.id} was not run"
            assert all(output.output_type != "error" and output.get("name") != "stderr" for output in cell.outputs)
    figures = page.figures(talk)
    assert len(figures) >= 10 and all(len(alt) > 30 for _, alt in figures)


def test_what_the_room_was_promised(talk):
    text = "\n".join(cell.source for cell in talk.cells if cell.cell_type == "markdown")
    for part in ("Why this network", "Why whole channels", "Why from scratch", "Where is it hard", "What to use when"):
        assert part in text


def test_it_runs_when_asked_for_and_with_everything(tmp_path):
    for name in ("01_a", "talk"):
        nbformat.write(nbformat.v4.new_notebook(), tmp_path / f"{name}.ipynb")
    stems = lambda names: [path.stem for path in runner.chosen(names, tmp_path)]  # noqa: E731
    assert stems([]) == ["01_a", "talk"]
    assert stems(["talk"]) == ["talk"]
    assert stems(["01"]) == ["01_a"]
    assert [path.stem for path in runner.lessons(folder=tmp_path)] == ["01_a"], "the talk is no lesson"


def test_slides_makes_a_deck_of_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "lessons", lambda *_: [])
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    monkeypatch.setattr(pages, "write_demo", lambda target: [target])
    assert pages.run(Namespace(command="slides", output=tmp_path / "decks")) == 0
    assert "talk.html" in capsys.readouterr().out
    assert "Reveal.initialize" in (tmp_path / "decks" / "talk.html").read_text()
