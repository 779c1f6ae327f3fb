"""The course as a website that any file server can show: lessons, guides, results, the networks.

Sphinx makes it, with MyST-NB to read notebooks and the Sphinx book theme, which brings search, dark
mode, contents, previous and next. (Jupyter Book 2 was tried too: it fetches its theme when it
builds, so it needs a connection.) Formulas become MathML here, so that no page loads anything from
another host.
"""

import html
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from docutils import nodes
from nbformat import NotebookNode
from sphinx.application import Sphinx

from course.hosted import BADGES
from course.publish import page
from course.publish.runner import NOTEBOOKS, REPOSITORY, executed, lessons
from course.reference import readme
from course.reference.chart import alternative_text
from helpers.files import move, write_atomically

STYLES = Path(__file__).parent / "styles"
ASSIGNMENTS = NOTEBOOKS / "assignments"
GUIDES = {"INSTRUCTOR.md": "teaching", "STUDENT.md": "students"}
TEACHING = ("set_up", "hand_out", "collect", "grade", "written_answers", "hand_back")
TEACHING += ("complaints", "privacy", "own_items", "others")
GUIDES |= {f"teaching/{name}.md": name for name in TEACHING}
PAGES = {path.name for path in lessons()} | {"glossary.ipynb"} | {f"{name}.md" for name in TEACHING}
SETTINGS = {
    "project": "From BatchNorm to int8",
    "extensions": ["myst_nb", "course.publish.site"],
    "exclude_patterns": ["_*"],
    "html_theme": "sphinx_book_theme",
    "html_title": "From BatchNorm to int8",
    "html_static_path": ["_static"],
    "html_css_files": ["site.css"],
    "html_extra_path": ["_extra"],
    "html_show_sourcelink": False,
    "html_copy_source": False,
    "html_favicon": "_static/icon.svg",
    "html_context": {"default_mode": "auto"},
    "html_theme_options": {
        "show_toc_level": 2,
        "home_page_in_toc": True,
        "navbar_persistent": [],
        "use_download_button": False,
        "footer_content_items": [],
    },
    "html_math_renderer": "mathml",
    "myst_enable_extensions": ["dollarmath", "amsmath", "tasklist"],
    "myst_heading_anchors": 3,
    "nb_execution_mode": "off",
    "nb_ipywidgets_js": {},  # live widgets need a kernel
    "suppress_warnings": ["myst.header", "mystnb.unknown_mime_type", "myst.xref_missing"],
}


def write_site(target: Path, demo_pages: list[Path]) -> Path:
    """Write the site's folder, and return its first page.

    Args:
        target: a folder, new or written by this function before.
        demo_pages: pages that work by themselves, which the first page shows.
    """
    if strange := others_files(target):
        raise FileExistsError(
            f"{target} holds other files, such as {strange}; take them away, or name a new folder"
            " with --output"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{target.name}-", dir=target.parent) as name:
        source, made, work = (Path(name) / part for part in ("source", "made", "work"))
        write_source(source, demo_pages)
        app = Sphinx(source, None, made, work, "html", SETTINGS, warningiserror=True, status=None)
        app.build(force_all=True)
        if app.statuscode:
            raise RuntimeError(f"mend what Sphinx warns of, see above; {target} is as it was")
        before = Path(name) / "before"
        if target.exists():  # moved, not deleted: that fails at once if a page is open on Windows
            target.rename(before)
        try:
            move(made, target)
        except OSError:
            if before.exists():
                before.rename(target)
            raise
    return target / "index.html"


def others_files(folder: Path) -> str:
    """The name of something in a folder that this function did not write; empty if all is its own.

    A site that is kept with git or under a name of its own has files that must not go, too.
    """
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    list_of_pages = folder / "objects.inv"
    ours = f"# Project: {SETTINGS['project']}\n".encode()
    if names and not (list_of_pages.exists() and ours in list_of_pages.read_bytes()[:200]):
        return min(names)
    hidden = {name for name in names if name.startswith(".")} - {".buildinfo", ".DS_Store"}
    return min(hidden | names & {"CNAME"}, default="")


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this module an extension of Sphinx, which writes formulas and tells how far it is."""
    app.add_html_math_renderer("mathml", (inline_formula, None), (block_formula, None))
    app.connect("source-read", lambda _, name, __: print(f"site: {name}", flush=True))
    app.connect("env-updated", lambda *_: print("site: the pages are written", flush=True))
    return {"parallel_read_safe": True}


def write_source(folder: Path, demo_pages: list[Path]) -> None:
    """The pages as Sphinx reads them."""
    names = terms()
    paths = lessons(talk=False)
    for path in paths:
        notebook = prepared(nbformat.read(executed(path), as_version=4), names)
        write_atomically(folder / path.name, nbformat.writes(notebook))
    glossary = nbformat.read(NOTEBOOKS / "glossary.ipynb", as_version=4)
    write_atomically(folder / "glossary.ipynb", nbformat.writes(with_anchors(glossary)))
    for name, target in GUIDES.items():
        text = (ASSIGNMENTS / name).read_text(encoding="utf-8")
        text = without_files(text.replace("](teaching/", "]("))  # all pages lie in one folder
        if target == "teaching":
            text += f"\n```{{toctree}}\n:hidden:\n{chr(10).join(TEACHING)}\n```\n"
        write_atomically(folder / f"{target}.md", text)
    for picture in (ASSIGNMENTS / "teaching").glob("*.png"):
        shutil.copy(picture, folder)
    results = REPOSITORY / "data" / "results"
    title, text = (results / "README.md").read_text(encoding="utf-8").split("\n", 1)
    write_atomically(folder / "results.md", f"{title}\n\n{charts()}\n{without_files(text)}")
    write_atomically(folder / "index.md", first_page([path.stem for path in paths]))
    for place in ("_static", "_extra"):
        (folder / place).mkdir()
    for name in ("site.css", "icon.svg"):
        shutil.copy(STYLES / name, folder / "_static")
    for path in [*demo_pages, readme.FIGURE, readme.dark_figure()]:
        shutil.copy(path, folder / "_extra")


def charts() -> str:
    """The chart of the results for light and for dark pages, of which the theme shows one."""
    alt = html.escape(alternative_text(readme.shown()))
    files = {"light": readme.FIGURE, "dark": readme.dark_figure()}
    return "\n".join(
        f'<img class="only-{ground}" src="{file.name}" alt="{alt}">'
        for ground, file in files.items()
    )


def first_page(stems: list[str]) -> str:
    """What the course is, the demo, and the contents."""
    return f"""# From BatchNorm to int8

You take an image classifier, MobileNetV2 on the small photos of CIFAR-10, and make it small and
fast. Every step is yours: you fold BatchNorm into the convolutions, write the passes that do so to
any network, remove channels, train what is left, and compute with 8-bit integers.

[Begin with lesson 00]({stems[0]}.ipynb) · [Results](results.md) · [For teachers](teaching.md)

<iframe src="demo.html" title="The networks of the course, computing in your browser"
class="demo" loading="lazy"></iframe>

<a href="demo.html">Open it alone</a> · <a href="passes.html">Follow the passes</a>

```{{toctree}}
:caption: Lessons
:hidden:
{chr(10).join(stems)}
```

```{{toctree}}
:caption: More
:hidden:
glossary
results
teaching
students
```
"""


def prepared(notebook: NotebookNode, names: dict[str, str]) -> NotebookNode:
    """A lesson whose first mention of each word of the glossary leads there, with the code that
    only sets up or draws folded away, and without what only a hosted notebook needs.
    """
    notebook.cells = [cell for cell in notebook.cells if cell.id != "hosted"]
    met: set[str] = set()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = linked(without_files(BADGES.sub("", cell.source)), names, met)
        elif cell.id == "setup" or cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata.setdefault("tags", []).append("hide-input")
    return notebook


def terms() -> dict[str, str]:
    """The words of the glossary, and the anchor of each."""
    found = {}
    for cell in nbformat.read(NOTEBOOKS / "glossary.ipynb", as_version=4).cells:
        if cell.source.startswith("## Words"):
            for row in re.findall(r"^\| ([^|`$]+?) \|", cell.source, re.M)[1:]:
                for word in re.sub(r"\(.*?\)", "", row).split(","):
                    found[word.strip()] = anchor(row)
    return found


def anchor(row: str) -> str:
    """The name of a row of the glossary in a link."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", row.lower()).strip("-")


def with_anchors(glossary: NotebookNode) -> NotebookNode:
    """The glossary with a place to jump to in each row of its words."""
    for cell in glossary.cells:
        if cell.source.startswith("## Words"):
            cell.source = re.sub(
                r"^\| ([^|`$]+?) \|(?! lesson)",
                lambda match: f'| <span id="{anchor(match[1])}"></span>{match[1]} |',
                cell.source,
                flags=re.M,
            )
    return glossary


# What must not be changed inside a text: code, formulas, links, HTML, tables and headings.
FIXED = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$|\[[^\]]*\]\([^)]*\)|<[^>]+>|^[|#].*$", re.S | re.M
)


def linked(text: str, names: dict[str, str], met: set[str]) -> str:
    """A text in which words that are met for the first time lead to the glossary."""
    pieces = FIXED.split(text)
    kept = FIXED.findall(text)
    for i, piece in enumerate(pieces):
        for word in sorted(names, key=len, reverse=True):
            if names[word] in met or len(word) < 4:
                continue
            pattern = rf"(?<![\w-]){re.escape(word)}(?![\w-])"
            link = f"[{word}](glossary.ipynb#{names[word]})"
            piece, count = re.subn(pattern, f"\0{len(kept)}\0", piece, count=1)
            if count:
                kept.append(link)
                met.add(names[word])
        pieces[i] = piece
    return woven(pieces, kept)


def woven(pieces: list[str], kept: list[str]) -> str:
    """Pieces and what stood between them, and links where a piece holds their number."""
    between = kept[: len(pieces) - 1]
    text = "".join(a + b for a, b in zip(pieces, [*between, ""], strict=True))
    return re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], text)


def without_files(text: str) -> str:
    """A text in which links to files that the site does not have become plain words."""

    def kept(match: re.Match) -> str:
        return match[0] if Path(match[2]).name in PAGES else match[1]

    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#]*)[^)]*\)", kept, text)


def inline_formula(translator, node: nodes.math) -> None:
    """MathML in a line."""
    translator.body.append(page.formula(node.astext(), "inline"))
    raise nodes.SkipNode


def block_formula(translator, node: nodes.math_block) -> None:
    """MathML in a line of its own."""
    translator.body.append(page.formula(node.astext(), "block"))
    raise nodes.SkipNode
