"""Read the right and wrong answers that go with an assignment, for its tests and for the demonstration class."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat

from course.grading.course import Exercise
from course.grading.guard import Forbidden, Guard
from helpers.checks.specification import Item, Tree, Verdict, check

_HEAD = re.compile(r"^# %% (\w+) (right|wrong): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """One way to answer an item: code that replaces the solution of that item."""

    item: str
    right: bool
    label: str
    code: str


def read(exercise: Exercise) -> list[Answer]:
    """All answers in the assignment's answers.py; what stands above the first is common to all."""
    text = Path(exercise.folder, "answers.py").read_text()
    common, *parts = _HEAD.split(text)
    common = common[common.index("import ") :]
    heads = zip(parts[0::4], parts[1::4], parts[2::4], parts[3::4], strict=True)
    return [Answer(item, kind == "right", label, common + code) for item, kind, label, code in heads]


def solution_cells(exercise: Exercise) -> dict[str, str]:
    """Sources of all code cells of the source notebook but the checks, by grade id."""
    cells = nbformat.read(exercise.notebook, as_version=4).cells
    return {
        cell.metadata.nbgrader.grade_id: cell.source
        for cell in cells
        if cell.cell_type == "code" and not cell.metadata.nbgrader.grade
    }


def try_out(exercise: Exercise, answer: Answer, seed: str = "tests") -> Verdict:
    """Judge an answer as the hidden grading would, in this process: only for answers that are our own."""
    item = exercise.assignment.item(answer.item)
    sources = solution_cells(exercise) | {f"{answer.item}_solution": answer.code}
    submitted = sum(map(len, [*sources.values(), *exercise.handed_in.values()]))
    with contextlib.chdir(exercise.folder):  # where the files lie that belong to the solution
        return check(guarded(item), execute(sources), seed, hidden=True, submitted_bytes=submitted)


def guarded(item: Item) -> Item:
    """The same item, with the library's functions that it forbids out of reach, as they are in the box."""

    def run(student: dict, inputs: Tree) -> Tree:
        with Guard(item.forbidden) as guard:
            answer = item.answer(student, inputs)
        if guard.found:
            raise Forbidden(guard.found)
        return answer

    return replace(item, run=run)


def execute(sources: dict[str, str]) -> dict:
    """The names that cells define. Only for code that is our own."""
    student: dict = {}
    for name, source in sources.items():
        exec(compile(source.replace("from instant import check", ""), name, "exec"), student)
    return student
