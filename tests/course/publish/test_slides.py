from argparse import Namespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course.commands import pages
from course.publish import runner, slides


def cell(make, source, kind, **metadata):
    return make(source, metadata={"slideshow": {"slide_type": kind}} | metadata)


def drawn(*cells):
    return ["".join(parts) for parts in slides.slides_of(new_notebook(cells=list(cells)))]


def test_slide_types_decide_what_is_shown():
    code = cell(new_code_cell, "secret()", "-")
    code.outputs = [new_output("stream", name="stdout", text="shown")]
    first, second = drawn(
        cell(new_markdown_cell, "# T", "slide", speaker_notes="say < this"),
        cell(new_markdown_cell, "left out", "skip"),
        new_markdown_cell("left out too"),
        code,
        cell(new_markdown_cell, "later", "fragment"),
        cell(new_markdown_cell, "next", "subslide"),
    )
    assert "shown" in first and "secret" not in first and "left out" not in first
    assert '<aside class="notes">say &lt; this</aside>' in first
    assert '<div class="fragment"><p>later</p>' in first
    assert "next" in second


def test_a_slide_that_begins_with_a_figure_gets_its_heading():
    _, figure, said = drawn(
        cell(new_markdown_cell, "# T", "slide"),
        cell(new_markdown_cell, "text\n\n## Why $a$", "skip"),
        cell(new_markdown_cell, "### Exercise 1", "skip"),
        cell(new_code_cell, "draw()", "slide"),
        cell(new_markdown_cell, "said", "slide"),
    )
    assert figure.startswith("<h3>Why <math") and "Exercise" not in figure
    assert said == "<p>said</p>\n"


def test_slides_makes_a_deck_of_the_talk_and_a_notebook_without_slides_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "lessons", lambda *_: [])
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    monkeypatch.setattr(pages, "write_demo", lambda target: [target])
    assert pages.run(Namespace(command="slides", output=tmp_path / "decks")) == 0
    assert "talk.html" in capsys.readouterr().out
    assert "Reveal.initialize" in (tmp_path / "decks" / "talk.html").read_text()
    nbformat.write(new_notebook(cells=[new_markdown_cell("# T")]), tmp_path / "n.ipynb")
    with pytest.raises(slides.SlidesError, match=r"n\.ipynb marks no cell"):
        slides.write_deck(tmp_path / "n.ipynb", tmp_path / "deck.html")
