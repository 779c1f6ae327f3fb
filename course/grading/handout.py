"""An assignment as students get it: no solution, no specification, no oracle.

The instant check needs right answers to compare with. They are computed here for one visible seed
and travel as data; the functions that computed them do not.
"""

import shutil
import sys
from dataclasses import astuple
from pathlib import Path

import nbformat

from course.grading import course, wire
from course.grading.course import Exercise
from helpers.checks import compare
from helpers.files import write_atomically

HERE = Path(__file__).parent
VISIBLE_SEED = "visible"
VISIBLE = "visible.safetensors"
SUPPORT = (HERE / "instant.py", HERE / "wire.py", HERE / "guard.py", Path(compare.__file__))
GUIDE = "STUDENT.md"
STUBS = {"code": "# YOUR CODE HERE\nraise NotImplementedError()", "markdown": "YOUR ANSWER HERE"}


def visible_answers(exercise: Exercise) -> bytes:
    """Inputs and right answers of the visible seed, as data for the instant check."""
    items = {}
    for item in exercise.assignment.items:
        visible = item.make_cases(VISIBLE_SEED)
        cases = [
            vars(case) | {"expected": item.oracle(case.inputs, case.probe)} for case in visible
        ]
        tolerance = list(astuple(item.tolerance))
        rules = {
            "function": item.function,
            "forbidden": list(item.forbidden),
            "tolerance": tolerance,
            "python": list(sys.version_info[:2]),
            "seconds": item.seconds * (2 if item.forbidden else 1),  # as in grading, see job.py
            "hidden": len(item.make_cases(VISIBLE_SEED, hidden=True)),
        }
        items[item.name] = rules | {"hints": [item.nudge, item.hint], "cases": cases}
    return wire.encode(items)


def hand_out(exercise: Exercise, notebook: str, bundle: Path) -> Path:
    """Write the folder of an assignment anew, and return it.

    Args:
        exercise: what is handed out.
        notebook: the text of the notebook that students get.
        bundle: the folder.
    """
    if bundle.exists():
        shutil.rmtree(bundle)
    bundle.mkdir(parents=True)
    for path in (*SUPPORT, exercise.driver, exercise.folder.parent / GUIDE):
        shutil.copy(path, bundle)
    write_atomically(bundle / exercise.notebook.name, notebook)
    write_atomically(bundle / VISIBLE, visible_answers(exercise))
    return bundle


def for_practice(sources: Path, target: Path) -> list[Path]:
    """The folders of all assignments, for somebody who learns alone; those that are up to date stay
    as they are.
    """
    bundles = [target / name for name in course.names(sources)]
    for bundle in bundles:
        if out_of_date(bundle, sources / bundle.name):
            exercise = course.load(bundle.name, sources)
            hand_out(exercise, without_solutions(exercise.notebook), bundle)
    return bundles


def out_of_date(bundle: Path, source: Path) -> bool:
    """Whether something that an assignment is made of has changed since it was handed out."""
    made = bundle / VISIBLE
    if not made.exists():
        return True
    parts = [path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    parts += [*SUPPORT, source.parent / GUIDE]
    return max(path.stat().st_mtime for path in parts) > made.stat().st_mtime


def without_solutions(source: Path) -> str:
    """A source notebook with stubs in place of its solutions, and without outputs."""
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.nbgrader.solution:
            cell.source = cleared(cell.source, STUBS[cell.cell_type])
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nbformat.writes(notebook) + "\n"


def cleared(source: str, stub: str) -> str:
    """A cell with a stub in place of what stands between its marks; without marks, the stub alone,
    as nbgrader does it.
    """
    kept, inside = [], False
    for line in source.split("\n"):
        if "BEGIN SOLUTION" in line:
            inside = True
            indent = line[: len(line) - len(line.lstrip())]
            kept += [indent + part for part in stub.split("\n")]
        elif "END SOLUTION" in line:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept) if "BEGIN SOLUTION" in source else stub
