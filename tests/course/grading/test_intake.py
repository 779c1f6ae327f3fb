import json
import os

import nbformat
import pytest

from course.grading.answers import fill
from course.grading.collect import MOST_FILES_BYTES
from course.grading.intake import MOST_NOTEBOOK_BYTES, read

ANSWER = "def bn_affine(gamma, beta, mean, var, eps):\n    return gamma, beta"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ada" / "a1").mkdir(parents=True)
    return tmp_path / "ada" / "a1"


@pytest.fixture
def notebook(skeleton):
    return json.loads(nbformat.writes(fill(skeleton, {"bn_affine_solution": ANSWER, "padding_answer": "Because."})))


def _source(submission, name):
    found = [c.source for c in submission.notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == name]
    assert len(found) == 1
    return found[0]


def _hand_in(folder, notebook):
    (folder / "a1.ipynb").write_text(json.dumps(notebook))
    return folder


def _cell(notebook, name):
    return next(cell for cell in notebook["cells"] if cell["metadata"]["nbgrader"]["grade_id"] == name)


def test_answers_are_taken(folder, notebook, skeleton):
    submission = read(_hand_in(folder, notebook), "a1.ipynb", skeleton)
    assert _source(submission, "bn_affine_solution") == ANSWER
    assert _source(submission, "padding_answer") == "Because."
    assert submission.notes == []
    nbformat.validate(submission.notebook)


def test_locked_cells_ids_points_and_kernel_come_from_the_release(folder, notebook, skeleton):
    _cell(notebook, "bn_affine")["source"] = "1000.0"
    _cell(notebook, "bn_affine")["metadata"]["nbgrader"]["points"] = 1000
    _cell(notebook, "fold_conv")["metadata"]["nbgrader"]["grade_id"] = "fold_before"
    _cell(notebook, "setup")["source"] = "evil = 1"
    _cell(notebook, "intro")["metadata"]["nbgrader"]["locked"] = False
    notebook["metadata"]["kernelspec"] = {"name": "malicious", "language": "R", "display_name": "R"}
    notebook["cells"].reverse()
    submission = read(_hand_in(folder, notebook), "a1.ipynb", skeleton)
    for cell in skeleton.cells:
        marks = cell.metadata.nbgrader
        if marks.locked:
            assert _source(submission, marks.grade_id) == cell.source
    mine = [cell.metadata.nbgrader for cell in submission.notebook.cells if "nbgrader" in cell.metadata]
    assert mine == [cell.metadata.nbgrader for cell in skeleton.cells]
    assert submission.notebook.metadata == skeleton.metadata


def test_deleted_and_doubled_cells_are_put_right(folder, notebook, skeleton):
    doubled = json.loads(json.dumps(_cell(notebook, "bn_affine_solution")))
    doubled["source"] = "def bn_affine(): pass"
    notebook["cells"] = [c for c in notebook["cells"] if c["metadata"]["nbgrader"]["grade_id"] != "bn_train"] + [
        doubled
    ]
    submission = read(_hand_in(folder, notebook), "a1.ipynb", skeleton)
    assert _source(submission, "bn_affine_solution") == ANSWER
    assert doubled["source"] in [cell["source"] for cell in submission.code]  # as after a cell was split in two
    assert any("second cell marked bn_affine_solution" in note for note in submission.notes)
    assert any("bn_train was missing" in note for note in submission.notes)


def test_own_cells_stay_where_they_were_and_checks_are_not_executed(folder, notebook, skeleton):
    position = notebook["cells"].index(_cell(notebook, "bn_affine"))
    own = {"cell_type": "code", "metadata": {}, "source": ["a = 1\n", "b = 2"], "outputs": [], "execution_count": None}
    notebook["cells"].insert(position, own)
    submission = read(_hand_in(folder, notebook), "a1.ipynb", skeleton)
    names = [cell["name"] for cell in submission.code]
    assert names.index("a cell of your own") == names.index("bn_affine_solution") + 1
    assert "bn_affine" not in names


def test_an_answer_in_a_cell_without_its_mark_is_executed_after_what_was_put_back(folder, notebook, skeleton):
    """As after pasting it into a new cell; or, for the whole notebook, after a program that drops all marks."""
    _cell(notebook, "bn_affine_solution")["metadata"] = {}
    codes = [cell["source"] for cell in read(_hand_in(folder, notebook), "a1.ipynb", skeleton).code]
    assert "NotImplementedError" in codes[codes.index(ANSWER) - 1] and "def bn_affine" in codes[codes.index(ANSWER) - 1]
    for cell in notebook["cells"]:
        cell["metadata"] = {}
    codes = [cell["source"] for cell in read(_hand_in(folder, notebook), "a1.ipynb", skeleton).code]
    assert codes.index(ANSWER) > next(at for at, code in enumerate(codes) if "def bn_affine" in code)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"cells": [', "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b"[]", "not a notebook"),
        (b'{"nbformat": 4, "cells": [' + b"9" * 5000 + b"]}", "not valid JSON"),
        (b'{"nbformat": 3, "worksheets": []}', "format 4"),
        (b'{"nbformat": 4, "cells": {}}', "format 4"),
        (b'{"nbformat": 4, "cells": [' + b",".join([b"{}"] * 600) + b"]}", "cells"),
        (b" " * (MOST_NOTEBOOK_BYTES + 1), "bytes"),
    ],
)
def test_a_broken_notebook_becomes_a_note(folder, skeleton, data, says):
    (folder / "a1.ipynb").write_bytes(data)
    submission = read(folder, "a1.ipynb", skeleton)
    assert says in submission.notes[0] and len(submission.notebook.cells) == len(skeleton.cells)


@pytest.mark.parametrize(
    "cell",
    [
        7,
        {"cell_type": ["code"], "source": "x"},
        {"cell_type": "code", "source": {"a": 1}},
        {"cell_type": "code", "source": "x = 1", "metadata": [1]},
        {"cell_type": "code", "source": "x = 1", "metadata": {"nbgrader": {"grade_id": ["bn_affine"]}}},
        {"cell_type": "markdown", "source": "x", "metadata": {"nbgrader": {"grade_id": "bn_affine_solution"}}},
        {"cell_type": "code", "source": "s = '\ud800'", "metadata": {}},
        {"cell_type": "raw", "source": "x", "metadata": {}},
        {"cell_type": "code", "source": "x = 1\x00", "metadata": {}},
        {"cell_type": "code", "source": ["x"] * 10**5, "metadata": {}, "outputs": {"deep": [[[]]]}, "id": "x" * 10**5},
        {"cell_type": "code", "source": "x", "metadata": {"nbgrader": {"grade_id": "bn_affine\u200b_solution"}}},
    ],
)
def test_an_odd_cell_does_no_harm(folder, notebook, skeleton, cell):
    notebook["cells"].insert(0, cell)
    submission = read(_hand_in(folder, notebook), "a1.ipynb", skeleton)
    assert _source(submission, "bn_affine_solution") == ANSWER
    nbformat.validate(submission.notebook)
    nbformat.writes(submission.notebook).encode()


def test_links_pipes_and_folders_are_not_read(folder, skeleton, tmp_path):
    secret = tmp_path / "secret.ipynb"
    secret.write_text("{}")
    (folder / "a1.ipynb").symlink_to(secret)
    assert "links are not followed" in read(folder, "a1.ipynb", skeleton).notes[0]
    (folder / "a1.ipynb").unlink()
    os.mkfifo(folder / "a1.ipynb")
    assert "not an ordinary file" in read(folder, "a1.ipynb", skeleton).notes[0]
    (folder / "a1.ipynb").unlink()
    (folder / "a1.ipynb").mkdir()
    assert "a1.ipynb is missing" in read(folder, "a1.ipynb", skeleton).notes[0]


def test_a_linked_submission_folder_is_refused(folder, notebook, skeleton, tmp_path):
    _hand_in(folder, notebook)
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve" / "a1").symlink_to(folder)
    (tmp_path / "mallory").symlink_to(folder.parent)
    for link in (tmp_path / "eve" / "a1", tmp_path / "mallory" / "a1"):
        assert "not an ordinary folder" in read(link, "a1.ipynb", skeleton).notes[0]


def test_a_single_renamed_notebook_counts_and_a_missing_one_is_noted(folder, notebook, skeleton):
    assert "missing" in read(folder, "a1.ipynb", skeleton).notes[0]
    _hand_in(folder, notebook)
    (folder / "a1.ipynb").rename(folder / "a1 (copy).ipynb")
    assert _source(read(folder, "a1.ipynb", skeleton), "bn_affine_solution") == ANSWER


def test_other_files_are_limited(folder, notebook, skeleton):
    _hand_in(folder, notebook)
    (folder / "model.safetensors").write_bytes(b"123")
    (folder / "link").symlink_to("/etc/passwd")
    with open(folder / "huge.bin", "wb") as file:
        file.truncate(500 * 2**20)
    for index in range(30):
        (folder / f"z{index}").write_bytes(b"")
    submission = read(folder, "a1.ipynb", skeleton)
    assert submission.files["model.safetensors"] == b"123" and len(submission.files) == 19
    notes = " ".join(submission.notes)
    assert (
        "link cannot be read" in notes and "huge.bin has 524,288,000 bytes" in notes and "more than 20 files" in notes
    )


def test_all_files_together_are_limited(folder, notebook, skeleton):
    _hand_in(folder, notebook)
    for name in ("a", "b"):
        with open(folder / f"{name}.bin", "wb") as file:
            file.truncate(MOST_FILES_BYTES // 2 + 1)
    submission = read(folder, "a1.ipynb", skeleton)
    assert list(submission.files) == ["a.bin"] and "b.bin has" in submission.notes[0]
