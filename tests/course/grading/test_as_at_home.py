"""What ran in a student's folder runs in the box, and where it cannot, the reason is told."""

import io
import json
import sys
import zipfile

import nbformat
import pytest

from course.grading import answers, course, intake, judge
from course.grading.answers import fill
from tests.course.grading import trying
from tests.course.grading.conftest import skeleton_of, total

pytestmark = [pytest.mark.box, pytest.mark.slow]

DECORATED = """
@dataclass
class Affine(nn.Module if False else object):
    a: "torch.Tensor"
"""
IMPORTED = "from dataclasses import dataclass"


def notebook_of(*sources):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells)).encode()


def packed(name, data):
    """A zip file that holds one file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, data)
    return made.getvalue()


def ways(cells, functions):
    """Sources and files by what is unusual about them; each is right, and ran at home."""
    whole = "\n\n".join([cells["setup"], *(cells[name] for name in functions)])
    text = whole.replace("from instant import check", "").encode()
    imports = {name: f"from own.tools import {function}" for name, function in functions.items()}
    first = next(iter(functions))
    yield "a class before its import", {first: f"{DECORATED}\n{cells[first]}"}, {}, IMPORTED
    shell = "assert _ == '' and __builtins__.len(In)"
    yield "names of IPython", {first: f"{shell}\n{cells[first]}"}, {}, ""
    yield "a module in a folder", imports, {"own/tools.py": text}, ""
    pause = (
        "import asyncio, threading\n"
        "await asyncio.get_running_loop().run_in_executor(None, print)\n"
        "task = asyncio.create_task(asyncio.sleep(0, 5))\n"
        "assert await task == 5\n"
        "thread = threading.Thread(target=asyncio.run, args=(asyncio.sleep(0),))\n"
        "thread.start(), thread.join()"
    )
    waits = {name: f"{pause}\n{cells[name]}" for name in functions}
    yield "cells that wait", {"setup": cells["setup"], **waits}, {}, ""
    zipped = {name: f"from zipped import {function}" for name, function in functions.items()}
    zipped |= {"own": "import sys\nsys.path.append('pack.zip')"}
    yield "a module in a zip file", zipped, {"pack.zip": packed("zipped.py", text)}, ""
    written = "!mkdir -p own"
    yield (
        "a folder made by a cell",
        imports | {"own": written},
        {},
        f"%%writefile own/tools.py\n{whole}",
    )
    run = dict.fromkeys(functions, "%run tools.ipynb")
    yield "a notebook beside", run, {"tools.ipynb": notebook_of(whole)}, ""
    away = run | {"own": "%cd own"}
    yield "a notebook in a folder", away, {"own/tools.ipynb": notebook_of(whole)}, ""
    table = {"own": "import os\nopen('own.txt')\nos.makedirs('elsewhere')\n%cd elsewhere"}
    yield "another folder", table, {"own.txt": b"1"}, ""


@pytest.fixture
def result_of(released, tmp_path):
    """Grade sources and files handed in for an assignment; `last` becomes a cell at the end."""

    def graded(exercise, sources, files, last="", version="3.11.0", items=None):
        name = exercise.assignment.name
        skeleton, folder = skeleton_of(released, name), tmp_path / "ada" / name
        notebook = fill(skeleton, answers.solution_cells(exercise) | sources)
        if last:
            place = 1 if last.startswith("%%writefile") else len(notebook.cells)
            notebook.cells.insert(place, nbformat.v4.new_code_cell(last))
        notebook.metadata.language_info = {"name": "python", "version": version}
        for file, data in (trying.handed_in(exercise) | files).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(data)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / exercise.notebook.name).write_text(nbformat.writes(notebook))
        hand_in = intake.read(folder, exercise.notebook.name, skeleton)
        sheets = [
            sheet
            for sheet in judge.prepare(exercise, "tests")
            if items is None or sheet.item.name in items
        ]
        return judge.grade(exercise, [hand_in], sheets)[0]

    return graded


A1 = course.load("a1")
WAYS = {
    label: ways_of
    for label, *ways_of in ways(
        answers.solution_cells(A1),
        {f"{item.name}_solution": item.function for item in A1.assignment.items},
    )
}


@pytest.mark.parametrize("way", WAYS)
def test_what_ran_in_a_folder_at_home_earns_everything(result_of, way):
    result = result_of(A1, *WAYS[way])
    assert total(result) == 88, json.dumps(result, indent=1)


def test_a_network_is_found_after_a_change_of_folder(result_of):
    sources = {"own": "import os, tempfile\nos.chdir(tempfile.mkdtemp())"}
    row = result_of(course.load("a5"), sources, {}, items=["network"])["items"]["network"]
    assert row["points"] > 0, row


def test_a_file_that_is_missing_is_asked_for_and_its_cell_goes_by_the_exercise(result_of):
    sources = {"fold_conv_solution": "from tools import fold_conv"}
    result = result_of(A1, sources, {}, items=["fold_conv"])
    row = result["items"]["fold_conv"]
    assert "No module named 'tools' (a file of your own has to be handed in, too)" in row["message"]
    assert "hint" not in row.get("shown", {})  # it would speak of the exercise
    assert any("the cell of fold_conv raised" in note for note in result["notes"]), result["notes"]


NEWER = "from sys import of_tomorrow as fold_conv"


def test_a_newer_python_is_named_and_one_missing_function_is_one_loss(result_of):
    sources = {"fold_conv_solution": NEWER, "bn_affine_solution": "raise NotImplementedError"}
    newer = f"3.{sys.version_info.minor + 1}.0"
    result = result_of(A1, sources, {}, version=newer, items=["fold_conv", "fold_model"])
    assert any(f"saved by Python {newer[:-2]}" in note for note in result["notes"])
    messages = {name: row["message"] for name, row in result["items"].items()}
    assert messages["fold_conv"].startswith("its cell raised ImportError"), messages
    assert "grading has Python 3." in messages["fold_conv"]
    untouched = {
        "fold_conv_solution": "def fold_conv(weight, bias, a, b):\n    raise NotImplementedError"
    }
    result = result_of(A1, untouched, {}, items=["fold_conv", "fold_model"])
    messages = {name: row["message"] for name, row in result["items"].items()}
    assert messages["fold_conv"] == "not done yet: it still raises NotImplementedError()"
    assert messages["fold_model"].startswith("it calls fold_conv, which is not there")
    refused = "def fold_conv(weight, bias, a, b):\n    return torch.linalg.inv(torch.eye(2).long())"
    result = result_of(A1, {"fold_conv_solution": refused}, {}, items=["fold_conv"])
    message = result["items"]["fold_conv"]["message"]
    assert "Error" in message and "`return torch.linalg" in message, message  # what torch says
