"""Notebook cells as HTML that needs nothing from outside: formulas as MathML, code coloured,
figures inside.
"""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mistune
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

# Code first, so that a dollar sign inside code is no formula.
CODE_OR_MATH = re.compile(r"(```.*?```|`[^`\n]+`)|\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.S)
# stands on both sides of a formula's number: a private-use character, which no text has
PLACE = "\ue000"
FORMATTER = HtmlFormatter(cssclass="code", style="friendly")


def style(name: str) -> str:
    """The CSS of notebook cells, and that of a kind of page."""
    sheets = (Path(__file__).parent / "styles" / f"{sheet}.css" for sheet in ("notebook", name))
    return "\n".join(
        [
            FORMATTER.get_style_defs(".code"),
            *(sheet.read_text(encoding="utf-8") for sheet in sheets),
        ]
    )


def markdown(text: str) -> str:
    """Turn a markdown cell, with formulas between dollar signs, into HTML."""
    render = mistune.create_markdown(escape=False, plugins=["table"], renderer=Renderer())
    return with_formulas(text, render, formula)


def with_formulas(
    text: str, render: Callable[[str], str], formula: Callable[[str, str], str]
) -> str:
    """Render markdown around its formulas, of which `formula` makes HTML from LaTeX and "block" or
    "inline".
    """
    formulas: list[str] = []

    def keep(match: re.Match) -> str:
        code, block, inline = match.groups()
        if code:
            return code
        formulas.append(formula(block or inline, "block" if block else "inline"))
        return f"{PLACE}{len(formulas) - 1}{PLACE}"

    rendered = render(CODE_OR_MATH.sub(keep, text.replace(PLACE, "")))
    return re.sub(f"{PLACE}(\\d+){PLACE}", lambda match: formulas[int(match[1])], rendered)


def formula(latex: str, display: str) -> str:
    """MathML of a formula.

    A prime is high up already, so it is set beside its letter and not above it.
    """
    from latex2mathml.converter import convert  # a lesson that shows the demo has no formula

    prime = r"<msup>(<mi>\w</mi>)<mi>&#x02032;</mi></msup>"
    return re.sub(prime, r"\1<mo lspace='0'>&#x02032;</mo>", convert(latex, display=display))


class Renderer(mistune.HTMLRenderer):
    """mistune's own, with coloured code and without links that lead nowhere from the page."""

    def __init__(self):
        super().__init__(escape=False)

    def block_code(self, code: str, info: str | None = None) -> str:
        """Coloured when it is Python."""
        return python(code) if info == "python" else f"<pre>{html.escape(code)}</pre>"

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """A link; no other notebook is there to lead to."""
        lost = "://" not in url and ".ipynb" in url
        return text if lost else super().link(text, url, title)


def python(source: str) -> str:
    """Coloured Python code."""
    return highlight(source, PythonLexer(), FORMATTER)


def outputs(cell: NotebookNode) -> str:
    """Everything that a code cell printed and showed; live widgets are left out."""
    return "\n".join(output_html(output) for output in cell.outputs)


def output_html(output: NotebookNode) -> str:
    """One output."""
    if output.output_type == "stream":
        return f'<pre class="printed">{html.escape(output.text)}</pre>'
    if output.output_type == "error":
        return (
            f'<pre class="printed">{html.escape(output.ename)}: {html.escape(output.evalue)}</pre>'
        )
    data = output.data
    if "application/vnd.jupyter.widget-view+json" in data:
        return ""
    if "text/html" in data:
        return f'<div class="shown">{data["text/html"]}</div>'
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{data["image/png"].strip()}" alt="">'
    return f'<pre class="printed">{html.escape(data.get("text/plain", ""))}</pre>'


def figures(notebook: NotebookNode) -> list[tuple[str, NotebookNode]]:
    """Name and forms of each figure that a notebook shows: as HTML, and in words as plain text."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [
        (output.metadata["figure"], output.data)
        for output in outputs
        if "figure" in output.get("metadata", {})
    ]


def title_of(notebook: NotebookNode) -> str:
    """The first heading."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return (re.search(r"^# (.+)$", text, re.M) or ["", "Untitled"])[1]


PARTS = Path(__file__).parent / "demo"


def filled(name: str, contents: dict[str, Any]) -> str:
    """A page of demo/ with styles and scripts inside, contents where it says "... go here"."""
    parts = (PARTS / name).read_text(encoding="utf-8")
    text = re.sub(
        r"/\* ([\w.]+) \*/", lambda match: (PARTS / match[1]).read_text(encoding="utf-8"), parts
    )
    for key, content in contents.items():
        text = text.replace(f'"{key} go here"', as_json(content))
    return text


def as_json(content: Any) -> str:
    """As JSON.stringify writes it in JavaScript, and without a tag that could end a script."""
    return json.dumps(content, separators=(",", ":")).replace("</", "<\\/")
