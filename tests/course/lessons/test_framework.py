"""What lesson 02b imports is what lesson 02 lets the learner write."""

import ast
from pathlib import Path

import nbformat

from course.lessons import framework
from course.publish.runner import NOTEBOOKS


def plain(node):
    """Code without docstrings, annotations and the value None that a function returns anyway."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(part) is not None:
                part.body = part.body[1:] or [ast.Pass()]
            part.body = [one for one in part.body if ast.unparse(one) != "return None"]
            part.returns = None
        if isinstance(part, ast.arg):
            part.annotation = None
    return ast.unparse(node)


def defined(source):
    nodes = ast.parse(source).body
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_the_framework_of_the_two_lessons_is_one():
    lesson = nbformat.read(NOTEBOOKS / "02_graphs_and_passes.ipynb", as_version=4)
    written = {}
    for cell in lesson.cells:
        if cell.cell_type == "code":
            written |= defined(cell.source)
    shipped = defined(Path(framework.__file__).read_text(encoding="utf-8"))
    for name in ("UnsupportedCase", "GraphMismatch", "replace", "Pass", "DropDropout", "DeadCode"):
        assert plain(written[name]) == plain(shipped[name]), name
