"""What helpers/__init__.py and CONTRIBUTING.md tell a newcomer is so."""

import ast
import importlib
import re

import nbformat
import pytest

import helpers
from helpers.data import REPOSITORY

EVERYWHERE = {"plots", "checks"}
LESSONS = {path.name.split("_")[0]: path for path in REPOSITORY.glob("notebooks/[0-9]*.ipynb")}
TABLE = {
    lesson: set(modules.split(", "))
    for lesson, modules in re.findall(r"^    (\d\d[a-z]?)  +(.+)$", helpers.__doc__, re.MULTILINE)
}


def modules_of(source):
    """The modules and rooms of helpers that a source imports."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in getattr(node, "names", ()) if hasattr(alias, "name")]
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{name}" for name in names]
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name.split(".")[1] for name in names if name.startswith("helpers."))


@pytest.mark.parametrize("lesson", sorted(LESSONS))
def test_the_table_says_what_a_lesson_imports(lesson):
    cells = nbformat.read(LESSONS[lesson], as_version=4).cells
    used = set(modules_of("\n".join(cell.source for cell in cells if cell.cell_type == "code")))
    assert used >= EVERYWHERE, f"lesson {lesson} does not use all of {EVERYWHERE}: reword the table"
    line = f"    {lesson:<7}{', '.join(sorted(used - EVERYWHERE))}"
    advice = f"the table in helpers/__init__.py needs this line for lesson {lesson}:\n{line}"
    assert TABLE.get(lesson) == used - EVERYWHERE, advice


def test_the_table_has_no_lesson_that_is_gone():
    gone = TABLE.keys() - LESSONS.keys()
    assert not gone, f"take these lessons out of the table in helpers/__init__.py: {sorted(gone)}"


def test_every_module_is_described():
    described = set(re.findall(r"\w+", helpers.__doc__.split("Which lesson")[0]))
    assert set().union(*TABLE.values()) <= described


def steps_of(walk):
    """The functions that the numbered lines of a walk in CONTRIBUTING.md name."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.search(rf"^### {re.escape(walk)}$(.*?)^##", text, re.MULTILINE | re.DOTALL)
    assert section, f"CONTRIBUTING.md has no section '### {walk}'"
    return re.findall(r"^\d\. `helpers\.([\w.]+)`", section[1], re.MULTILINE)


@pytest.mark.parametrize(
    "walk", ["Follow one BatchNorm through `optimize`", "Follow one channel through `prune`"]
)
def test_a_walk_meets_five_functions_that_are_there(walk):
    steps = steps_of(walk)
    assert len(steps) == 5
    for step in steps:
        module, _, name = step.rpartition(".")
        found = importlib.import_module(f"helpers.{module}")
        remedy = f"CONTRIBUTING.md, '{walk}': helpers.{step} is gone; name what does it now"
        assert callable(getattr(found, name, None)), remedy
