import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course.publish import slides


def cell(make, source, kind, **metadata):
    return make(source, metadata={"slideshow": {"slide_type": kind}} | metadata)


def test_slide_types_decide_what_is_shown():
    code = cell(new_code_cell, "secret()", "-")
    code.outputs = [new_output("stream", name="stdout", text="shown")]
    notebook = new_notebook(
        cells=[
            cell(new_markdown_cell, "# T", "slide", speaker_notes="say < this"),
            cell(new_markdown_cell, "left out", "skip"),
            new_markdown_cell("left out too"),
            code,
            cell(new_markdown_cell, "later", "fragment"),
            cell(new_markdown_cell, "next", "subslide"),
        ]
    )
    first, second = ("".join(parts) for parts in slides.slides_of(notebook))
    assert "shown" in first and "secret" not in first and "left out" not in first
    assert '<aside class="notes">say &lt; this</aside>' in first
    assert '<div class="fragment"><p>later</p>' in first
    assert "next" in second


def test_a_slide_that_begins_with_a_figure_gets_its_heading():
    notebook = new_notebook(
        cells=[
            cell(new_markdown_cell, "# T", "slide"),
            cell(new_markdown_cell, "text\n\n## Why $a$", "skip"),
            cell(new_markdown_cell, "### Exercise 1", "skip"),
            cell(new_code_cell, "draw()", "slide"),
            cell(new_markdown_cell, "said", "slide"),
        ]
    )
    _, drawn, said = ("".join(parts) for parts in slides.slides_of(notebook))
    assert drawn.startswith("<h3>Why <math") and "Exercise" not in drawn
    assert said == "<p>said</p>\n"


def test_a_notebook_without_slides_is_refused(tmp_path):
    nbformat.write(new_notebook(cells=[new_markdown_cell("# T")]), tmp_path / "n.ipynb")
    with pytest.raises(slides.SlidesError, match=r"n\.ipynb marks no cell"):
        slides.write_deck(tmp_path / "n.ipynb", tmp_path / "deck.html")
