"""What a student wrote, on the page for the student and on the teacher's in nbgrader's Formgrader:
read, never run.
"""

from collections import Counter
from html.parser import HTMLParser

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import PyFileConfigLoader

from course.grading import answers
from course.grading.feedback import SAFE_ELEMENTS, document, markdown

HARMLESS = {name.split("}")[1] for name in SAFE_ELEMENTS} | {
    *("p", "h1", "h2", "h3", "ul", "ol", "li", "strong", "em", "code", "pre", "div", "span"),
    *("table", "thead", "tbody", "tr", "th", "td", "br", "hr", "blockquote"),
}
INJECTIONS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](http://example.org/spy.png)",
    "[x](javascript:alert(1))",
    "<javascript:alert(1)>",
    "<iframe src=http://example.org></iframe>",
    "$\\href{javascript:alert(1)}{x}$",
    "$\\text{<script>alert(1)</script>}$",
    "$\\style{background:url(http://example.org)}{x}$",
    "$$\\class{x}{</math><script>alert(1)</script>}$$",
    "<svg/onload=alert(1)>",
    "```html\n</pre><script>alert(1)</script>\n```",
    "\ue0000\ue000 $x$ \ue0001\ue000 \ue00099\ue000",
    '<a href="http://example.org">x</a>',
    "| a | b |\n|---|---|\n| <b onclick=x>1</b> | 2 |",
    "x $" + "{" * 500 + "$",
    ">" * 3000 + " deep",
    "[x]: javascript:alert(1)\n\n[x]",
]


def active(html):
    """Counts what may do something in a browser: elements not known as harmless, attributes that
    run or fetch.
    """
    found, parser = Counter(), HTMLParser()

    def start(tag, attributes):
        found.update([tag] if tag not in HARMLESS else [])
        found.update(
            name
            for name, _ in attributes
            if name.startswith("on") or name in ("href", "src", "style")
        )

    parser.handle_starttag = start
    parser.feed(html)
    return found


@pytest.fixture(scope="module")
def teachers_page(released, skeleton):
    """Render a submission with a written answer and further cells; the configuration is the class
    folder's own.
    """
    config = PyFileConfigLoader("nbgrader_config.py", str(released("a1").folder)).load_config()
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [handlers.template_path]
    names = (
        "mathjax_url",
        "student",
        "notebook_id",
        "assignment_id",
        "submission_id",
        "last_name",
        "first_name",
    )
    resources = dict.fromkeys(names, "") | {"base_url": "/", "index": 0, "total": 1}

    def rendered(*texts):
        notebook = answers.fill(skeleton, {"padding_answer": texts[0]})
        notebook.cells += [nbformat.v4.new_markdown_cell(text) for text in texts]
        notebook = nbformat.reads(nbformat.writes(notebook), as_version=4)
        return HTMLExporter(config=config).from_notebook_node(notebook, resources=dict(resources))[
            0
        ]

    return rendered


def test_nothing_of_a_student_runs_or_is_fetched_on_any_page(teachers_page):
    assert active(teachers_page(*INJECTIONS)) == active(teachers_page(*["x"] * len(INJECTIONS)))
    plain = document("t", markdown("x"))
    assert "default-src 'none'" in plain
    for text in INJECTIONS:
        assert active(document("t", markdown(text))) == active(plain), text


def test_answers_and_formulas_can_be_read(teachers_page):
    html = teachers_page(
        "**Bold** and\n\n```\nx < 1\n\ny\n```\n\n[x](https://example.org) after it, $a_c^2$"
    )
    assert html.count("<strong>Bold</strong>") == 2 and "x &lt; 1\n\ny" in html
    assert "x (https://example.org) after it" in html
    of_the_release = teachers_page("x").count("<math")
    assert html.count("<math") == of_the_release + 2 and of_the_release > 10
    text = markdown("**Bold** and $a_c^2$ and\n\n$$\\frac{1}{2}$$")
    assert "<strong>Bold</strong>" in text and text.count("<math") == 2 and "<mfrac>" in text
    assert "a &lt; b" in markdown("a < b") and "cost 5$" in markdown("cost 5$")
    assert "\ue000" not in markdown("\ue0001\ue000 $x$")
