"""A notebook as one self-contained reveal.js deck, speaker notes included.

Which cells are slides is said in the notebook itself, in JupyterLab's own slide types: "slide" and
"subslide" start one, "-" goes on, "fragment" appears on a key press, "skip" stays away. Code cells
show their outputs, not their code.
"""

import html
import re
from importlib.resources import files
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course.publish import page
from helpers.files import write_atomically

# An exercise, or the word "library" alone, would say nothing about the figure that follows.
HEADING = re.compile(r"^##+ (?!Exercise|The library version)(.+)$", re.M)
# For whoever reads alone, not for a room.
PAUSE = re.compile(r"^(> )?\*\*A good place to stop\b.*\n*", re.M)
AFTER = re.compile(r"^##+ (How sure is this\?|Questions)$.*", re.M | re.S)
# A slide with few words is set in larger letters, as far as it has room; a full one in smaller.
START = """
Reveal.initialize({ hash: true, slideNumber: "c/t", width: 1280, height: 720,
  plugins: [RevealNotes] });
function fill({ currentSlide: slide }) {
  const words = !slide.querySelector("pre, table, img, iframe");
  if (!words && slide.scrollHeight <= 720) return;
  for (let size = words ? 44 : 30; size >= 18; size -= 2) {
    slide.style.fontSize = size + "px";
    if (slide.scrollHeight <= (words ? 640 : 720) && slide.scrollWidth <= 1280) break;
  }
  Reveal.layout();
}
Reveal.on("ready", fill);
Reveal.on("slidechanged", fill);
"""


def write_deck(notebook_path: Path, target: Path) -> Path:
    """Write the deck of an executed notebook."""
    notebook = nbformat.read(notebook_path, as_version=4)
    slides = [f"<section>{''.join(parts)}</section>" for parts in slides_of(notebook)]
    if not slides:
        raise RuntimeError(
            f"{notebook_path.name} marks no cell as a slide; set a slide type in JupyterLab"
        )
    theme = re.sub(
        "^@import.*", "", reveal("dist/theme/white.css"), flags=re.M
    )  # which would fetch a font
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(page.title_of(notebook))}</title>
<style>{reveal("dist/reset.css")}{reveal("dist/reveal.css")}{theme}{page.style("slides")}</style>
</head>
<body><div class="reveal"><div class="slides">{"".join(slides)}</div></div>
<script>{reveal("dist/reveal.js")}</script><script>{reveal("plugin/notes/notes.js")}</script>
<script>{START}</script></body></html>"""
    return write_atomically(target, text)


def write_index(decks: list[Path], notebooks: list[Path], target: Path) -> Path:
    """Write a page that leads to every deck, and to the networks."""
    rows = []
    for deck, path in zip(decks, notebooks, strict=True):
        notebook = nbformat.read(path, as_version=4)
        title = html.escape(page.title_of(notebook))
        rows.append(
            f'<li><a href="{deck.name}">{title}</a>, {len(slides_of(notebook))} slides</li>'
        )
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Slides</title><style>{page.style("report")}</style></head>
<body><main><h1>Slides</h1>
<p>In a deck, the arrow keys turn the slides, F fills the screen, S shows the speaker's notes and
Esc all slides.</p>
<ul>{"".join(rows)}</ul>
<p><a href="demo.html">Try the networks</a> · <a href="passes.html">Follow the passes</a></p>
</main></body></html>"""
    return write_atomically(target, text)


def slides_of(notebook: NotebookNode) -> list[list[str]]:
    """The HTML of each slide, in parts.

    One that begins with a figure gets the heading that it stands under.
    """
    slides: list[list[str]] = []
    heading = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = [heading, *HEADING.findall(cell.source)][-1]
        kind = cell.metadata.get("slideshow", {}).get("slide_type", "skip")
        shown = shown_on_slide(cell)
        if kind == "skip" or not shown:
            continue
        if kind in ("slide", "subslide") or not slides:
            slides.append([page.markdown(f"### {heading}")] if cell.cell_type == "code" else [])
        slides[-1].append(f'<div class="fragment">{shown}</div>' if kind == "fragment" else shown)
        notes = cell.metadata.get("speaker_notes")
        if notes:
            slides[-1].append(f'<aside class="notes">{html.escape(notes)}</aside>')
    return slides


def shown_on_slide(cell: NotebookNode) -> str:
    """The HTML of a cell; empty if all that it shows is a live widget."""
    if cell.cell_type == "markdown":
        return page.markdown(AFTER.sub("", PAUSE.sub("", cell.source)))
    # A frame begins to compute when its slide comes.
    return page.outputs(cell).strip().replace("<iframe src=", "<iframe data-src=")


def reveal(name: str) -> str:
    """A file of reveal.js, from the Python package that carries it."""
    try:
        return (files("sphinx_revealjs") / "_static" / "revealjs" / name).read_text(
            encoding="utf-8"
        )
    except ModuleNotFoundError as error:
        raise RuntimeError("reveal.js is missing; pip install sphinx_revealjs brings it") from error
