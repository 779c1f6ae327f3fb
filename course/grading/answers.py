"""The right and wrong answers that go with an assignment, for its tests, and a demonstration class
made of them.
"""

import copy
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat

from course.grading.classroom import Classroom, write
from course.grading.course import Exercise
from course.grading.runner import skeleton_of

_HEAD = re.compile(r"^# %% (\w+) (right|wrong)(?:: (.+))?$", re.MULTILINE)
_CHANGED = re.compile(r"^# - ([^`]+):(?:\n#  )? (`.+(?:\n#   .+)*)", re.MULTILINE)
_EDIT = re.compile(r"`([^`]+)` -> `([^`]*)`")


@dataclass(frozen=True)
class Answer:
    """One way to answer an item: code that replaces the solution of that item."""

    item: str
    right: bool
    label: str
    code: str


def read(exercise: Exercise) -> list[Answer]:
    """All answers in the assignment's answers.py; what stands above the first is common to all.

    A line such as "# - rounds up: `round(x)` -> `ceil(x)`" changes the solution of the notebook.
    """
    text, solutions = (
        Path(exercise.folder, "answers.py").read_text(encoding="utf-8"),
        solution_cells(exercise),
    )
    common, *parts = _HEAD.split(text)
    common, found = common[common.index("import ") :], []
    for item, kind, label, code in zip(
        parts[0::4], parts[1::4], parts[2::4], parts[3::4], strict=True
    ):
        if label:
            found.append(Answer(item, kind == "right", label, common + code))
            continue
        for label, edits in _CHANGED.findall(code):
            code = solutions[f"{item}_solution"]
            for old, new in _EDIT.findall(edits.replace("\n#   ", " ")):
                if old not in code:
                    raise ValueError(
                        f"{exercise.folder / 'answers.py'}: {item} has no {old!r} to be changed"
                    )
                code = code.replace(old, new)
            found.append(Answer(item, kind == "right", label, common + code))
    return found


def solution_cells(exercise: Exercise) -> dict[str, str]:
    """Sources of all code cells of the source notebook but the checks, by grade id."""
    cells = nbformat.read(exercise.notebook, as_version=4).cells
    return {
        cell.metadata.nbgrader.grade_id: cell.source
        for cell in cells
        if cell.cell_type == "code" and not cell.metadata.nbgrader.grade
    }


def execute(sources: dict[str, str]) -> dict:
    """The names that cells define. Only for code that is our own."""
    student: dict = {}
    for name, source in sources.items():
        exec(compile(source.replace("from instant import check", ""), name, "exec"), student)
    return student


WRITTEN = r"""Zeros are padded **after** the norm, so at the border $b = \beta - \mu a$ is missing:
$$ y \neq W * x + c \quad\text{where the window reaches into the padding.} $$
Padding with $-b / a$ instead of zero makes it exact."""

INJECTION = """<script>document.title = "owned"</script> <img src=x onerror=alert(1)>
[click](javascript:alert(1)) $\\href{javascript:alert(1)}{x}$ \
<iframe src="https://example.org"></iframe>"""

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
print(glob.glob("/**/gradebook.db", recursive=True))
print(glob.glob("/**/specification.py", recursive=True))
print(subprocess.run(["sh", "-c", "id; ls / /root /home; env"], capture_output=True, text=True))
print(os.listdir("/job"), open("/job/job.json").read()[:200])
"""


def make_class(room: Classroom, exercise: Exercise) -> list[str]:
    """Write the submissions of a demonstration class into its incoming folder.

    Returns the students' names.
    """
    skeleton = skeleton_of(room, exercise)
    students = {name: fill(skeleton, sources) for name, sources in _people(exercise).items()}
    students["lena"] = _rearranged(copy.deepcopy(students["ada"]))
    folder = room.folder / "incoming" / exercise.assignment.name
    for name, notebook in students.items():
        write(folder / name / exercise.notebook.name, nbformat.writes(notebook))
    write(folder / "mona" / exercise.notebook.name, '{"cells": [')
    return [*students, "mona"]


def fill(skeleton, sources: dict[str, str]):
    """A copy of the released notebook with some cells replaced; "own" becomes a cell of the
    student's own, in front.
    """
    notebook = copy.deepcopy(skeleton)
    for cell in notebook.cells:
        cell.source = sources.get(cell.metadata.nbgrader.grade_id, cell.source)
    if "own" in sources:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(sources["own"]))
    return notebook


def variant(exercise: Exercise, right: bool, index: int) -> dict[str, str]:
    """Of every item the listed answer at a place in the list of the right or wrong ones."""
    of_kind = [answer for answer in read(exercise) if answer.right == right]
    return {
        f"{item.name}_solution": (
            [answer for answer in of_kind if answer.item == item.name][index].code
        )
        for item in exercise.assignment.items
    }


def _people(exercise: Exercise) -> dict[str, dict[str, str]]:
    solved = {
        name: text for name, text in solution_cells(exercise).items() if name.endswith("_solution")
    }
    wrong, names = variant(exercise, False, 0), list(solved)
    loop = {
        names[1]: (
            "def update_statistics(x, running_mean, running_var, momentum):\n    while True:\n     "
            "   pass"
        )
    }
    return {
        "ada": solved | {"padding_answer": WRITTEN},
        "bela": variant(exercise, True, 0),
        "chen": variant(exercise, True, 1) | {"padding_answer": "I do not know."},
        "dora": solved | {name: wrong[name] for name in names[4:]},
        "emil": wrong,
        "fay": variant(exercise, False, -1),
        "gwen": {},
        "hugo": solved | loop,
        "ines": solved | {names[-1]: "import os\nos._exit(0)"},
        "jan": {"own": FORGERY, "padding_answer": INJECTION},
        "kira": {"own": SNOOPING, names[0]: "def bn_affine(:\n"},
    }


def _rearranged(notebook):
    """The same answers after a bad afternoon: a check is gone, a cell is doubled, another one
    re-pointed.
    """
    checks = [
        cell for cell in notebook.cells if cell.metadata.nbgrader.grade and cell.cell_type == "code"
    ]
    notebook.cells.remove(checks[0])
    notebook.cells.append(nbformat.from_dict(notebook.cells[3] | {"id": "again"}))
    checks[1].metadata.nbgrader |= {"points": 1000}
    checks[2].source = "1000.0"
    return notebook
