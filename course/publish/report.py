"""What a presenter needs, as one page that works offline: results, numbers, and every figure of the
lessons to copy.
"""

import base64
import html
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course.publish import page
from course.publish.runner import RUN
from course.reference import ablations, readme
from course.reference import page as numbers
from course.reference.chart import alternative_text
from course.reference.headline import headline, readable
from course.reference.table import load
from helpers.files import write_atomically

TITLE = "From BatchNorm to int8"
PAGES = {"demo.html": "Try the networks", "passes.html": "Follow the passes"}
SECTIONS = {
    "results": "Results",
    "numbers": "Numbers",
    "figures": "Figures",
    "provenance": "Where it comes from",
}


def write_report(notebooks: list[Path], target: Path) -> Path:
    """Write the page of executed notebooks and their figures beside it; it links to what
    `write_demo` left there.
    """
    contents = {path.stem: nbformat.read(path, as_version=4) for path in notebooks}
    write_figures(contents, target.parent / "figures")
    parts = {
        "results": results(),
        "numbers": tables(),
        "figures": gallery(contents, target.parent / "figures"),
        "provenance": provenance_table(contents),
    }
    menu = [f'<a href="#{name}">{title}</a>' for name, title in SECTIONS.items()]
    menu += [
        f'<a href="{name}">{title}</a>'
        for name, title in PAGES.items()
        if target.with_name(name).exists()
    ]
    sections = [
        f'<section id="{name}"><h2>{linked(name, SECTIONS[name])}</h2>{part}</section>'
        for name, part in parts.items()
    ]
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{TITLE}</title><style>{page.style("report")}</style></head>
<body><nav aria-label="Contents"><strong>{TITLE}</strong>{"".join(menu)}</nav>
<main>
{"".join(sections)}
</main></body></html>"""
    return write_atomically(target, text)


def linked(name: str, title: str) -> str:
    """A heading from which one can copy the address of its place."""
    return f'<a class="anchor" href="#{name}">{html.escape(title)}</a>'


def write_figures(contents: dict[str, NotebookNode], folder: Path) -> None:
    """Each figure as a PNG file; the SVG files were written when the lessons ran, and those of
    another run than the one that is shown go.
    """
    for notebook in contents.values():
        for name, shown in page.figures(notebook):
            data, file = base64.b64decode(picture(shown)), folder / f"{name}.png"
            if not file.exists() or file.read_bytes() != data:
                file.with_suffix(".svg").unlink(missing_ok=True)
            write_atomically(file, data)


def picture(shown: NotebookNode) -> str:
    """The PNG of a figure in base64; of a live figure, the picture that stands in for it."""
    return re.search(r"base64,([^\"]+)", shown["text/html"])[1]


def results() -> str:
    """The chart, for light and for dark rooms, and the four networks that one shows first."""
    table = readme.shown()
    dark, light = (
        f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
        for path in (readme.dark_figure(), readme.FIGURE)
    )
    chart = (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img id="chart" src="{light}" alt="{html.escape(alternative_text(table))}"></picture>'
    )
    return chart + as_html(numbers.as_markdown(readable(headline(table))))


def tables() -> str:
    """Every network, speed and ablation, and the plan beside what came out."""
    table = readme.shown()
    every = load(ablations.ABLATIONS)
    parts = {
        "networks": ("Networks", [numbers.NAMES, numbers.as_markdown(numbers.networks(table))]),
        "speed": ("Speed", numbers.speed()),
        "plan": ("Planned and achieved", [numbers.as_markdown(numbers.plan(table))]),
        "ablations": (
            "Ablations",
            [ablations.NOTE, numbers.as_markdown(ablations.readable(every))],
        ),
    }
    return "".join(
        f'<h3 id="{name}">{linked(name, title)}</h3>{as_html(*texts)}'
        for name, (title, texts) in parts.items()
    )


def as_html(*texts: str) -> str:
    """Paragraphs and tables; a table that is wider than the page scrolls by itself."""
    shown = page.markdown("\n\n".join(texts))
    return shown.replace("<table>", '<div class="wide"><table>').replace(
        "</table>", "</table></div>"
    )


def gallery(contents: dict[str, NotebookNode], folder: Path) -> str:
    """Every figure, lesson by lesson, with its description and its files."""
    parts = []
    for stem, notebook in contents.items():
        figures = page.figures(notebook)
        if figures:
            parts.append(f'<h3 id="{stem}">{linked(stem, page.title_of(notebook))}</h3>')
        parts += [figure(name, shown, folder) for name, shown in figures]
    return f'<div class="gallery">{"".join(parts)}</div>'


def figure(name: str, shown: NotebookNode, folder: Path) -> str:
    """A small picture, which leads to the large one; an SVG is there if the lesson was run here."""
    told = html.escape(shown["text/plain"])
    svg = f' <a href="figures/{name}.svg">SVG</a>' * (folder / f"{name}.svg").exists()
    files = f'<a href="figures/{name}.png">PNG</a>{svg}'
    image = f'<img src="data:image/png;base64,{picture(shown)}" alt="{told}">'
    return (
        f'<figure id="{name}"><a href="figures/{name}.png">{image}</a>'
        f"<figcaption>{linked(name, name)} {files}<br>{told}</figcaption></figure>"
    )


def provenance_table(contents: dict[str, NotebookNode]) -> str:
    """Profile, versions and machine of each lesson that was run here; of the others, what their
    outputs come from.
    """
    rows = []
    for stem, notebook in contents.items():
        shipped = {
            "outputs": "as shipped",
            "made from": ", ".join(notebook.metadata.get("made_from", {})),
        }
        told = "; ".join(
            f"{key} {value}" for key, value in notebook.metadata.get(RUN, shipped).items() if value
        )
        rows.append(f"<tr><th>{stem}</th><td>{html.escape(told)}</td></tr>")
    return (
        "<details><summary>The figures, lesson by lesson</summary>"
        f"<table>{''.join(rows)}</table></details>"
    )
