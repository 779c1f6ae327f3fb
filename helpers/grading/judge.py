"""Grade one submission: inputs into the box, answers out of it, points awarded outside.

What enters the box: the student's cells, `inside.py`, `wire.py`, the assignment's driver, the allowed modules
of `helpers` and the inputs. What stays outside: the seeds, the specification with its oracles, the expected
values, the probes and the names of the students.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from helpers.grading import box, wire
from helpers.grading.course import Exercise
from helpers.grading.forbidden import used
from helpers.grading.intake import Submission
from helpers.grading.specification import Case, Item, Tree, Verdict, combine

HERE = Path(__file__).parent
CELL_SECONDS = 20.0
# The instant check is not part of the marks, so in the box it does nothing.
SILENT_CHECK = "def check(name):\n    pass\n"


@dataclass(frozen=True)
class Sheet:
    """One item made ready: its hidden cases, their encoded inputs, and what is expected."""

    item: Item
    cases: list[Case]
    inputs: bytes
    expected: list[Tree]


def prepare(exercise: Exercise, *seed: str) -> list[Sheet]:
    """Draw the hidden inputs of an assignment and compute the expected answers, once for a whole class.

    Args:
        exercise: the assignment.
        seed: the class secret; everything is drawn from it, so all students get the same inputs.
    """
    sheets = []
    for item in exercise.assignment.items:
        cases = item.make_cases(*seed, exercise.assignment.name, hidden=True)
        # Encoded first: an oracle that changed its inputs could not reach the box.
        inputs = wire.encode([case.inputs for case in cases])
        sheets.append(Sheet(item, cases, inputs, [item.oracle(case.inputs, case.probe) for case in cases]))
    return sheets


def build_job(
    job: Path, exercise: Exercise, submission: Submission, sheets: list[Sheet], limits: box.Limits, boxed: bool
) -> None:
    """Fill the folder that the box will see."""
    for name in ("lib", "files", "inputs", "scratch"):
        (job / name).mkdir()
    shutil.copy(HERE / "inside.py", job)
    shutil.copy(HERE / "seccomp.py", job)
    shutil.copy(HERE / "wire.py", job / "lib")
    shutil.copy(exercise.driver, job / "lib")
    (job / "lib" / "instant.py").write_text(SILENT_CHECK)
    copy_helpers(exercise.assignment.modules, job / "lib")
    for name, data in submission.files.items():
        (job / "files" / name).write_bytes(data)
    for sheet in sheets:
        (job / "inputs" / sheet.item.name).write_bytes(sheet.inputs)
    settings = box.job_settings(limits, boxed, "/tmp" if boxed else str(job / "scratch"))
    items = [{"name": s.item.name, "function": s.item.function, "seconds": s.item.seconds} for s in sheets]
    settings |= {"cells": submission.code, "cell_seconds": CELL_SECONDS, "items": items}
    (job / "job.json").write_text(json.dumps(settings))
    for path in [job, *job.rglob("*")]:
        os.chmod(path, 0o755 if path.is_dir() else 0o644)  # nobody reads it


def copy_helpers(modules: tuple[str, ...], library: Path) -> None:
    """Copy the allowed modules of `helpers`, files or whole packages, and nothing else of it."""
    if not modules:
        return
    root = HERE.parent
    (library / "helpers").mkdir()
    (library / "helpers" / "__init__.py").write_text('"""The part of the course\'s library that is given."""\n')
    for name in modules:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, library / "helpers" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source.with_suffix(".py"), library / "helpers")


def grade(
    exercise: Exercise,
    submission: Submission,
    sheets: list[Sheet],
    limits: box.Limits | None = None,
    boxed: bool = True,
) -> dict:
    """Run and judge one submission.

    Returns:
        {"items": {name: {"points", "of", "message"}}, "notes", "printed", "boxed"}; points are plain numbers.
    """
    limits = limits or box.Limits()
    with tempfile.TemporaryDirectory(prefix="grading-") as private:
        job = Path(private, "job")
        job.mkdir()
        build_job(job, exercise, submission, sheets, limits, boxed)
        outcome = box.run(job, limits, boxed)
    notes = [*submission.notes, *_cell_problems(outcome)]
    if outcome.reason:
        notes.append(f"Your code was stopped: {outcome.reason}.")
    items = {}
    for sheet in sheets:
        verdict = _judge_item(sheet, submission, outcome)
        points = round(sheet.item.points * verdict.share, 2)
        items[sheet.item.name] = {"points": points, "of": sheet.item.points, "message": verdict.message}
    return {"items": items, "notes": notes, "printed": outcome.printed[:4000], "boxed": boxed}


def _judge_item(sheet: Sheet, submission: Submission, outcome: box.BoxResult) -> Verdict:
    found = used(submission.code_for(sheet.item.name), sheet.item.forbidden)
    if found:
        return Verdict(0.0, f"The notebook uses {', '.join(found)}, which this exercise asks you to write yourself")
    if sheet.item.name not in outcome.frames:
        return Verdict(0.0, f"No answer: {outcome.reason or 'the program ended before it came to this exercise'}")
    try:
        answer = wire.decode(outcome.frames[sheet.item.name])
        problem, answers = answer["problem"], list(answer["answers"])
    except (wire.WireError, KeyError, TypeError):
        return Verdict(0.0, "No answer: the function ended the program, ran out of time or returned too much")
    if problem is not None:
        return Verdict(0.0, f"{_where(sheet, answers, str(problem))}{problem}"[:400])
    if len(answers) != len(sheet.cases):
        return Verdict(0.0, "No answer: some cases were not answered")
    verdicts = [
        sheet.item.judge(case, expected, given)
        for case, expected, given in zip(sheet.cases, sheet.expected, answers, strict=True)
    ]
    return combine(sheet.item, verdicts)


def _where(sheet: Sheet, answers: list, problem: str) -> str:
    """Name the case that failed, unless the trouble is not one of cases."""
    general = problem.startswith(("not done yet", "there is no function"))
    return "" if general or len(answers) >= len(sheet.cases) else f"{sheet.cases[len(answers)].label}: "


def _cell_problems(outcome: box.BoxResult) -> list[str]:
    """What the student's cells raised, as they report it."""
    try:
        pairs = json.loads(outcome.frames.get("cells", b"[]"))
        return [f"{str(name)[:60]} raised {str(problem)[:300]}" for name, problem in pairs[:20]]
    except (ValueError, TypeError, RecursionError):
        return []
