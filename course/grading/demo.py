"""A demonstration class: a dozen generated submissions, right, partly right, wrong, empty, broken and hostile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import nbformat

from course.grading import answers
from course.grading.classroom import Classroom
from course.grading.course import Exercise
from course.grading.runner import skeleton_of

WRITTEN = r"""Zeros are padded **after** the norm, so at the border $b = \beta - \mu a$ is missing:
$$ y \neq W * x + c \quad\text{where the window reaches into the padding.} $$
Padding with $-b / a$ instead of zero makes it exact."""

INJECTION = """<script>document.title = "owned"</script> <img src=x onerror=alert(1)>
[click](javascript:alert(1)) $\\href{javascript:alert(1)}{x}$ <iframe src="https://example.org"></iframe>"""

FORGERY = """
import builtins, torch, IPython
torch.allclose = torch.equal = lambda *a, **k: True
torch.Tensor.__eq__ = lambda *a: torch.ones(())
builtins.isinstance = lambda *a: True
def give_points(*a, **k): return 100.0
import driver, wire
driver.RUNS = {name: give_points for name in ("bn_affine", "fold_model")}
"""

SNOOPING = """
import glob, os, subprocess
print(glob.glob("/**/gradebook.db", recursive=True), glob.glob("/**/specification.py", recursive=True))
print(subprocess.run(["sh", "-c", "id; ls / /root /home; env"], capture_output=True, text=True))
print(os.listdir("/job"), open("/job/job.json").read()[:200])
"""

Sources = dict[str, str]


def make_class(room: Classroom, exercise: Exercise) -> list[str]:
    """Write the submissions of a demonstration class into the class's incoming folder.

    Returns:
        The students' names.
    """
    skeleton = skeleton_of(room, exercise)
    students = {name: fill(skeleton, sources) for name, sources in _people(exercise).items()}
    students["lena"] = _rearranged(students["ada"])
    folder = room.folder / "incoming" / exercise.assignment.name
    for name, notebook in students.items():
        _write(folder / name / exercise.notebook.name, nbformat.writes(notebook))
    _write(folder / "mona" / exercise.notebook.name, '{"cells": [')
    return [*students, "mona"]


def fill(skeleton, sources: Sources):
    """A copy of the released notebook with some cells replaced; "own" becomes a cell of the student's own, in front."""
    notebook = nbformat.from_dict(json.loads(nbformat.writes(skeleton)))
    for cell in notebook.cells:
        cell.source = sources.get(cell.metadata.nbgrader.grade_id, cell.source)
    if "own" in sources:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(sources["own"]))
    return notebook


def variants(exercise: Exercise, choose: Callable[[list[answers.Answer]], answers.Answer]) -> Sources:
    """One of the listed answers for every item."""
    every = answers.read(exercise)
    sources = {}
    for item in exercise.assignment.items:
        sources[f"{item.name}_solution"] = choose([answer for answer in every if answer.item == item.name]).code
    return sources


def _people(exercise: Exercise) -> dict[str, Sources]:
    solved = {name: text for name, text in answers.solution_cells(exercise).items() if name.endswith("_solution")}
    first = variants(exercise, lambda found: next(a for a in found if a.right))
    second = variants(exercise, lambda found: [a for a in found if a.right][1])
    wrong = variants(exercise, lambda found: next(a for a in found if not a.right))
    last_wrong = variants(exercise, lambda found: [a for a in found if not a.right][-1])
    names = list(solved)
    loop = {names[1]: "def update_statistics(x, running_mean, running_var, momentum):\n    while True:\n        pass"}
    return {
        "ada": solved | {"padding_answer": WRITTEN},
        "bela": first,
        "chen": second | {"padding_answer": "I do not know."},
        "dora": solved | {name: wrong[name] for name in names[4:]},
        "emil": wrong,
        "fay": last_wrong,
        "gwen": {},
        "hugo": solved | loop,
        "ines": solved | {names[-1]: "import os\nos._exit(0)"},
        "jan": {"own": FORGERY, "padding_answer": INJECTION},
        "kira": {"own": SNOOPING, names[0]: "def bn_affine(:\n"},
    }


def _rearranged(notebook):
    """The same answers after a bad afternoon: a check is gone, a cell is doubled, another one re-pointed."""
    notebook = nbformat.from_dict(json.loads(nbformat.writes(notebook)))
    checks = [cell for cell in notebook.cells if cell.metadata.nbgrader.grade and cell.cell_type == "code"]
    notebook.cells.remove(checks[0])
    notebook.cells.append(nbformat.from_dict(json.loads(json.dumps(notebook.cells[3])) | {"id": "again"}))
    checks[1].metadata.nbgrader |= {"points": 1000}
    checks[2].source = "1000.0"
    return notebook


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
