"""Turn untrusted Markdown with formulas into HTML in which nothing can run and nothing is fetched."""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree

import latex2mathml.converter
import mistune

MATH = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.DOTALL)
MOST_FORMULA = 2000
MATHML = "http://www.w3.org/1998/Math/MathML"
SAFE_ELEMENTS = {
    f"{{{MATHML}}}{name}"
    for name in (
        *("math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "mstyle", "mfrac", "msqrt", "mroot", "mover", "munder"),
        *("munderover", "msup", "msub", "msubsup", "mtable", "mtr", "mtd", "mpadded", "mphantom", "menclose"),
    )
}
SAFE_ATTRIBUTES = {"display", "mathvariant", "stretchy", "fence", "form", "columnalign", "rowspacing", "movablelimits"}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #bbb; padding: .3rem; text-align: left; }
td.number { text-align: right; white-space: nowrap; }
pre { background: #f3f3f3; padding: .6rem; overflow-x: auto; }
.stamp { border: 3px solid #a00; color: #a00; padding: .5rem; font-weight: bold; }
.lost { border-left: 4px solid #a60; padding-left: .6rem; }
"""

# The page may use its own style and nothing else: no script, no image, no font, no form, no connection.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


def document(title: str, body: str) -> str:
    """Wrap a body in a whole page."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


class _PlainRenderer(mistune.HTMLRenderer):
    """Markdown without raw HTML, images and links: their text remains."""

    def image(self, text: str, url: str, title: str | None = None) -> str:
        return f"[image: {text}]"

    def link(self, text: str, url: str, title: str | None = None) -> str:
        return f"{text} ({html.escape(url)})"


_markdown = mistune.create_markdown(renderer=_PlainRenderer(escape=True), plugins=["table"])


def markdown(text: str) -> str:
    """Render Markdown with $formulas$, whoever wrote it.

    Example:
        >>> markdown("<script>alert(1)</script>")
        '<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>\\n'
    """
    formulas: list[str] = []

    def put_aside(match: re.Match) -> str:
        formulas.append(formula(match[1] or match[2], "block" if match[1] else "inline"))
        return f"MATH{len(formulas) - 1}HTAM"

    try:
        rendered = _markdown(MATH.sub(put_aside, text.replace("MATH", "MATH\u200b")))
    except RecursionError:  # deep nesting is no way to fail a page
        return f"<pre>{html.escape(text)}</pre>"
    return re.sub(r"MATH(\d+)HTAM", lambda match: formulas[int(match[1])], rendered)


def formula(latex: str, display: str) -> str:
    """Turn a formula into MathML, which browsers draw themselves; one that cannot be read stays text."""
    if len(latex) > MOST_FORMULA:
        return f"<code>{html.escape(latex)}</code>"
    try:
        tree = ElementTree.fromstring(latex2mathml.converter.convert(latex, display=display))
    except Exception:  # the converter fails in many ways on bad formulas
        return f"<code>{html.escape(latex)}</code>"
    # The converter does not escape \\text, so elements of any kind may come out of it.
    if not all(element.tag in SAFE_ELEMENTS for element in tree.iter()):
        return f"<code>{html.escape(latex)}</code>"
    for element in tree.iter():
        # \\href and \\style reach attributes; only those that concern layout are kept.
        element.attrib = {name: value for name, value in element.attrib.items() if name in SAFE_ATTRIBUTES}
    ElementTree.register_namespace("", MATHML)
    return ElementTree.tostring(tree, encoding="unicode")
