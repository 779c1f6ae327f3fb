"""What a student wrote, on the page for the student and on the teacher's in nbgrader's Formgrader:
read, never run.
"""

import copy
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import PyFileConfigLoader

from course.grading import answers, feedback, record
from course.grading.feedback import SAFE_ELEMENTS, document, markdown
from tests.course.grading.picture import MOST_BYTES, PICTURE
from tests.course.publish.chromium import NEEDED, launched

HARMLESS = {
    *("math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "mstyle", "mfrac", "msqrt", "mroot"),
    *("mover", "munder", "munderover", "msup", "msub", "msubsup", "mtable", "mtr", "mtd"),
    *("mpadded", "mphantom", "menclose"),
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


def test_of_mathml_only_what_is_harmless_is_let_through():
    assert {name.split("}")[1] for name in SAFE_ELEMENTS} <= HARMLESS


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


SCORES = {
    "bn_affine": {"points": 8, "of": 8, "comment": "", "waiting": False},
    "fold_conv": {"points": 0, "of": 10, "comment": "", "waiting": False},
    "fold_model": {"points": 0, "of": 20, "comment": "", "waiting": False},
    "padding_answer": {"points": 0, "of": 6, "comment": "", "waiting": True},
    "late penalty": {"points": 0, "of": 0, "comment": "", "waiting": False},
}
LOST = {"message": "in groups: it differs", "shown": {"input": "x = " + "1.25, " * 99}}
LOST["cases"] = [["plain", 1.0], ["in groups", 0.0], ["without a bias", 1.0]]
LOST |= {"points": 0, "of": 10}
ITEMS = {"fold_conv": LOST, "fold_model": {"points": 0, "of": 20, "message": "it differs"}}
RESULT = {"boxed": True, "notes": ["A remark."], "printed": "x" * 900, "items": ITEMS}


@pytest.fixture
def page(room, a1, skeleton, monkeypatch):
    """The page of somebody who wrote long lines, a wide formula and headings of every level."""
    heads = "\n\n".join(f"{'#' * level} {level}" for level in range(1, 7))
    words = f"{heads}\n\n$${' + '.join(['x_1'] * 60)}$$\n\n![a plot](x.png)"
    folder = room.folder / "checked" / "ada" / "a1"
    folder.mkdir(parents=True)
    sources = {"padding_answer": words, "fold_model_solution": "fold_model = fold_conv"}
    nbformat.write(answers.fill(skeleton, sources), folder / "a1.ipynb")
    room.submission("ada", "a1").mkdir(parents=True)
    monkeypatch.setattr(record, "scores", lambda *_: SCORES)
    return feedback.render(room, a1, "ada", copy.deepcopy(RESULT))


def test_a_page_can_be_read_by_its_headings_and_tells_each_case(page):
    levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(one <= before + 1 for before, one in pairwise(levels))
    assert '<th scope="col">Points</th>' in page and '<th scope="row">1. bn_affine</th>' in page
    assert '<a href="#fold_conv">5. fold_conv</a>' in page
    assert '<h3 id="fold_conv">5. fold_conv: 0 of 10</h3>' in page
    assert "Right in 2 of 3 cases. Not in: in groups" in page
    assert "<b>it calls</b> fold_conv, wrong too: it may be one mistake" in page
    assert "waiting, 6 at most" in page and "late penalty" not in page
    assert "<img" not in page and "[image: a plot]" in page and 'lang="en"' in page


def test_what_was_taken_off_is_a_share_of_what_was_earned(room, a1):
    late = SCORES["late penalty"] | {"points": -0.8}
    words = feedback._summary(SCORES | {"late penalty": late}, a1)
    assert "7.2 of 100 points" in words and "0.8 points, 10% of 8, were taken off" in words


def test_code_in_a_message_is_shown_as_code_and_nothing_else_of_it_is_markup():
    shown = feedback._with_code("ValueError: <b>no</b>, in the line `x < 1` of fold_conv")
    assert shown.endswith("&lt;b&gt;no&lt;/b&gt;, in the line <code>x &lt; 1</code> of fold_conv")


def test_a_text_that_waits_is_not_called_empty():
    row = {"points": 0, "of": 6, "comment": feedback.LEFT_EMPTY, "waiting": True}
    assert feedback._reason(row, {}) == "" and feedback._reason(row | {"waiting": False}, {})


def test_what_is_cut_off_says_so():
    row = {"points": 0.0, "of": 8.0, "comment": "", "waiting": False}
    told = {size: feedback._reason(row, {"shown": {"got": "7" * size}}) for size in (3000, 3001)}
    assert "7" * 3000 + "</code>" in told[3000] and "7" * 3000 + "...</code>" in told[3001]


def test_what_was_measured_is_told_with_full_points_too():
    row = {"points": 30.0, "of": 30.0, "comment": "", "waiting": False}
    item = {"message": "79.2% right with 17,858 bytes", "shown": {"hint": "Smaller."}}
    assert feedback._reason(row, item) == ""  # the points were given by hand
    told = feedback._reason(row, item | {"measured": {"bytes": 17_858}})
    assert "17,858 bytes" in told and "Smaller" not in told and "lost" not in told


def test_where_a_share_is_earned_no_case_is_called_wrong():
    assert feedback._cases([["first", 0.25], ["second", 0.3]]) == []


def test_the_page_of_what_could_not_be_read_says_so_once(room, a1, monkeypatch):
    left_empty = {"padding_answer": SCORES["padding_answer"] | {"comment": feedback.LEFT_EMPTY}}
    monkeypatch.setattr(record, "scores", lambda *_: SCORES | left_empty)
    room.submission("ada", "a1").mkdir(parents=True)
    page = feedback.render(room, a1, "ada", RESULT | {"readable": False})
    assert "A remark." in page and "0 of 10" in page
    assert "it differs" not in page and "No response" not in page and "handed in</h2>" not in page


def luminance(colour):
    digits = colour.lstrip("#")
    parts = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    shares = [int(parts[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [
        share / 12.92 if share <= 0.04 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    lower, higher = sorted([luminance(one), luminance(other)])
    return (higher + 0.05) / (lower + 0.05)


def test_text_and_lines_stand_out_from_the_page_in_light_and_dark():
    assert contrast("#000", "#fff") == pytest.approx(21)
    _, light, dark, _ = re.split(r"color-scheme: light dark;|@media", feedback.STYLE)
    for theme in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#\w+)", theme))
        for name, least in {"ink": 7, "stamp": 4.5, "link": 4.5, "line": 3, "lost": 3}.items():
            assert contrast(colours[name], colours["page"]) >= least, (name, colours)
        assert contrast(colours["ink"], colours["code"]) >= 7


class TestInABrowser:
    pytestmark = NEEDED

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_nothing_is_cut_off_on_a_telephone(self, page, tmp_path, scheme):
        (tmp_path / "page.html").write_text(page)
        with launched() as browser:
            shown = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
            shown.goto((tmp_path / "page.html").as_uri())
            assert shown.evaluate("document.documentElement.scrollWidth") == 390
            background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(255, 255, 255)") == (scheme == "light")
            shown.keyboard.press("Tab")
            shown.keyboard.press("Enter")
            shown.wait_for_url("**#fold_conv")


def test_the_picture_in_the_guide_is_small_and_said_in_words():
    assert PICTURE.stat().st_size < MOST_BYTES
    (words,) = re.findall(
        r"!\[([^\]]+)\]\(page\.png\)", (PICTURE.parent / "hand_back.md").read_text()
    )
    assert len(words) > 40
