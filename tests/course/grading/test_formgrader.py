"""The page on which a teacher reads written answers, made as nbgrader's Formgrader makes it."""

from collections import Counter
from html.parser import HTMLParser

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import PyFileConfigLoader

from course.grading import answers
from tests.course.grading.test_page import INJECTIONS


class Elements(HTMLParser):
    """Counts what a browser would make of a page: tags that do something, and attributes that run something."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "iframe", "img", "svg", "a", "object", "form", "link", "meta", "style"):
            self.found[tag] += 1
        self.found.update(name for name, _ in attrs if name.startswith("on") or name in ("href", "src", "style"))


@pytest.fixture(scope="module")
def show(released, skeleton):
    """Render a submission with a written answer and further cells; the configuration is the class folder's own."""
    config = PyFileConfigLoader("nbgrader_config.py", str(released("a1").folder)).load_config()
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [handlers.template_path]
    exporter = HTMLExporter(config=config)

    def rendered(*texts):
        notebook = answers.fill(skeleton, {"padding_answer": texts[0]})
        notebook.cells += [nbformat.v4.new_markdown_cell(text) for text in texts]
        resources = {"base_url": "/", "mathjax_url": "", "index": 0, "total": 1, "student": "ada", "notebook_id": "a1",
                     "assignment_id": "a1", "submission_id": "1", "last_name": "", "first_name": ""}  # fmt: skip
        notebook = nbformat.reads(nbformat.writes(notebook), as_version=4)
        return exporter.from_notebook_node(notebook, resources=resources)[0]

    return rendered


def test_nothing_of_a_student_runs_on_the_teachers_page(show):
    plain, hostile = Elements(), Elements()
    plain.feed(show(*["x"] * len(INJECTIONS)))
    hostile.feed(show(*INJECTIONS))
    assert hostile.found == plain.found


def test_answers_and_formulas_can_be_read(show):
    html = show("**Bold** and\n\n```\nx < 1\n\ny\n```\n\n[x](https://example.org) after it, $a_c^2$")
    assert html.count("<strong>Bold</strong>") == 2 and "x &lt; 1\n\ny" in html
    assert "x (https://example.org) after it" in html
    formulas, of_the_release = html.count("<math"), show("x").count("<math")
    assert formulas == of_the_release + 2 and of_the_release > 10
