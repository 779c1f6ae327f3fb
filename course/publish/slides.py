"""A notebook as one self-contained reveal.js deck, speaker notes included.

Which cells are slides is said in the notebook itself, in JupyterLab's own slide types: "slide" and
"subslide" start one, "-" goes on, "fragment" appears on a key press, "skip" stays away. Code cells
show their outputs, not their code.
"""

import html
import re
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course.hosted import BADGES
from course.publish import page
from helpers.files import write_atomically

# An exercise, or the word "library" alone, would say nothing about the figure that follows.
HEADING = re.compile(r"^##+ (?!Exercise|The library version)(.+)$", re.M)
# For whoever reads alone, not for a room: from here to the end of a cell, and in what code printed.
ALONE = re.compile(
    r"^(\*\*After this lesson you can\*\*|##+ (How sure is this\?$|Questions$|Exercise )).*",
    re.M | re.S,
)
ALONE_PRINTED = re.compile(
    r"(?<![^>\n])(\w+: the solution of the course|Run this cell in JupyterLab to .*)\n?"
)
# The last sentence of a cell, if the next cell is to show what it announces.
ANNOUNCES = re.compile(r"((?<=[.?!])\s+|^)[^.?!\n]*:\s*\Z", re.M)
TITLE = "<title>Slides</title>"  # of the page that leads to all decks
# Characters that a room reads before it looks at a figure, and at most on one slide.
SHORT = 320
FULL = 800
# Text and figures are as large as the slide has room for.
START = """
for (const figure of document.querySelectorAll(".course-figure")) {
  figure.setAttribute("data-prevent-swipe", "");  // or a slider that is dragged turns the slide
}
addEventListener("keydown", (event) => {  // the keys of a presenter's remote, in a figure too
  const turn = { PageDown: "next", PageUp: "prev" }[event.key];
  if (!turn || !event.target.closest(".course-figure")) return;
  event.preventDefault();
  event.stopPropagation();
  Reveal[turn]();
}, true);
Reveal.initialize({ hash: true, slideNumber: "c/t", width: 1280, height: 720,
  plugins: [RevealNotes] });
function fill({ currentSlide: slide }) {
  const figures = slide.querySelectorAll("img, .course-figure");
  const words = !slide.querySelector("img, .course-figure, iframe");
  const fits = () => slide.scrollHeight <= (words ? 640 : 700) && slide.scrollWidth <= 1280;
  const zoom = (times) => figures.forEach((figure) => (figure.style.zoom = times));
  const lines = slide.querySelectorAll("pre");
  const letters = (smallest) => {
    for (let size = words ? 44 : 30; size >= smallest; size -= 2) {
      slide.style.fontSize = size + "px";
      if (fits()) return true;
    }
  };
  const wrap = (how) => lines.forEach((line) => (line.style.whiteSpace = how));
  zoom(0.7);
  wrap("pre");
  if (!letters(28)) {
    wrap("pre-wrap");
    letters(18);
  }
  for (let times = 1.7; times >= 0.5; times -= 0.1) {
    zoom(times);
    if (fits()) break;
  }
  Reveal.layout();
}
function fillTwice(event) {  // a figure that was far away draws itself only now
  fill(event);
  const again = () => fill({ currentSlide: Reveal.getCurrentSlide() });
  requestAnimationFrame(() => requestAnimationFrame(again));
}
Reveal.on("ready", fillTwice);
Reveal.on("slidechanged", fillTwice);
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
{TITLE}<style>{page.style("report")}</style></head>
<body><main><h1>Slides</h1>
<p>In a deck, the arrow keys turn the slides, F fills the screen, S shows the speaker's notes and
Esc all slides.</p>
<ul>{"".join(rows)}</ul>
<p><a href="demo.html">Try the networks</a> · <a href="passes.html">Follow the passes</a></p>
</main></body></html>"""
    return write_atomically(target, text)


def slides_of(notebook: NotebookNode) -> list[list[str]]:
    """The HTML of each slide, in parts.

    One that begins without a heading gets the one that it stands under. A figure joins the slide
    before if that has only a few words, under the same heading.
    """
    slides: list[list[str]] = []
    heading = last_heading = ""
    for cell, following in pairwise([*notebook.cells, NotebookNode(cell_type="", metadata={})]):
        if cell.cell_type == "markdown":
            heading = [heading, *HEADING.findall(cell.source)][-1]
        kind = slide_type(cell)
        shown = shown_on_slide(cell, following)
        if kind == "skip" or not shown:
            continue
        if not slides or (
            kind in ("slide", "subslide")
            and not (cell.cell_type == "code" and heading == last_heading and is_short(slides[-1]))
        ):
            begun = shown.startswith("<h") or not heading
            slides.append([] if begun else [page.markdown(f"### {heading}")])
            last_heading = heading
        slides[-1].append(f'<div class="fragment">{shown}</div>' if kind == "fragment" else shown)
        notes = cell.metadata.get("speaker_notes")
        if notes:
            slides[-1].append(f'<aside class="notes">{html.escape(notes)}</aside>')
    return slides


def slide_type(cell: NotebookNode) -> str:
    """As JupyterLab calls it."""
    return cell.metadata.get("slideshow", {}).get("slide_type", "skip")


def is_short(slide: list[str]) -> bool:
    """Whether a slide is a few words and nothing else."""
    text = "".join(part for part in slide if not part.startswith("<aside"))
    only_words = re.search("<(img|table|pre|iframe|script)", text) is None
    return only_words and len(re.sub("<[^>]+>", "", text)) <= SHORT


def shown_on_slide(cell: NotebookNode, following: NotebookNode) -> str:
    """The HTML of a cell; empty if all that it shows is a live widget.

    Of text only what begins with its first heading, for what stands before belongs to the cell
    above. What its last sentence announces is shown along with it, or that sentence is left out.
    """
    if cell.cell_type != "markdown":
        shown = ALONE_PRINTED.sub("", page.outputs(cell))
        return re.sub('<pre class="printed">\\s*</pre>', "", shown).strip()
    # A frame begins to compute when its slide comes, not beside the slides before it.
    text = BADGES.sub("", cell.source).replace('<iframe src="', '<iframe data-src="')
    text = ALONE.sub("", re.sub(r"\A.*?^(?=#+ )", "", text, count=1, flags=re.M | re.S))
    if not ANNOUNCES.search(text) or slide_type(following) != "skip":
        return page.markdown(text)
    announced = page.outputs(following).strip() if following.cell_type == "code" else ""
    if announced and len(text + announced) <= FULL:
        return page.markdown(text) + announced
    return page.markdown(ANNOUNCES.sub("", text))


def reveal(name: str) -> str:
    """A file of reveal.js, from the Python package that carries it."""
    try:
        return (files("sphinx_revealjs") / "_static" / "revealjs" / name).read_text(
            encoding="utf-8"
        )
    except ModuleNotFoundError as error:
        remedy = "`python -m course doctor` says how to install it"
        raise RuntimeError(f"reveal.js is missing; {remedy}") from error
