"""Whatever a hand-in holds, what is graded is the release with the student's answers and own cells
in it.
"""

import copy
import json
import os
import time

import nbformat
import pytest

from course.grading import course, judge
from course.grading.answers import fill
from course.grading.classroom import write
from course.grading.collect import _damage
from course.grading.handed_in import MOST_NOTEBOOK_BYTES, cells_of, files_of
from course.grading.handout import without_solutions
from course.grading.intake import PICTURES, read

ANSWER = "def bn_affine(gamma, beta, mean, var, eps):\n    return gamma, beta"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ada" / "a1").mkdir(parents=True)
    return tmp_path / "ada" / "a1"


@pytest.fixture
def notebook(skeleton):
    return json.loads(
        nbformat.writes(
            fill(skeleton, {"bn_affine_solution": ANSWER, "padding_answer": "Because."})
        )
    )


@pytest.fixture
def submit(folder, skeleton):
    """Put a notebook, as bytes or as a tree, into the folder and read what is there."""

    def submitted(notebook=None):
        if notebook is not None:
            data = notebook if isinstance(notebook, bytes) else json.dumps(notebook).encode()
            (folder / "a1.ipynb").write_bytes(data)
        return read(folder, "a1.ipynb", skeleton)

    return submitted


def source_of(submission, name):
    (found,) = [
        c.source
        for c in submission.notebook.cells
        if c.metadata.get("nbgrader", {}).get("grade_id") == name
    ]
    return found


def cell_of(notebook, name):
    return next(
        cell for cell in notebook["cells"] if cell["metadata"]["nbgrader"]["grade_id"] == name
    )


def test_locked_cells_ids_points_and_kernel_come_from_the_release(submit, notebook, skeleton):
    cell_of(notebook, "bn_affine")["outputs"] = ["x" * MOST_NOTEBOOK_BYTES]
    assert submit(notebook).notes == []
    cell_of(notebook, "bn_affine")["source"] = "1000.0"
    cell_of(notebook, "bn_affine")["metadata"]["nbgrader"]["points"] = 1000
    cell_of(notebook, "fold_conv")["metadata"]["nbgrader"]["grade_id"] = "fold_before"
    cell_of(notebook, "setup")["source"] = "evil = 1"
    cell_of(notebook, "affine_text")["source"].insert(1, "My words.\n")
    cell_of(notebook, "padding_answer")["attachments"] = {"scan.png": {"image/png": "iVBORw0KGgo="}}
    cell_of(notebook, "intro")["metadata"]["nbgrader"]["locked"] = False
    notebook["metadata"]["kernelspec"] = {"name": "malicious", "language": "R", "display_name": "R"}
    notebook["cells"].reverse()
    submission = submit(notebook)
    answers = {"bn_affine_solution": ANSWER, "padding_answer": "Because."}
    for cell in skeleton.cells:
        name = cell.metadata.nbgrader.grade_id
        assert source_of(submission, name) == answers.get(name, cell.source)
    mine = [
        cell.metadata.nbgrader for cell in submission.notebook.cells if "nbgrader" in cell.metadata
    ]
    assert mine == [cell.metadata.nbgrader for cell in skeleton.cells]
    assert "evil = 1" in [
        cell["source"] for cell in submission.code
    ]  # as code of the student's own
    assert (
        any("My words." in cell.source for cell in submission.notebook.cells)
        and PICTURES in submission.notes
    )
    assert submission.notebook.metadata == skeleton.metadata


def test_words_over_a_question_are_read_where_its_place_is_empty(submit, notebook):
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown" and not cell["metadata"]["nbgrader"]["locked"]:
            cell["source"] = "Because."
    cell_of(notebook, "padding_text")["source"] = "Zeros come after the norm."
    submission = submit(notebook)  # and every answer is in its place
    assert any("padding_text differed in your file" in note for note in submission.notes)
    cell_of(notebook, "rounding_answer")["source"] = ""  # another question's
    assert any("padding_text differed" in note for note in submit(notebook).notes)
    cell_of(notebook, "padding_answer")["source"] = "YOUR ANSWER HERE"
    texts = [cell.source for cell in submit(notebook).notebook.cells]
    assert "Zeros come after the norm." in texts


def test_deleted_and_doubled_cells_are_put_right_and_own_cells_stay_where_they_were(
    submit, notebook
):
    doubled = copy.deepcopy(cell_of(notebook, "bn_affine_solution")) | {
        "source": "def bn_affine(): pass"
    }
    own = {
        "cell_type": "code",
        "metadata": {},
        "source": ["a = 1\n", "b = 2"],
        "outputs": [],
        "execution_count": None,
    }
    notebook["cells"].insert(notebook["cells"].index(cell_of(notebook, "bn_affine")), own)
    notebook["cells"].remove(
        cell_of({"cells": [c for c in notebook["cells"] if c is not own]}, "bn_train")
    )
    cell_of({"cells": notebook["cells"][-5:]}, "padding_answer")["cell_type"] = (
        "raw"  # a slip of the finger
    )
    submission = submit(notebook | {"cells": [*notebook["cells"], doubled]})
    assert [source_of(submission, name) for name in ("bn_affine_solution", "padding_answer")] == [
        ANSWER,
        "Because.",
    ]
    cells = [(cell["name"], cell["source"]) for cell in submission.code]
    assert cells[-1] == (
        f"a cell of your own (`{doubled['source'][:40]}`)",
        doubled["source"],
    )  # as after a cell was split in two
    assert cells[cells.index(("bn_affine_solution", ANSWER)) + 1] == (
        "a cell of your own (`a = 1`)",
        "a = 1\nb = 2",
    )
    assert "bn_affine" not in dict(cells)  # checks are not executed
    notes = " ".join(submission.notes)
    assert "second cell marked bn_affine_solution" in notes and "bn_train was missing" in notes


def test_an_answer_that_stands_in_any_cell_is_not_undone_by_what_was_released(
    submit, notebook, skeleton
):
    """As after pasting it into a new cell or into a given one; or after a program that drops the
    marks of all cells.
    """
    cell_of(notebook, "bn_affine_solution")["metadata"] = {}
    bare = [cell | {"metadata": {}} for cell in notebook["cells"]]
    cell_of(notebook, "setup")["source"] = f"import torch\n{ANSWER}"
    moved = [cell for cell in notebook["cells"] if cell["source"] != ANSWER]
    for cells in (notebook["cells"], moved, bare):
        codes = [cell["source"] for cell in submit(notebook | {"cells": cells}).code]
        defining = [code for code in codes if "def bn_affine" in code]
        assert defining and all(ANSWER in code for code in defining)
        assert source_of(submit(), "setup") == cell_of(skeleton, "setup").source in codes


BROKEN = [
    (b'{"cells": [', "not valid JSON"),
    (b"\xff\xfe\x00", "not valid JSON"),
    (b"[" * 200_000, "not valid JSON"),
    (b"[]", "not a notebook"),
    (b'{"nbformat": 4, "cells": [' + b"9" * 5000 + b"]}", "not valid JSON"),
    (b'{"nbformat": 3, "worksheets": []}', "format 4"),
    (b'{"nbformat": 4, "cells": {}}', "format 4"),
    (b'{"nbformat": 4, "cells": [' + b",".join([b"{}"] * 600) + b"]}", "cells"),
    (
        b'{"nbformat": 4, "cells": [{"cell_type": "raw", "source": "'
        + b"x" * MOST_NOTEBOOK_BYTES
        + b'y"}]}',
        "bytes",
    ),
]


@pytest.mark.parametrize(("data", "says"), BROKEN)
def test_a_broken_notebook_becomes_a_note(submit, skeleton, data, says):
    submission = submit(data)
    assert says in submission.notes[0] and len(submission.notebook.cells) == len(skeleton.cells)


CODE, MARKED = (
    {"cell_type": "code", "source": "x"},
    lambda name: {"metadata": {"nbgrader": {"grade_id": name}}},
)
ODD = [
    7,
    {"cell_type": ["code"], "source": "x"},
    CODE | {"source": {"a": 1}},
    CODE | {"metadata": [1]},
    CODE | MARKED(["bn_affine"]),
    CODE | {"cell_type": "markdown"} | MARKED("bn_affine_solution"),
    CODE | {"source": "s = '\ud800'", "metadata": {}},
    CODE | {"cell_type": "raw", "metadata": {}},
    CODE | {"source": "x = 1\x00", "metadata": {}},
    CODE
    | {"source": ["x"] * 10**5, "metadata": {}, "outputs": {"deep": [[[]]]}, "id": "x" * 10**5},
    CODE | MARKED("bn_affine\u200b_solution"),
]


@pytest.mark.parametrize("cell", ODD)
def test_an_odd_cell_does_no_harm(submit, notebook, cell):
    submission = submit(notebook | {"cells": [cell, *notebook["cells"]]})
    assert source_of(submission, "bn_affine_solution") == ANSWER
    nbformat.validate(submission.notebook)
    nbformat.writes(submission.notebook).encode()


def test_links_pipes_and_folders_are_not_read(folder, notebook, submit, skeleton, tmp_path):
    (tmp_path / "secret.ipynb").write_text("{}")
    path = folder / "a1.ipynb"
    for make, says in (
        (lambda: None, "a1.ipynb is missing"),
        (lambda: path.symlink_to(tmp_path / "secret.ipynb"), "links are not followed"),
        (lambda: path.unlink() or os.mkfifo(path), "not an ordinary file"),
        (lambda: path.unlink() or path.mkdir(), "a1.ipynb is missing"),
    ):
        make()
        assert says in submit().notes[0]
    path.rmdir()
    submit(notebook)
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve" / "a1").symlink_to(folder)
    (tmp_path / "mallory").symlink_to(folder.parent)
    for link in (tmp_path / "eve" / "a1", tmp_path / "mallory" / "a1"):
        assert "not an ordinary folder" in read(link, "a1.ipynb", skeleton).notes[0]
    path.rename(folder / "a1 (copy).ipynb")  # a single notebook counts under any name
    assert source_of(submit(), "bn_affine_solution") == ANSWER


def test_odd_words_are_looked_for_in_cells_and_in_python_files(submit, notebook, folder):
    cell = {"cell_type": "code", "id": "own", "metadata": {}, "outputs": [], "source": "ctypes"}
    (folder / "layers.py").write_text("import os, sys\nmine = sys.modules\nos._exit(os.fork())\n")
    (folder / "notes.txt").write_text("setprofile\n")
    code = "\n".join(submit(notebook | {"cells": [*notebook["cells"], cell]}).own_code)
    assert {*judge.ODD.findall(code)} == {"ctypes", "sys.modules", "os._exit", "os.fork"}


def test_another_assignments_notebook_and_an_empty_one_are_named_as_that(submit, notebook):
    for cell in notebook["cells"]:
        cell["metadata"]["nbgrader"]["grade_id"] += "_of_another"
    for given, words in (
        (notebook, "it is another notebook: hand in that of a1"),
        (b" ", "the notebook is empty"),
    ):
        submission = submit(given)
        (note,) = submission.notes
        assert words in note and not submission.readable


@pytest.mark.parametrize("picture", ["![x](s.png)", "a ![x][1]", "![ ![x](y)", '<img src="s.png">'])
def test_a_picture_in_a_file_of_its_own_is_told_of_and_a_remark_is_none(submit, notebook, picture):
    assert PICTURES not in submit(notebook).notes
    cell_of(notebook, "padding_answer")["source"] = "No! [1] (or a < b)"
    assert PICTURES not in submit(notebook).notes
    cell_of(notebook, "padding_answer")["source"] = f"Look: {picture}"
    assert PICTURES in submit(notebook).notes


def own_cell(source):
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": []}


def test_a_function_that_a_later_cell_replaces_is_named_and_a_helper_is_not(submit, notebook):
    helper, answer, cells = own_cell("def helper(): pass"), own_cell(ANSWER), notebook["cells"]
    notes = submit(notebook | {"cells": [answer, *cells, helper, helper]}).notes
    assert not [note for note in notes if "defined again" in note]
    (note,) = [n for n in submit(notebook | {"cells": [*cells, answer]}).notes if "again" in n]
    assert note.startswith("bn_affine is defined again in a cell of your own (`def bn_affine(")
    for source in ("x = nn", "nn == 64", "import torch", "    nn = 64"):
        tried = submit(notebook | {"cells": [*cells, own_cell(source)]})
        assert not [n for n in tried.notes if "again" in n]
    notes = submit(notebook | {"cells": [*cells, own_cell("nn = 64  # neurons")]}).notes
    source = "AXES = (0, 1)\nother = 1\n\n\ndef update_statistics(x):\n    return x.mean(AXES)"
    cell_of(notebook, "update_statistics_solution")["source"] = source
    changed = submit(notebook | {"cells": [*cells, own_cell("AXES = 0\nother = 2")]}).notes
    assert [note.split()[0] for note in changed if "again" in note] == ["AXES"]
    assert "nn is defined again in a cell of your own (`nn = 64  # neurons`)" in notes[-1]


def test_of_a_text_that_is_missing_the_page_says_that_own_cells_are_read(submit, notebook):
    for name in ("rounding_answer", "bn_train_solution"):
        notebook["cells"].remove(cell_of(notebook, name))
    text, code = sorted((n for n in submit(notebook).notes if "missing" in n), key=len)[::-1]
    assert text.startswith("The cell rounding_answer was missing. Your teacher sees")
    assert code == "The cell bn_train_solution was missing."


def test_words_in_a_cell_of_code_are_words(submit, notebook):
    cell = cell_of(notebook, "rounding_answer")
    cell["cell_type"], cell["source"] = "code", "It rounds to even."
    found = submit(notebook)
    assert source_of(found, "rounding_answer") == "It rounds to even."
    assert not [note for note in found.notes if "missing" in note]
    cell = cell_of(notebook, "bn_train_solution")
    cell["cell_type"] = "markdown"  # code is code
    assert "The cell bn_train_solution was missing." in submit(notebook).notes


def test_an_answer_above_its_given_cell_is_told_of(submit, notebook):
    cells, name = notebook["cells"], "bn_train"
    given = next(i for i, c in enumerate(cells) if c is cell_of(notebook, f"{name}_solution"))
    answer = own_cell("def bn_train(x, gamma, beta, eps):\n    return x")
    above = submit(notebook | {"cells": [*cells[:given], answer, *cells[given:]]}).notes
    assert [note for note in above if "bn_train is defined in a cell of your own" in note]
    below = submit(notebook | {"cells": [*cells[: given + 1], answer, *cells[given + 1 :]]}).notes
    assert not [note for note in below if "is defined in a cell" in note]


def test_a_second_notebook_of_the_assignment_is_never_passed_over_in_silence(submit, folder):
    (folder / "a1_v2.ipynb").write_text("{}")
    (folder / "Untitled.ipynb").write_text("{}")
    (folder / "tools.ipynb").write_text("{}")
    notes = submit({"nbformat": 4, "cells": [nbformat.v4.new_code_cell("%run tools.ipynb")]}).notes
    for other in ("a1_v2.ipynb", "Untitled.ipynb"):
        assert [note for note in notes if f"a1.ipynb is graded, and {other} is not" in note]
    assert not [note for note in notes if "tools.ipynb" in note]


@pytest.mark.parametrize("text", ["![", "![a", "!", "![]"])
def test_a_text_of_openings_alone_takes_no_time(text):
    cell = {"cell_type": "markdown", "source": text * 80_000}
    start = time.process_time()
    (read_cell,) = cells_of(json.dumps({"nbformat": 4, "cells": [cell]}).encode())
    assert time.process_time() - start < 1 and not read_cell["pictures"]


@pytest.mark.parametrize("text", ["import ", "import a, ", "from import, ", "import a as "])
def test_code_that_begins_imports_without_end_takes_no_time(text):
    start = time.process_time()
    assert judge.ODD.findall(text * 30_000) == [] and time.process_time() - start < 1


@pytest.mark.parametrize("code", ["os, guard", "a.b as c , wire", "os,inside", "wire", "\twire"])
def test_whoever_imports_what_grades_is_named(code):
    assert judge.ODD.findall(f"import torch\nimport {code}")
    assert judge.ODD.findall(f"from {code.split(',')[-1].strip()}.x\timport y")


@pytest.mark.parametrize(
    "code", ["import os, guarded, wired", "# summed from inside the loop", "import driver"]
)
def test_nobody_is_named_for_words_or_for_what_a5_shows(code):
    assert judge.ODD.findall(code) == []


def test_the_notebook_of_an_assignment_with_a_mark_in_common_is_refused(folder):
    a3, a4 = (without_solutions(course.load(name).notebook) for name in ("a3", "a4"))
    write(folder / "a3.ipynb", a4)
    (note,) = read(folder, "a3.ipynb", nbformat.reads(a3, as_version=4)).notes
    assert "it is the notebook of a4: hand in that of a3" in note


def test_a_notebook_with_written_answers_alone_is_one_of_its_assignment(submit, notebook, folder):
    words = [cell_of(notebook, "padding_answer"), cell_of(notebook, "rounding_answer")]
    assert submit(notebook | {"cells": words}).readable
    assert _damage(files_of([folder], "a1")[0], "a1") == ""


def test_an_assignment_that_is_not_finished_stops_no_other(submit, notebook, monkeypatch):
    monkeypatch.setattr(course, "names", lambda: ["a1", "a9"])  # a9 has no notebook yet
    assert submit(notebook).readable
