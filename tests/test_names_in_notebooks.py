"""Every name that a notebook takes from our modules is there; found without running a cell."""

import ast
import re
from types import ModuleType

import nbformat
import pytest

from course.publish.runner import NOTEBOOKS


def missing(source):
    """Imports from helpers and course that fail, and attributes that the imported modules do not
    have.
    """
    nodes, names = list(ast.walk(ast.parse(source))), {}
    for line in (
        ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)
    ):
        if re.match("(from|import) (helpers|course)", line):
            try:
                exec(line, names)
            except ImportError as error:
                yield str(error)
    rebound = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    modules = {
        name: found
        for name, found in names.items()
        if isinstance(found, ModuleType) and name not in rebound
    }
    for node in (
        node
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ):
        if node.value.id in modules and not hasattr(modules[node.value.id], node.attr):
            yield f"{node.value.id}.{node.attr}"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("**/*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_uses_names_that_are_there(path):
    cells = (
        cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
    )
    assert list(missing("\n".join(cells))) == []


def test_a_name_that_is_gone_is_found():
    source = (
        "import torch\nfrom helpers.quantization import affine, gone\nimport helpers.data as d\n"
    )
    found = list(missing(source + "torch.gone, affine.fit(affine.encode, d.normalize)"))
    assert (
        len(found) == 2 and "cannot import name 'gone'" in found[0] and found[1] == "affine.encode"
    )
