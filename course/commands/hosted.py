"""`python -m course hosted`: the cell and the badges that open a notebook on Colab and Kaggle.

They follow one setting in pyproject.toml: [tool.course] repository = "owner/name". While it is
empty there are no badges, and the cell asks for COURSE_REPOSITORY.
"""

import argparse
import re
import tomllib
from pathlib import Path

import nbformat

from course.hosted import BADGES, CELL, REPOSITORY
from helpers.files import write_atomically

NOTEBOOKS = REPOSITORY / "notebooks"
BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/github/{repository}/blob/main/{path})"
    " [![Open in Kaggle](https://kaggle.com/static/images/open-in-kaggle.svg)]"
    "(https://kaggle.com/kernels/welcome?src=https://github.com/{repository}/blob/main/{path})"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("--check", action="store_true", help="only say whether all is up to date")


def run(arguments: argparse.Namespace) -> int:
    """Write the first cell and the badges of every notebook that a learner opens."""
    repository = repository_of(REPOSITORY / "pyproject.toml")
    late = []
    for path in notebooks():
        text = path.read_text(encoding="utf-8")
        wanted = with_hosting(text, path.relative_to(REPOSITORY).as_posix(), repository)
        if wanted != text:
            late.append(path.name)
            if not arguments.check:
                write_atomically(path, wanted)
    said = "out of date; run python -m course hosted" if arguments.check else "written"
    print(f"{', '.join(late)}: {said}" if late else "every notebook is up to date")
    return 1 if late and arguments.check else 0


def repository_of(pyproject: Path) -> str:
    """The setting, empty or owner/name."""
    settings = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    repository = settings.get("tool", {}).get("course", {}).get("repository", "")
    if repository and not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(
            f"pyproject.toml: [tool.course] repository is {repository!r}; give owner/name"
        )
    return repository


def notebooks() -> list[Path]:
    """The lessons and the page of progress."""
    return [*sorted(NOTEBOOKS.glob("[0-9]*.ipynb")), NOTEBOOKS / "progress.ipynb"]


def with_hosting(text: str, path: str, repository: str) -> str:
    """A notebook's text with the cell below its title, and badges if the repository is known."""
    notebook = nbformat.reads(text, as_version=4)
    title = notebook.cells[0]
    title.source = BADGES.sub("", title.source)
    if repository:
        title.source += "\n\n" + BADGE.format(repository=repository, path=path)
    source = CELL.format(source=f"https://github.com/{repository}" if repository else "").rstrip()
    cell = next((cell for cell in notebook.cells if cell.id == "hosted"), None)
    if cell is None:
        cell = nbformat.v4.new_code_cell("", id="hosted")
        notebook.cells.insert(1, cell)
    cell.source = source
    cell.metadata = {
        "jupyter": {"source_hidden": True},
        "slideshow": {"slide_type": "skip"},
        "tags": ["hide-cell"],
    }
    return nbformat.writes(notebook) + "\n"
