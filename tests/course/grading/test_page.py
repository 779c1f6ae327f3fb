from html.parser import HTMLParser

import pytest

from course.grading.feedback import SAFE_ELEMENTS, document, markdown

ALLOWED = {name.split("}")[1] for name in SAFE_ELEMENTS} | {
    *("html", "head", "meta", "title", "style", "body", "p", "h1", "h2", "h3", "ul", "ol", "li", "strong", "em"),
    *("code", "pre", "table", "thead", "tbody", "tr", "th", "td", "br", "hr", "blockquote"),
}


class Reader(HTMLParser):
    """Collects tags and attributes as a browser would see them."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


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
    "FORMULA0END $x$ FORMULA1END FORMULA99END",
    '<a href="http://example.org">x</a>',
    "| a | b |\n|---|---|\n| <b onclick=x>1</b> | 2 |",
    "x $" + "{" * 500 + "$",
    ">" * 3000 + " deep",
    "[x]: javascript:alert(1)\n\n[x]",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_runs_and_nothing_is_fetched(text):
    page = document("t", markdown(text))
    reader = Reader()
    reader.feed(page)
    assert reader.tags <= ALLOWED
    assert not {name for name in reader.attributes if name.startswith("on") or name in ("href", "src", "style")}
    assert "default-src 'none'" in page


def test_markdown_and_formulas_are_drawn():
    text = markdown("**Bold** and $a_c^2$ and\n\n$$\\frac{1}{2}$$")
    assert "<strong>Bold</strong>" in text and text.count("<math") == 2 and "<mfrac>" in text


def test_what_is_written_stays_readable():
    assert "a &lt; b" in markdown("a < b") and "FORMULA" in markdown("FORMULA1END") and "cost 5$" in markdown("cost 5$")
