"""Grade a whole class: in parallel, resumable, and no submission stops another.

Boxes run side by side in threads that mostly wait; the gradebook is written by this thread alone. A result is
written last, whole or not at all, with a fingerprint of what it was made from. So a run that is killed loses
nothing that was finished, and the next one grades only what is missing or has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import torch
from tqdm import tqdm

from helpers.grading import box, intake, judge, record
from helpers.grading.classroom import Classroom, write
from helpers.grading.course import Exercise
from helpers.grading.intake import Submission
from helpers.grading.judge import Sheet


def skeleton_of(room: Classroom, exercise: Exercise):
    """The released notebook, on which every submission is rebuilt."""
    path = room.folder / "released" / exercise.assignment.name / exercise.notebook.name
    if not path.exists():
        raise FileNotFoundError(f"{exercise.assignment.name} was not released to this class: run `grade release` first")
    return nbformat.read(path, as_version=4)


def edition(exercise: Exercise, room: Classroom, boxed: bool) -> str:
    """A digest of all that marks depend on besides the submission: exercise, grader, secret, box."""
    digest = hashlib.sha256(f"{room.secret} {boxed} {torch.__version__}".encode())
    for path in sorted([*exercise.folder.glob("*.py"), exercise.notebook, *judge.HERE.glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run(
    room: Classroom,
    exercise: Exercise,
    workers: int | None = None,
    boxed: bool = True,
    only_item: str | None = None,
    executor: Executor | None = None,
) -> dict[str, int]:
    """Grade everything that is new or changed.

    Args:
        room: the class.
        exercise: which assignment.
        workers: how many boxes at a time; by default one for each core.
        boxed: False grades without the box and stamps the results.
        only_item: regrade this item for everybody and leave the points of the others alone.
        executor: where submissions are graded; by default threads of this process.

    Returns:
        How many were graded and how many were already up to date.
    """
    if boxed:
        box.require_box()
    name = exercise.assignment.name
    skeleton = skeleton_of(room, exercise)
    sheets = judge.prepare(exercise, room.secret)
    if only_item:
        exercise.assignment.item(only_item)
        sheets = [sheet for sheet in sheets if sheet.item.name == only_item]
    mark = edition(exercise, room, boxed)
    todo, kept = [], 0
    for student in room.students(name):
        print_ = hashlib.sha256((mark + intake.fingerprint(room.submission(student, name))).encode()).hexdigest()
        old = room.result(name, student)
        if old and old["fingerprint"] == print_ and not only_item:
            kept += 1
        else:
            todo.append((student, print_))
    room.log("run", assignment=name, students=len(todo), boxed=boxed, limits=asdict(box.Limits()), item=only_item)
    own = executor or ThreadPoolExecutor(workers or os.cpu_count())
    try:
        jobs = ((student, print_, _read(room, exercise, skeleton, student)) for student, print_ in todo)
        graded = _in_order_of_finish(own, jobs, exercise, sheets, boxed, 2 * (workers or os.cpu_count()))
        for student, print_, submission, result in tqdm(graded, total=len(todo), desc=f"grading {name}", leave=False):
            _keep(room, exercise, student, print_, submission, result, only_item)
    finally:
        if own is not executor:
            own.shutdown(wait=True, cancel_futures=True)
    return {"graded": len(todo), "kept": kept}


def _read(room: Classroom, exercise: Exercise, skeleton, student: str) -> Submission:
    return intake.read(room.submission(student, exercise.assignment.name), exercise.notebook.name, skeleton)


def _in_order_of_finish(
    executor: Executor, jobs: Iterator, exercise: Exercise, sheets: list[Sheet], boxed: bool, most: int
) -> Iterator[tuple[str, str, Submission, dict]]:
    """Grade with a few submissions in memory at a time, however large the class."""
    running: dict[Future, tuple] = {}
    while True:
        for student, print_, submission in jobs:
            future = executor.submit(_grade_one, exercise, submission, sheets, boxed)
            running[future] = (student, print_, submission)
            if len(running) >= most:
                break
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield (*running.pop(future), future.result())


def _grade_one(exercise: Exercise, submission: Submission, sheets: list[Sheet], boxed: bool) -> dict:
    """Grade a submission; a failure of the grader itself becomes a result that says so, and costs nobody else."""
    try:
        return judge.grade(exercise, submission, sheets, boxed=boxed)
    except box.BoxError:
        raise
    except Exception as problem:
        items = {
            sheet.item.name: {"points": 0.0, "of": sheet.item.points, "message": "The grader failed; tell your teacher"}
            for sheet in sheets
        }
        note = f"The grader failed on this submission: {type(problem).__name__}: {problem}"
        return {"items": items, "notes": [note], "printed": "", "boxed": boxed}


def _keep(
    room: Classroom, exercise: Exercise, student: str, print_: str, submission: Submission, result: dict, only_item
) -> None:
    """Enter the points in the gradebook, then write the result."""
    name = exercise.assignment.name
    old = room.result(name, student)
    if only_item and old:
        result["items"] = old["items"] | result["items"]
    arrived = arrival(room.submission(student, name))
    points = {item: row["points"] for item, row in result["items"].items()}
    record.enter(room, name, student, submission.notebook, exercise.notebook.name, points, arrived)
    result |= {
        "student": student,
        "assignment": name,
        "arrived": arrived.isoformat(timespec="seconds"),
        "graded": datetime.now(UTC).isoformat(timespec="seconds"),
        # A run for one item leaves the others as they were, so it must not pass for a full run.
        "fingerprint": (old or {}).get("fingerprint", "") if only_item else print_,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    write(room.result_path(name, student), json.dumps(result, indent=1))
    seeds = hashlib.sha256(room.secret.encode()).hexdigest()[:12]  # which secret it was, not the secret
    room.log("graded", assignment=name, student=student, points=sum(points.values()), item=only_item,
             fingerprint=print_[:12], seeds=seeds, boxed=result["boxed"], versions=result["versions"])  # fmt: skip


def arrival(folder: Path) -> datetime:
    """When a submission came in: as `collect` noted, else the time of the folder itself."""
    note = folder.parent / f".{folder.name}.arrived"
    if note.exists():
        return datetime.fromisoformat(note.read_text().strip())
    return datetime.fromtimestamp(folder.lstat().st_mtime, UTC)
