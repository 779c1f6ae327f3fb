"""The course as one page that works offline: contents, every lesson with its figures and tables,
provenance.
"""

import base64
import html
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course.publish import page
from course.publish.runner import RUN
from helpers.files import write_atomically


def write_report(notebooks: list[Path], target: Path) -> Path:
    """Write the page of executed notebooks, their figures beside it, and what `write_demo` left
    there in frames.
    """
    demo = [*filter(Path.exists, map(target.with_name, ("demo.html", "passes.html")))]
    contents = {path.stem: nbformat.read(path, as_version=4) for path in notebooks}
    for name, shown in (
        figure for notebook in contents.values() for figure in page.figures(notebook)
    ):
        data = re.search(r"base64,([^\"]+)", shown["text/html"])[
            1
        ]  # the SVGs were written when the notebook ran
        write_atomically(target.parent / "figures" / f"{name}.png", base64.b64decode(data))
    links = {f"{stem}.ipynb": f"#{stem}" for stem in contents}
    sections = []
    for stem, notebook in contents.items():
        print(f"report of {stem}", flush=True)
        sections.append(section(stem, notebook, links))
    menu = [
        f'<a href="#{stem}">{html.escape(page.title_of(nb))}</a>' for stem, nb in contents.items()
    ]
    menu += ['<a href="#demo">Try the networks</a>'] if demo else []
    menu += [
        '<a href="#figures">All figures</a>',
        '<a href="#provenance">Where the numbers come from</a>',
    ]
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>From BatchNorm to int8</title><style>{page.style("report")}</style></head>
<body><nav aria-label="Contents"><strong>From BatchNorm to int8</strong>{"".join(menu)}</nav>
<main><h1>From BatchNorm to int8</h1>
{"".join(sections)}{demo_section(demo)}
{figure_list(contents, target.parent)}{provenance_table(contents)}
</main></body></html>"""
    return write_atomically(target, text)


def section(stem: str, notebook: NotebookNode, links: dict[str, str]) -> str:
    """One lesson; its code is folded away, its results are not."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(page.markdown(cell.source, links))
        elif cell.cell_type == "code":
            folded = f"<details><summary>code</summary>{page.python(cell.source)}</details>"
            parts.append(folded + page.outputs(cell))
    return f'<section id="{stem}">{"".join(parts)}</section>'


def demo_section(pages: list[Path]) -> str:
    """Each page in a frame, with a link that opens it alone."""
    frames = [
        f'<p><a href="{page.name}">Open {page.name} alone</a></p>'
        f'<iframe src="{page.name}" title="{page.stem}" loading="lazy"></iframe>'
        for page in pages
    ]
    return (
        f'<section id="demo"><h1>Try the networks</h1>{"".join(frames)}</section>' if frames else ""
    )


def figure_list(contents: dict[str, NotebookNode], folder: Path) -> str:
    """Every figure with its description, and the files for re-use; an SVG is there if the lesson
    was run here.
    """
    rows = [
        f'<tr><td><a href="#{name}">{name}</a></td><td>{html.escape(shown["text/plain"])}</td>'
        f'<td><a href="figures/{name}.png">PNG</a>'
        f"{svg * (folder / f'figures/{name}.svg').exists()}</td></tr>"
        for notebook in contents.values()
        for name, shown in page.figures(notebook)
        for svg in [f' <a href="figures/{name}.svg">SVG</a>']
    ]
    head = "<tr><th>figure</th><th>what it shows</th><th>for re-use</th></tr>"
    return (
        f'<section id="figures"><h1>All figures</h1><table>{head}{"".join(rows)}</table></section>'
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
        '<section id="provenance"><h1>Where the numbers come'
        f" from</h1><table>{''.join(rows)}</table></section>"
    )
